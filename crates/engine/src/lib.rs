//! The pure decisions of pghot: which of the ready pages move, to which node, in which batches,
//! and why the others stay.
//!
//! A [`Migrator`] serves one lower-tier node. Each [`Migrator::pass`] reads the ready pages of the
//! hot sections, lets them through the gates hottest first, and hands bounded batches to the
//! [`Machine`]: the one trait through which the engine sees the world. The Linux host implements
//! it with BPF and `move_pages(2)`, a simulation with a model, the tests with [`fake`].
//!
//! The [`arbiter`] decides which hotness sources run. The [`demoter`] makes room in a full top
//! tier, at the time scale and the rate that the [`exchange`] finds. [`Turns`] keeps apart
//! those that clear accessed bits.
//!
//! There is no clock, thread, file or system call in this crate. Time comes from the machine, so
//! the same inputs give the same decisions.

pub mod arbiter;
mod batch;
pub mod demoter;
pub mod exchange;
mod gate;
mod history;
mod journal;
mod looks;
pub mod lruvec;
mod machine;
pub mod marking;
mod migrator;
pub mod names;
mod outcome;
pub mod owners;
mod pace;
mod pass;
mod place;
mod policy;
pub mod pulse;
mod quick_fault;
mod report;
mod retry;
mod select;
mod sizes;
mod targets;
mod tunables;
mod turns;

pub mod fake;

/// Base pages of a huge page.
pub const HUGE_PAGES: u64 = 512;

pub use gate::{Gate, Gates, Held};
pub use history::History;
pub use journal::{Decision, Journal};
pub use machine::{Batch, Found, HotFolio, Machine};
pub use marking::Marking;
pub use migrator::Migrator;
pub use outcome::{Outcome, Tally};
pub use pace::Pace;
pub use place::{FileId, Owner, Place, Program};
pub use policy::{Pattern, Policies, Policy, PolicyError};
pub use quick_fault::QuickFault;
pub use report::{HeldPages, Moved, PassReport, Totals, Waiting};
pub use tunables::{Kept, Kind, Settings, TUNABLES, Tunable, TunableError};
pub use turns::{RecordingTurn, Turn, Turns};

/// A process id, in the initial PID namespace.
pub type Pid = u32;
