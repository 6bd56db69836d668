//! The gates of one target node: backoff, rate limit and room.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pghot_hotness::Nid;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Settings;

/// Why a ready page waits. It stays ready and is looked at again in the next pass.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Held {
    /// The target node is not an online top-tier node.
    TargetAbsent,
    /// The target node had no memory a moment ago.
    Backoff,
    /// The rate limit is used up.
    RateLimit,
    /// The target node is at its high watermark.
    NoRoom,
    /// The kernel refused this page a moment ago.
    RetryLater,
    /// It was promoted a moment ago, and has come back.
    CameBack,
    /// The daemon is ending.
    Stopping,
}

impl Held {
    /// All reasons, in the order of reports.
    pub const ALL: [Held; 7] = [
        Held::TargetAbsent,
        Held::Backoff,
        Held::RateLimit,
        Held::NoRoom,
        Held::RetryLater,
        Held::CameBack,
        Held::Stopping,
    ];

    /// The name used in counters, as in reports.
    pub fn name(self) -> &'static str {
        match self {
            Held::TargetAbsent => "target_absent",
            Held::Backoff => "backoff",
            Held::RateLimit => "rate_limit",
            Held::NoRoom => "no_room",
            Held::RetryLater => "retry_later",
            Held::CameBack => "came_back",
            Held::Stopping => "stopping",
        }
    }

    /// Why, as a sentence for an operator.
    pub fn sentence(self) -> &'static str {
        match self {
            Held::TargetAbsent => "its target node is offline or not in the top tier",
            Held::Backoff => "the target node ran out of memory and pghot backs off for a while",
            Held::RateLimit => "promote_rate_limit_MBps is used up for now",
            Held::NoRoom => "the target node has no free memory above its high watermark",
            Held::RetryLater => "the kernel refused it a moment ago and it is tried again soon",
            Held::CameBack => {
                "it was promoted and went down again, and waits twice as long each time"
            }
            Held::Stopping => "pghot is ending",
        }
    }

    /// The sentence with the name, by which metrics and documents have it.
    pub fn named(self) -> String {
        format!("{} ({})", self.sentence(), self.name())
    }
}

/// First pause after the target ran out of memory, and the longest, in ms. Each failed call costs
/// the kernel a direct reclaim of about 1 ms a page, and kswapd needs a while to make room.
const BACKOFF_MS: (u64, u64) = (500, 32_000);

/// Pages of 4 KiB in a MB of the rate limit (the kernel's `rate_limit << (20 - PAGE_SHIFT)`).
const PAGES_PER_MB: u64 = 256;

/// The state of one target node's gates.
///
/// The rate limit is a token bucket in base pages. It holds what two pass intervals earn, so that
/// a late pass loses nothing and no burst is longer; a folio larger than what is left may take the
/// bucket below zero, or a small limit could never pass a huge page. What the kernel then refuses
/// is paid back: a rejected page does not eat the budget.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    /// Pages that may pass now, in 1/1000 page so that short intervals earn exactly.
    tokens_milli: i64,
    refilled_ms: Option<u64>,
    backoff_until_ms: u64,
    backoff_ms: u64,
}

impl Gate {
    /// Earns tokens for the time since the last refill. The first refill fills the bucket.
    pub fn refill(&mut self, now_ms: u64, rate_limit_mbps: u64, interval_ms: u64) {
        // 1 page/s earns 1/1000 page per ms.
        let per_ms = (rate_limit_mbps * PAGES_PER_MB).min(i64::MAX as u64 >> 24) as i64;
        let full = per_ms * 2 * interval_ms as i64;
        let elapsed = self
            .refilled_ms
            .map_or(2 * interval_ms, |last| now_ms.saturating_sub(last));
        let earned = per_ms.saturating_mul(elapsed.min(2 * interval_ms) as i64);
        self.tokens_milli = self.tokens_milli.saturating_add(earned).min(full);
        self.refilled_ms = Some(now_ms);
    }

    fn refill_by(&mut self, now_ms: u64, settings: &Settings) {
        let interval_ms = settings.kmigrated_sleep_ms.into();
        self.refill(now_ms, settings.promote_rate_limit_mbps, interval_ms);
    }

    /// Base pages that the rate limit lets through now.
    pub fn tokens_pages(&self) -> u64 {
        (self.tokens_milli.max(0) as u64).div_ceil(1000)
    }

    /// Why nothing passes now, if nothing does.
    pub fn closed(&self, now_ms: u64) -> Option<Held> {
        if self.is_backing_off(now_ms) {
            Some(Held::Backoff)
        } else if self.tokens_milli <= 0 {
            Some(Held::RateLimit)
        } else {
            None
        }
    }

    /// The target ran out of memory a moment ago.
    pub fn is_backing_off(&self, now_ms: u64) -> bool {
        now_ms < self.backoff_until_ms
    }

    /// Asks to pass a folio; takes its tokens if it may.
    pub fn admit(&mut self, pages: u32, now_ms: u64) -> Result<(), Held> {
        if let Some(held) = self.closed(now_ms) {
            return Err(held);
        }
        self.tokens_milli -= pages as i64 * 1000;
        Ok(())
    }

    /// Gives back the tokens of a folio that did not move.
    pub fn refund(&mut self, pages: u32) {
        self.tokens_milli += pages as i64 * 1000;
    }

