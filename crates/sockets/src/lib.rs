//! A modelled machine of several sockets, and the policies of 2012 that moved pages and threads
//! between them: Automatic NUMA Balancing V3.
//!
//! It is a model of its own, beside the tiered one of `pghot-sim`, because the question is another.
//! There are no tiers and no hot pages: every node has CPUs, and a page is well placed if it is
//! where its threads are. Threads move too, and what costs time is that many threads want the
//! memory of one node. So here a node's bandwidth is shared exactly, from one visit of a thread to
//! the next ([`run`]), and pages are kept as shares of blocks of 2 MiB (`memory`), which is what a
//! page-table entry one level up maps and what a transparent huge page is.

pub mod benchmark;
mod budget;
mod follow;
pub mod machine;
mod memory;
mod node;
pub mod policies;
mod process;
pub mod run;
mod scheduler;
