//! A share of one CPU for the thread of a source that scans. Pure: times come in as arguments.
//!
//! Work that began is finished whatever it costs, because half a series of scans finds nothing; the
//! debt is paid before anything new begins. So a slow machine is scanned less often, not in vain.

use std::time::Duration;

/// One part in 20. At 5 to 10 ns an entry to read and 50 to 100 ns to clear, that covers about 2
/// GiB of base pages a second, twice what promotion may move by default. No more, because clearing
/// disturbs the programs too, and this bounds it.
pub(crate) const PART: u32 = 20;

/// CPU time that can be saved up, so that a long scan after a rest does not wait: 10 s of it.
pub(crate) const SAVED_MAX: Duration = Duration::from_millis(500);

/// What was earned and not spent.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Negative after a long piece of work.
    left_ns: i64,
    earned_until: Duration,
}

impl Budget {
    /// Full, at time `now`.
    pub fn new(now: Duration) -> Budget {
        Budget {
            left_ns: SAVED_MAX.as_nanos() as i64,
            earned_until: now,
        }
    }

    /// Time has gone by.
    pub fn earn(&mut self, now: Duration) {
        let earned = now.saturating_sub(self.earned_until) / PART;
        self.earned_until = now;
        self.left_ns = (self.left_ns + earned.as_nanos() as i64).min(SAVED_MAX.as_nanos() as i64);
    }

    /// CPU time was used.
    pub fn spend(&mut self, cpu: Duration) {
        self.left_ns = self.left_ns.saturating_sub(cpu.as_nanos() as i64);
    }

    /// Whether something new must wait.
    pub fn is_spent(&self) -> bool {
        self.left_ns <= 0
    }

    /// From the last [`Budget::earn`] until something new may begin.
    pub fn wait(&self) -> Duration {
        Duration::from_nanos(self.left_ns.min(0).unsigned_abs()) * PART
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_a_cpu_is_bounded_and_used() {
        let (mut now, mut cpu) = (Duration::ZERO, Duration::ZERO);
        let mut budget = Budget::new(now);
        let work = Duration::from_millis(7);
        for _ in 0..1000 {
            budget.spend(work);
            cpu += work;
            now += work;
            budget.earn(now);
            now += budget.wait();
            budget.earn(now);
        }
        assert!(cpu <= now / PART + SAVED_MAX + work);
        assert!(cpu >= now / PART / 2);
    }

    #[test]
    fn a_rest_is_saved_up_to_a_bound() {
        let mut budget = Budget::new(Duration::ZERO);
        budget.earn(Duration::from_secs(3600));
        budget.spend(SAVED_MAX);
        assert!(budget.is_spent());
        budget.spend(Duration::from_millis(10));
        assert_eq!(budget.wait(), Duration::from_millis(200));
    }
}