    /// The target ran out of memory: pause, twice as long each time in a row.
    pub fn back_off(&mut self, now_ms: u64) {
        self.backoff_ms = (self.backoff_ms * 2).clamp(BACKOFF_MS.0, BACKOFF_MS.1);
        self.backoff_until_ms = now_ms + self.backoff_ms;
    }

    /// Pages moved without a lack of memory: the next pause is short again.
    pub fn relax(&mut self) {
        self.backoff_ms = 0;
    }
}

/// The gates of all targets. Clones are the same gates: a limit is the target's, whoever promotes
/// to it.
#[derive(Debug, Clone, Default)]
pub struct Gates(Arc<Mutex<BTreeMap<Nid, Gate>>>);

impl Gates {
    /// Refills all of them, that of `target` included; returns how many pages may pass together, to
    /// one target more than was met so far.
    pub fn refill(&self, target: Option<Nid>, now_ms: u64, settings: &Settings) -> u64 {
        let mut gates = self.lock();
        if let Some(target) = target {
            gates.entry(target).or_default();
        }
        let mut unmet = Gate::default();
        let all = gates.values_mut().chain([&mut unmet]);
        all.map(|gate| {
            gate.refill_by(now_ms, settings);
            gate.tokens_pages()
        })
        .sum()
    }

    /// Asks or tells the gate of a target, which is refilled when it is first met.
    pub fn with<T>(
        &self,
        target: Nid,
        now_ms: u64,
        settings: &Settings,
        act: impl FnOnce(&mut Gate) -> T,
    ) -> T {
        let mut gates = self.lock();
        let gate = gates.entry(target).or_insert_with(|| {
            let mut gate = Gate::default();
            gate.refill_by(now_ms, settings);
            gate
        });
        act(gate)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Nid, Gate>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use pghot_hotness::Format;

    use super::*;

    #[test]
    fn the_bucket_earns_the_rate_and_bounds_bursts() {
        let mut gate = Gate::default();
        let mut passed = 0u64;
        // 10 MB/s is 2560 pages/s; ask for far more during 10 s, with passes of uneven length.
        let mut now = 0;
        for step in [100u64, 100, 700, 100, 250].iter().cycle().take(40) {
            gate.refill(now, 10, 100);
            while gate.admit(1, now).is_ok() {
                passed += 1;
            }
            now += step;
        }
        let burst = 2 * 256;
        assert!(passed <= now * 2560 / 1000 + burst, "{passed} in {now} ms");
        assert!(
            passed >= 40 * 256,
            "{passed}: every pass earns at least its own interval"
        );
    }

    #[test]
    fn a_huge_page_passes_a_small_limit_and_is_paid_off() {
        let mut gate = Gate::default();
        gate.refill(0, 1, 100); // 51.2 pages
        assert_eq!(gate.admit(512, 0), Ok(()));
        let mut now = 0;
        while gate.admit(512, now) == Err(Held::RateLimit) {
            now += 100;
            gate.refill(now, 1, 100);
        }
        // 460.8 pages of debt at 25.6 pages per pass.
        assert_eq!(now, 1900);
    }

    #[test]
    fn a_limit_is_the_targets_whoever_asks() {
        let mut settings = Settings::new(Format::Default);
        settings.promote_rate_limit_mbps = 1;
        let (one, other) = (Gates::default(), Gates::default());
        let same = one.clone();
        let passed = |gates: &[&Gates], target| {
            let admit =
                |gates: &&&Gates| gates.with(target, 0, &settings, |gate| gate.admit(1, 0).is_ok());
            gates.iter().cycle().take(1000).filter(admit).count()
        };
        // What a target's bucket holds: two intervals.
        assert_eq!(passed(&[&one, &same], 0), 52);
        assert_eq!(passed(&[&one], 1), 52, "another target");
        assert_eq!(passed(&[&other], 0), 52, "another machine");
        assert_eq!(one.refill(Some(0), 100, &settings), 25 + 25 + 52);
    }

    #[test]
    fn a_refund_restores_the_budget() {
        let mut gate = Gate::default();
        gate.refill(0, 1, 100);
        let before = gate.tokens_pages();
        gate.admit(7, 0).unwrap();
        gate.refund(7);
        assert_eq!(gate.tokens_pages(), before);
    }

    #[test]
    fn a_zero_limit_lets_nothing_pass() {
        let mut gate = Gate::default();
        gate.refill(0, 0, 100);
        assert_eq!(gate.admit(1, 0), Err(Held::RateLimit));
    }

    #[test]
    fn a_huge_limit_does_not_overflow() {
        let mut gate = Gate::default();
        gate.refill(0, u64::MAX / 256, 1000);
        gate.refill(u64::MAX / 2, u64::MAX / 256, 1000);
        assert_eq!(gate.admit(512, u64::MAX / 2), Ok(()));
    }

    #[test]
    fn backoff_doubles_until_something_moves() {
        let mut gate = Gate::default();
        gate.refill(0, 1000, 100);
        gate.back_off(0);
        assert_eq!(gate.admit(1, 499), Err(Held::Backoff));
        assert_eq!(gate.admit(1, 500), Ok(()));
        gate.back_off(500);
        assert_eq!(gate.admit(1, 1499), Err(Held::Backoff));
        assert_eq!(gate.admit(1, 1500), Ok(()));
        gate.relax();
        gate.back_off(2000);
        assert_eq!(gate.admit(1, 2500), Ok(()));
        for _ in 0..20 {
            gate.back_off(0);
        }
        assert_eq!(gate.admit(1, 32_000), Ok(()));
    }
}
