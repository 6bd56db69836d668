//! Version 2 of the format: it did not say who else cleared accessed bits. It is read, and no more
//! written.

use serde::Deserialize;

use crate::{Process, Profile};

/// Its number.
pub const VERSION: u16 = 2;

/// As [`Profile`].
#[derive(Deserialize)]
pub struct ProfileV2 {
    kernel: String,
    interval_ms: u32,
    intervals: u32,
    processes: Vec<Process>,
}

impl From<ProfileV2> for Profile {
    /// Nobody is known to have.
    fn from(old: ProfileV2) -> Profile {
        Profile {
            kernel: old.kernel,
            interval_ms: old.interval_ms,
            intervals: old.intervals,
            disturbed_by: Vec::new(),
            processes: old.processes,
        }
    }
}
