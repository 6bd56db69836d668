//! The sampling period follows what sampling costs: it doubles when that exceeds the budget, and
//! halves when it falls far below.

use std::time::Duration;

/// Share of one CPU that the thread which reads the samples may take. The interrupts that write
/// them cost the sampled CPUs a few times as much, together.
const BUDGET: f64 = 0.01;

/// Below this share of the budget a shorter period is affordable; less than a half, or the period
/// would swing.
const THRIFTY: f64 = 0.4;

/// The periods that make sense for an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// At first.
    pub start: u64,
    /// Shorter ones could cost too much before the next look.
    pub min: u64,
    /// Longer ones would see nothing.
    pub max: u64,
    /// The period is a multiple of this.
    pub step: u64,
}

impl Limits {
    /// The period that should follow `period`, under which the thread was busy for `busy` of
    /// `elapsed` and `lost` samples did not fit into a ring.
    pub fn next(&self, period: u64, busy: Duration, elapsed: Duration, lost: u64) -> u64 {
        let share = busy.as_secs_f64() / elapsed.as_secs_f64().max(1e-9);
        let next = if share > 4.0 * BUDGET {
            period.saturating_mul(8)
        } else if share > BUDGET || lost > 0 {
            period.saturating_mul(2)
        } else if share < THRIFTY * BUDGET {
            period / 2
        } else {
            period
        };
        next.clamp(self.min, self.max) / self.step * self.step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        start: 1 << 18,
        min: 1 << 16,
        max: 1 << 30,
        step: 16,
    };
    const SECOND: Duration = Duration::from_secs(1);

    fn next(period: u64, busy_ms: u64, lost: u64) -> u64 {
        LIMITS.next(period, Duration::from_millis(busy_ms), SECOND, lost)
    }

    #[test]
    fn it_grows_above_the_budget_and_fast_far_above() {
        assert_eq!(next(1 << 20, 11, 0), 1 << 21);
        assert_eq!(next(1 << 20, 50, 0), 1 << 23);
        assert_eq!(next(1 << 20, 0, 1), 1 << 21, "what is lost has cost, too");
    }

    #[test]
    fn it_shrinks_far_below_the_budget_and_rests_between() {
        assert_eq!(next(1 << 20, 3, 0), 1 << 19);
        for busy_ms in 4..=10 {
            assert_eq!(next(1 << 20, busy_ms, 0), 1 << 20);
        }
    }

    #[test]
    fn it_stays_within_its_limits_and_on_its_steps() {
        assert_eq!(next(LIMITS.min, 0, 0), LIMITS.min);
        assert_eq!(next(LIMITS.max, 900, 9), LIMITS.max);
        assert_eq!(next(u64::MAX, 900, 9), LIMITS.max);
        assert_eq!(next((1 << 20) + 16, 0, 0) % 16, 0);
        assert_eq!(LIMITS.next(1 << 20, SECOND, Duration::ZERO, 0), 1 << 23);
    }

    /// Samples cost in inverse proportion to the period: it settles, whatever the load.
    #[test]
    fn it_settles() {
        for load_ms in [0.0, 1.0, 7.3, 60.0, 4000.0] {
            let busy = |period: u64| {
                let ms: f64 = load_ms * LIMITS.start as f64 / period as f64;
                Duration::from_secs_f64(ms / 1000.0)
            };
            let mut period = LIMITS.start;
            for _ in 0..30 {
                period = LIMITS.next(period, busy(period), SECOND, 0);
            }
            assert_eq!(
                LIMITS.next(period, busy(period), SECOND, 0),
                period,
                "{load_ms}"
            );
        }
    }
}
