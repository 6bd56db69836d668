//! Programs that load memory in a known way, to judge hot-page promotion by.
//!
//! Each program knows its own hot set, so how well a system found it is computed, not guessed.
//! They depend on no crate of pghot and run alone, on any machine with NUMA nodes.
//!
//! | module | its one job |
//! |---|---|
//! | [`args`] | the flags of `hotset` |
//! | [`list`] | `0,2-3`: lists of CPUs and nodes |
//! | [`cached_file`] | a file in the page cache of its home node, for `pagecache` |
//! | [`hot_set`] | which pages are hot |
//! | [`region`] | the memory: made on its home node, stamped, verified |
//! | [`access`] | the threads that touch it |
//! | [`placement`] | on which node each page is |
//! | [`numa_maps`] | pages per node, cheaply |
//! | [`report`] | the JSON lines printed, and the times computed from them |
//! | [`hint`] | hints to pghot, by its C header |
//! | [`idle_forks`] | children that share the memory |
//! | [`churn`] | `churn`: processes, mappings and files that come and go |
//! | [`sys`] | the system calls |

pub mod access;
pub mod args;
pub mod cached_file;
pub mod churn;
pub mod hint;
pub mod hot_set;
pub mod idle_forks;
pub mod list;
pub mod numa_maps;
pub mod placement;
pub mod probe;
pub mod region;
pub mod report;
pub mod sys;
