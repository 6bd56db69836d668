//! The time scales, how much may change places, and hint faults by how soon they came after their
//! marks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Settings;

/// The narrowest scale, in ms: two jiffies of a kernel that counts 250 a second, which is how
/// exactly the time from a mark to its fault is known.
pub const NARROWEST_MS: u32 = 8;

/// Classes of [`FaultTimes`]: one more than there are narrow scales, and one for later ones.
pub use pghot_hotness::FAULT_CLASSES;

/// Scales, each twice as wide as the one before: up to half a second, if `quick_fault_ms` allows.
pub(super) const NARROW_SCALES: usize = FAULT_CLASSES - 2;

/// How many times as long as τ a page must be idle at a narrow scale.
pub(super) const NARROW_TIMES: f64 = 2.0;

/// So many times more must be idle than if all pages were touched alike.
const MORE_IDLE: f64 = 2.0;

/// A smaller share is not worth the search. An aging takes some 25 ns for each page of the tier, so
/// two are paid for by one page in 300 that changes places and is touched a hundred times more,
/// which saves 150 ns each time.
const IDLE_MIN: f64 = 0.004;

/// Fewer hint faults tell nothing of the gap.
const FAULTS_MIN: u64 = 64;

/// Hint faults since the start, by how soon they came after their marks: within the narrowest
/// scale, within twice as long, and so on, and at last those that came later.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FaultTimes(pub [u64; FAULT_CLASSES]);

/// One time scale, in ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// τ: what comes is touched within it.
    pub touched_ms: u32,
    /// What goes was not touched for so long.
    pub idle_ms: u32,
}

/// All scales, the narrowest first: up to the limit of quick faults, then the one at which pages
/// may come that were counted.
pub fn scales(settings: &Settings) -> Vec<Scale> {
    let quick = settings.quick_fault_ms;
    let counted = settings.freq_window_ms / settings.freq_threshold.max(1);
    let doubling = (0..NARROW_SCALES).map(|i| NARROWEST_MS << i);
    let below = doubling.map(|ms| ms.min(quick)).filter(|ms| *ms > 0);
    let mut scales: Vec<Scale> = below
        .map(|ms| Scale {
            touched_ms: ms,
            idle_ms: NARROW_TIMES as u32 * ms,
        })
        .collect();
    scales.dedup();
    scales.push(Scale {
        touched_ms: quick,
        idle_ms: 2 * counted.max(quick),
    });
    scales
}

/// The share of the top tier of which more must be idle, for so many times the τ of the gap.
pub(super) fn least_idle(gap: f64, times: f64) -> f64 {
    (MORE_IDLE * gap.powf(times)).clamp(IDLE_MIN, 1.0)
}

impl FaultTimes {
    /// Those that came within a second of their marks: they follow from what was marked lately.
    pub fn soon(&self) -> u64 {
        self.within(FAULT_CLASSES - 2)
    }

    /// Those that came later: pages that were left alone are touched again.
    pub fn late(&self) -> u64 {
        self.0[FAULT_CLASSES - 1]
    }

    /// The classes: faults sooner than so many ms after their marks but not in the class before,
    /// and at last, without a limit, all later ones.
    pub fn classes(&self) -> impl Iterator<Item = (Option<u32>, u64)> {
        let limit = |class| (class < FAULT_CLASSES - 1).then_some(NARROWEST_MS << class);
        (0..).map(limit).zip(self.0)
    }

    /// What came since these were counted. Whoever counts fewer than before has begun anew.
    pub(crate) fn since(&self, before: &FaultTimes) -> FaultTimes {
        let mut since = *self;
        for (count, before) in since.0.iter_mut().zip(before.0) {
            *count = count.checked_sub(before).unwrap_or(*count);
        }
        since
    }

    pub(crate) fn add(&mut self, more: &FaultTimes) {
        for (count, more) in self.0.iter_mut().zip(more.0) {
            *count += more;
        }
    }

    /// Whether there are enough to tell that most came within half a second of their marks.
    pub(super) fn come_soon(&self) -> bool {
        let soon = self.within(FAULT_CLASSES - 3);
        soon >= FAULTS_MIN && 2 * soon > self.0.iter().sum()
    }

    fn within(&self, class: usize) -> u64 {
        self.0.iter().take(class + 1).sum()
    }

    /// e^-x of pages that are all touched alike, at a scale: 1/h - 1. `None` if too few came.
    pub(super) fn gap(&self, scale: usize) -> Option<f64> {
        let (within, twice) = (self.within(scale), self.within(scale + 1));
        (twice >= FAULTS_MIN).then(|| twice as f64 / within.max(1) as f64 - 1.0)
    }
}

/// As much may go down as may come up.
pub(super) fn limit_mbps(settings: &Settings) -> u64 {
    let limit_mbps = settings.promote_rate_limit_mbps;
    limit_mbps.min(settings.demote_rate_limit_mbps)
}

#[cfg(test)]
mod tests {
    use pghot_hotness::Format;

    use super::*;

    #[test]
    fn without_quick_faults_there_is_one_scale() {
        let mut settings = Settings::new(Format::Default);
        settings.quick_fault_ms = 0;
        settings.freq_threshold = 3;
        let widest = Scale {
            touched_ms: 0,
            idle_ms: 2000,
        };
        assert_eq!(scales(&settings), [widest]);
    }
}
