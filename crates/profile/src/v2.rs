//! Version 2 of the format: it did not say who else cleared accessed bits. It is read, and no more
//! written.

use serde::Deserialize;

use crate::v3::ProcessV3;
use crate::{Process, Profile};

/// Its number.
pub const VERSION: u16 = 2;

/// As [`Profile`].
#[derive(Deserialize)]
pub struct ProfileV2 {
    kernel: String,
    interval_ms: u32,
    intervals: u32,
    processes: Vec<ProcessV3>,
}

impl From<ProfileV2> for Profile {
    /// Nobody is known to have.
    fn from(old: ProfileV2) -> Profile {
        Profile {
            kernel: old.kernel,
            interval_ms: old.interval_ms,
            intervals: old.intervals,
            elapsed_ms: u64::from(old.interval_ms) * u64::from(old.intervals),
            disturbed_by: Vec::new(),
            processes: old.processes.into_iter().map(Process::from).collect(),
        }
    }
}
