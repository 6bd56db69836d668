//! The latest hint faults: what of all that came tells of now, by scale.
//!
//! Where the scanner marks all the time, faults of the last half to whole second tell how soon
//! after their marks pages are touched. Where it rests now and then they do not: shortly after it
//! began to mark again only the soonest can have come, and while it rests only the latest come. At
//! scales that are not narrow against its rests, both are needed: faults of some rests.

use super::scales::{FaultTimes, NARROWEST_MS};

/// How long hint faults are news, in ms: once to twice that, which is some visits of the scanner.
pub(crate) const NEWS_MS: u64 = 500;

/// The same where the scanner rests now and then: its rests are a quarter of a second and longer.
const PATCHY_NEWS_MS: u64 = 2000;

/// Scales that are so many times narrower than what is news may be told by a part of it: those of
/// 8 and 16 ms.
const NARROW: u64 = 16;

/// See the head of this file.
#[derive(Debug, Clone, Default)]
pub(super) struct News {
    /// All of them, as of the last call.
    pub all: FaultTimes,
    now_ms: u64,
    few: Since,
    more: Since,
    /// When the scanner last rested.
    rested_ms: Option<u64>,
}

/// All fault times at two moments.
#[derive(Debug, Clone, Default)]
struct Since([(u64, FaultTimes); 2]);

impl Since {
    fn note(&mut self, now_ms: u64, all: FaultTimes, ms: u64) {
        if now_ms.saturating_sub(self.0[1].0) >= ms {
            self.0 = [self.0[1], (now_ms, all)];
        }
    }
}

impl News {
    /// Takes note of all that ever came.
    pub fn note(&mut self, now_ms: u64, all: FaultTimes) {
        (self.now_ms, self.all) = (now_ms, all);
        self.few.note(now_ms, all, NEWS_MS);
        self.more.note(now_ms, all, PATCHY_NEWS_MS);
    }

    /// Takes note of whether the scanner rests, so that no hint faults come whatever is touched.
    pub fn note_scanner(&mut self, now_ms: u64, rests: bool) {
        if rests {
            self.rested_ms = Some(now_ms);
        }
    }

    /// Whether it tells nothing that no hint faults come.
    pub fn is_deaf(&self, now_ms: u64) -> bool {
        self.has_rested_within(now_ms, NEWS_MS)
    }

    fn has_rested_within(&self, now_ms: u64, ms: u64) -> bool {
        self.rested_ms
            .is_some_and(|rested_ms| now_ms < rested_ms + ms)
    }

    /// Whether most come within half a second of their marks.
    pub fn come_soon(&self) -> bool {
        self.all.since(&self.few.0[0].1).come_soon()
    }

    /// What they leave of a gap between hot and cold at a narrow scale; none if they are few.
    pub fn gap(&self, scale: usize) -> Option<f64> {
        let is_narrow = (u64::from(NARROWEST_MS) << scale) * NARROW <= NEWS_MS;
        let is_patchy = self.has_rested_within(self.now_ms, PATCHY_NEWS_MS);
        let since = match is_patchy && !is_narrow {
            true => &self.more,
            false => &self.few,
        };
        self.all.since(&since.0[0].1).gap(scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::FAULT_CLASSES;

    /// Of each second a scanner marks for a quarter and rests for three; all is touched at random,
    /// every 128 ms on average. The gaps by the latest hint faults, at all moments.
    fn gaps(rests: bool, scale: usize) -> Vec<f64> {
        let mut news = News::default();
        let mut came = [0.0; FAULT_CLASSES];
        let mut gaps = Vec::new();
        let is_marked = |ms: u64| !rests || ms % 1000 < 250;
        for now_ms in 1..20_000_u64 {
            for age_ms in 0..now_ms.min(1024) {
                if is_marked(now_ms - age_ms) {
                    let class = (0..FAULT_CLASSES - 1).find(|class| age_ms < 8 << class);
                    let class = class.unwrap_or(FAULT_CLASSES - 1);
                    came[class] += 10.0 * (-(age_ms as f64) / 128.0).exp();
                }
            }
            news.note_scanner(now_ms, !is_marked(now_ms));
            news.note(now_ms, FaultTimes(came.map(|count| count as u64)));
            gaps.extend((now_ms > 5000).then(|| news.gap(scale)).flatten());
        }
        gaps
    }

    /// By the faults of a quarter of a second alone it would be too narrow: of those that come
    /// late few have come.
    #[test]
    fn a_scanner_that_rests_leaves_no_narrower_gap_than_one_that_does_not() {
        for scale in 2..4 {
            let steady = gaps(false, scale)[0];
            let least = gaps(true, scale).into_iter().fold(f64::INFINITY, f64::min);
            assert!(
                least > 0.85 * steady,
                "{scale}: {least} instead of {steady}"
            );
        }
    }
}
