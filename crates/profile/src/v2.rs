//! Version 2 of the format: it did not say who else cleared accessed bits. It is read, and no more
//! written.

use serde::Deserialize;

use crate::Profile;
use crate::v3::{ProcessV3, ProfileV3};

/// Its number.
pub const VERSION: u16 = 2;

/// As [`Profile`].
#[derive(Deserialize)]
pub struct ProfileV2 {
    pub kernel: String,
    pub interval_ms: u32,
    pub intervals: u32,
    pub processes: Vec<ProcessV3>,
}

impl From<ProfileV2> for Profile {
    /// Nobody is known to have.
    fn from(old: ProfileV2) -> Profile {
        ProfileV3 {
            kernel: old.kernel,
            interval_ms: old.interval_ms,
            intervals: old.intervals,
            disturbed_by: Vec::new(),
            processes: old.processes,
        }
        .into()
    }
}
