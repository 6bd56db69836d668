//! Version 1 of the format: it did not tell tiers apart, and numbered blocks in the order in which
//! they were first seen. It is read, and no more written.

use serde::Deserialize;

use crate::v2::ProfileV2;
use crate::v3::ProcessV3;
use crate::{Interval, Profile, Touched};

/// Its number.
pub const VERSION: u16 = 1;

/// As [`Profile`].
#[derive(Deserialize)]
pub struct ProfileV1 {
    kernel: String,
    interval_ms: u32,
    intervals: u32,
    processes: Vec<ProcessV1>,
}

#[derive(Deserialize)]
struct ProcessV1 {
    name: String,
    blocks: u32,
    huge_blocks: u32,
    intervals: Vec<IntervalV1>,
}

#[derive(Deserialize)]
struct IntervalV1 {
    number: u32,
    cpu_us: u64,
    touched: Touched,
}

impl From<ProfileV1> for Profile {
    /// No page was seen in the lower tier.
    fn from(old: ProfileV1) -> Profile {
        let interval = |old: IntervalV1| Interval {
            number: old.number,
            cpu_us: old.cpu_us,
            touched: old.touched,
            lower: Touched::default(),
        };
        let process = |old: ProcessV1| ProcessV3 {
            name: old.name,
            blocks: old.blocks,
            huge_blocks: old.huge_blocks,
            intervals: old.intervals.into_iter().map(interval).collect(),
        };
        ProfileV2 {
            kernel: old.kernel,
            interval_ms: old.interval_ms,
            intervals: old.intervals,
            processes: old.processes.into_iter().map(process).collect(),
        }
        .into()
    }
}
