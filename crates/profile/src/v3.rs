//! Version 3 of the format: it did not know control groups, nor rests between intervals. It is
//! read, and no more written.

use serde::Deserialize;

use crate::{Interval, Process, Profile};

/// Its number.
pub const VERSION: u16 = 3;

/// As [`Profile`].
#[derive(Deserialize)]
pub struct ProfileV3 {
    pub kernel: String,
    pub interval_ms: u32,
    pub intervals: u32,
    pub disturbed_by: Vec<String>,
    pub processes: Vec<ProcessV3>,
}

/// As [`Process`].
#[derive(Deserialize)]
pub struct ProcessV3 {
    pub name: String,
    pub blocks: u32,
    pub huge_blocks: u32,
    pub intervals: Vec<Interval>,
}

impl From<ProfileV3> for Profile {
    fn from(old: ProfileV3) -> Profile {
        Profile {
            kernel: old.kernel,
            interval_ms: old.interval_ms,
            intervals: old.intervals,
            elapsed_ms: u64::from(old.interval_ms) * u64::from(old.intervals),
            disturbed_by: old.disturbed_by,
            processes: old.processes.into_iter().map(Process::from).collect(),
        }
    }
}

impl From<ProcessV3> for Process {
    fn from(old: ProcessV3) -> Process {
        Process {
            name: old.name,
            cgroup: String::new(),
            blocks: old.blocks,
            huge_blocks: old.huge_blocks,
            intervals: old.intervals,
        }
    }
}
