//! What a kernel and a machine offer pghot: tiers, watermarks, counters, settings and `move_pages`.
//!
//! Everything is read below a [`SysRoot`], so tests run on fake trees.

pub mod bpf;
pub mod busy_cpus;
pub mod cgroup;
pub mod claim;
pub mod conflicts;
pub mod exchange_cpus;
pub mod fates;
pub mod file_mover;
mod free_pages;
pub mod groups;
pub mod hint_fault_knobs;
pub mod host;
mod huge_pages;
pub mod keeper;
pub mod knobs;
pub mod load_check;
pub mod lru_gen;
mod mounts;
pub mod mover;
pub mod moving;
pub mod own_memory;
pub mod page_cache;
pub mod pagemap;
pub mod probe;
pub mod processes;
pub mod programs;
pub mod reclaimer;
pub mod refused_calls;
pub mod resolver;
pub mod rights;
pub mod root;
pub mod topology;
pub mod vmstat;
pub mod watermarks;
pub mod zoneinfo;

pub use host::{Host, HostError};
pub use moving::{process_cpu, thread_cpu};
pub use reclaimer::Reclaimer;
pub use root::{PROC, ReadError, SysRoot};
