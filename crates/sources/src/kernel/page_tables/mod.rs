//! Accessed bits in the page tables of processes: which processes there are, clearing the bits, and
//! walking for those that were set again. The source `pgtscan` and the recorder share it.

pub(crate) mod clear;
pub(crate) mod procs;
pub(crate) mod walk;
