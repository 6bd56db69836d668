//! Compares systems that move hot pages: each runs the same workloads in the same emulated machine,
//! and an independent witness tells where every access went.
//!
//! | module | does |
//! |---|---|
//! | [`preset`] | what is compared if nothing else is said: the demo, the quick form, all of it |
//! | [`systems`] | the rivals: how each is started and stopped |
//! | [`workloads`] | what they are compared by |
//! | [`cell`] | one workload under one system: what is run and what is kept of it |
//! | [`setting`] | what a cell runs, and its name |
//! | [`room`] | the top tier's free memory when a workload begins: the same for all systems |
//! | [`commit`] | what is measured, by its last commit |
//! | [`guest`] | counters and CPU time of the guest, before and after |
//! | [`matrix`] | which cells there are, and those that are done |
//! | [`score`] | from counts to modelled time |
//! | [`bounds`] | what could be reached by who knows the future |
//! | [`measures`] | the numbers that a run is judged by |
//! | [`summary`] | medians of each workload under each system, and who wins, by a test |
//! | [`model`] | the same cells in the simulator: how far it predicts them |
//! | [`advice`] | what `pghot advise` says of them, beside what was measured |
//! | [`kernel_tables`] | what the kernel does without any system: moves by batch, balancing |
//! | [`report`] | JSON, CSV, tables and pages |

pub mod advice;
pub mod bounds;
pub mod cell;
pub mod commit;
pub mod guest;
pub mod kernel_tables;
pub mod matrix;
pub mod measures;
pub mod model;
pub mod preset;
pub mod progress;
pub mod report;
pub mod room;
pub mod score;
pub mod setting;
pub mod summary;
pub mod systems;
pub mod workloads;

#[cfg(test)]
mod testing;
