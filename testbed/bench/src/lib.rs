//! Compares systems that move hot pages: each runs the same workloads in the same emulated machine,
//! and an independent witness tells where every access went.
//!
//! | module | does |
//! |---|---|
//! | [`systems`] | the rivals, each in one file: how it is started and stopped |
//! | [`workloads`] | what they are compared by |
//! | [`programs`] | Redis and fio in the guest, their memory in the lower tier at first |
//! | [`cell`] | one workload under one system: what is run and what is kept of it |
//! | [`guest`] | counters and CPU time of the guest, before and after |
//! | [`matrix`] | which cells there are, and those that are done |
//! | [`score`] | from counts to modelled time |
//! | [`measures`] | the numbers that a run is judged by |
//! | [`summary`] | medians and spreads of several runs |
//! | [`verdict`] | who wins, in a sentence |
//! | [`published`] | what others measured, as data |
//! | [`kernel_tables`] | what the kernel does without any system: moves by batch, balancing |
//! | [`report`] | JSON, CSV and one HTML page |

pub mod cell;
pub mod guest;
pub mod kernel_tables;
pub mod matrix;
pub mod measures;
pub mod programs;
pub mod published;
pub mod report;
pub mod score;
pub mod summary;
pub mod systems;
pub mod verdict;
pub mod workloads;

#[cfg(test)]
mod testing;
