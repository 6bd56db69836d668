//! Tests of the Linux host side: on fake `/proc` and `/sys` trees, and a few on this machine.

mod closed_list;
mod fake;
mod foreign;
mod keeper;
mod knobs;
mod mover;
mod probe;
mod reclaimer;
mod scanner;
mod topology;
mod vmstat;
mod watermarks;
