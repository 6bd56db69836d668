//! Scenarios: a machine and what runs on it, from a file or from a recorded profile.

mod file;
mod plan;
pub mod replay;
mod spec;
pub mod thin;

pub(crate) use file::read_toml;
pub use spec::{Mode, PatternName, PhaseSpec, ProcessSpec, Recorded, Scenario};
