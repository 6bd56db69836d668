//! A modelled tiered machine that runs pghot's own engine: to try a policy or a size of DRAM before
//! buying it, and to see what the engine does on machines that nobody here has.
//!
//! | folder | what is in it |
//! |---|---|
//! | [`machine`] | the modelled machine: memory, nodes, costs, and how it is at a moment |
//! | [`kernel`] | what its kernel does: the scanner, promotion in the fault, reclaim |
//! | [`copying`] | what `move_pages` costs, by who copies |
//! | [`traffic`] | processes, and the accesses that they make |
//! | [`systems`] | who decides what moves: pghot with its engine, and models of rivals |
//! | [`scenario`] | a machine and what runs on it: from a file, or from a recorded profile |
//! | [`run`] | a run of a scenario under a system |
//! | [`advise`] | how much top tier a program needs, and how far that may be off |
//! | [`sweep`] | many runs, and what they say together |
//! | [`chaos`] | random runs in which everything goes wrong, watched by an auditor |
//! | [`tables`] | the published tables, each cell beside what the model says |
//!
//! A [`run::Simulation`] takes a [`scenario::Scenario`] through slices of simulated time: processes
//! access memory, the kernel scans and reclaims, and the system under test decides what moves. The
//! same scenario and seed give the same run, to the byte.
//!
//! What a page costs the model: one byte of state, and in the hotness records what it costs the
//! daemon.

pub mod advise;
pub mod chaos;
pub mod copying;
mod error;
pub mod harm;
pub mod kernel;
pub mod machine;
mod parallel;
pub mod run;
pub mod scenario;
pub mod sweep;
pub mod systems;
pub mod tables;
pub mod traffic;

pub use error::Error;
