//! A share of one CPU for the thread of a source that scans. Pure: times come in as arguments.
//!
//! Work that began is finished whatever it costs, because half a series of scans finds nothing; the
//! debt is paid before anything new begins. So a slow machine is scanned less often, not in vain.

use std::time::Duration;

/// Percent of one CPU, for a source that has no other share. At 5 to 10 ns an entry to read and 50
/// to 100 ns to clear, that covers about 2 GiB of base pages a second, twice what promotion may
/// move by default. No more, because clearing disturbs the programs too, and this bounds it.
pub(crate) const PERCENT: u32 = 5;

/// What can be saved up, so that a long scan after a rest does not wait: the share of so much time.
const SAVED_MAX: Duration = Duration::from_secs(10);

/// What was earned and not spent.
#[derive(Debug)]
pub(crate) struct Budget {
    percent: u32,
    /// Negative after a long piece of work.
    left_ns: i64,
    earned_until: Duration,
}

/// So many percent of a CPU for so long, in ns.
fn share_ns(time: Duration, percent: u32) -> i64 {
    (time * percent / 100).as_nanos() as i64
}

impl Budget {
    /// Full, at time `now`.
    pub fn new(now: Duration, percent: u32) -> Budget {
        Budget {
            percent,
            left_ns: share_ns(SAVED_MAX, percent),
            earned_until: now,
        }
    }

    /// Time has gone by; from now on this is the share.
    pub fn earn(&mut self, now: Duration, percent: u32) {
        let earned_ns = share_ns(now.saturating_sub(self.earned_until), self.percent);
        (self.earned_until, self.percent) = (now, percent);
        self.left_ns = (self.left_ns + earned_ns).min(share_ns(SAVED_MAX, percent));
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
        self.time_for(Duration::from_nanos(self.left_ns.min(0).unsigned_abs()))
    }

    /// How long it takes to earn so much CPU time.
    pub fn time_for(&self, cpu: Duration) -> Duration {
        cpu * 100 / self.percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CPU time taken, and time gone by, by one who always has work.
    fn busy(percent: u32) -> (Duration, Duration) {
        let (mut now, mut cpu) = (Duration::ZERO, Duration::ZERO);
        let mut budget = Budget::new(now, percent);
        let work = Duration::from_millis(7);
        for _ in 0..1000 {
            budget.spend(work);
            cpu += work;
            now += work;
            budget.earn(now, percent);
            now += budget.wait();
            budget.earn(now, percent);
        }
        (cpu, now)
    }

    #[test]
    fn cpu_time_is_earned_in_the_share_of_the_time() {
        let budget = Budget::new(Duration::ZERO, 5);
        let cpu = Duration::from_millis(150);
        assert_eq!(budget.time_for(cpu), Duration::from_secs(3));
    }

    #[test]
    fn the_share_of_a_cpu_is_bounded_and_used() {
        for percent in [1, PERCENT, 50, 100] {
            let (cpu, now) = busy(percent);
            assert!(cpu <= (now + SAVED_MAX) * percent / 100 + Duration::from_millis(7));
            assert!(cpu >= now * percent / 100 / 2);
        }
    }

    #[test]
    fn a_rest_is_saved_up_to_a_bound() {
        let mut budget = Budget::new(Duration::ZERO, 5);
        budget.earn(Duration::from_secs(3600), 5);
        budget.spend(Duration::from_millis(500));
        assert!(budget.is_spent());
        budget.spend(Duration::from_millis(10));
        assert_eq!(budget.wait(), Duration::from_millis(200));
    }

    #[test]
    fn another_share_holds_from_now_on() {
        let mut budget = Budget::new(Duration::ZERO, 50);
        budget.earn(Duration::ZERO, 5);
        budget.spend(Duration::from_millis(500));
        assert!(budget.is_spent(), "what was saved up is cut");
        budget.earn(Duration::from_secs(1), 50);
        assert!(!budget.is_spent());
        budget.spend(Duration::from_millis(60));
        assert_eq!(budget.wait(), Duration::from_millis(20));
    }
}
