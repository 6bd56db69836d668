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
//! | [`plan`] | phases of accesses, by pattern, for `load` |
//! | [`plans`] | the benchmarks by name |
//! | [`load`] | the threads that run a plan |
//! | [`marks`] | how a workload tells the witness of its phases |
//! | [`placement`] | on which node each page is |
//! | [`numa_maps`] | pages per node, cheaply |
//! | [`report`] | the JSON lines printed, and the times computed from them |
//! | [`spread`] | the median and the ends of what was measured several times |
//! | [`hint`] | hints to pghot, by its C header |
//! | [`hold`] | a workload that waits to be let go |
//! | [`idle_forks`] | children that share the memory |
//! | [`churn`] | `churn`: processes, mappings and files that come and go |
//! | [`kv`] | a client of a Redis server that knows what it must answer, for `kv` |
//! | [`random`] | random numbers |
//! | [`zipf`] | skewed choices |
//! | [`migrate`] | pages moved from node to node, timed |
//! | [`first_folio`] | how long the first page of a move is away, by the kernel's tracepoints |
//! | [`fuse`] | a file whose server may stop, for `stalled` |
//! | [`graph`] | a random graph in the memory |
//! | [`bfs`] | searches of it, and their check |
//! | [`autonuma`] | the programs of autonumabench |
//! | [`forked`] | children that begin together and tell what they did |
//! | [`sys`] | the system calls |

pub mod access;
pub mod args;
pub mod autonuma;
pub mod bfs;
pub mod cached_file;
pub mod churn;
pub mod decided;
pub mod first_folio;
pub mod forked;
pub mod fuse;
pub mod graph;
pub mod hint;
pub mod hold;
pub mod hot_set;
pub mod idle_forks;
pub mod kv;
pub mod list;
pub mod load;
pub mod marks;
pub mod migrate;
pub mod numa_maps;
pub mod placement;
pub mod plan;
pub mod plans;
pub mod probe;
pub mod random;
pub mod region;
pub mod report;
pub mod spread;
pub mod sys;
pub mod zipf;
