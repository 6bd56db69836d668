//! When the next pass begins.

use crate::PassReport;

/// While pages go up passes come so many times as often.
const OFTENER: u64 = 10;

/// Then a pass is followed by a rest of so many times its own time, at least: it takes a CPU's
/// time, and each of its calls drains the lists of all CPUs.
const REST: u64 = 4;

/// A migrator is idle if it has seen no ready page for so many intervals.
const IDLE_INTERVALS: u64 = 10;

/// Then its passes begin so many intervals apart: each wakes a CPU to find nothing, and that was
/// most of what an idle daemon took.
const IDLE_RARER: u64 = 4;

/// When the passes of one migrator begin.
#[derive(Debug, Clone, Default)]
pub struct Pace {
    /// When pages last went up.
    moved_ms: Option<u64>,
    /// When pages last were ready, or the first pass began.
    ready_ms: Option<u64>,
}

impl Pace {
    /// The start of the next pass, in ms.
    ///
    /// Passes begin `sleep_ms` apart, so that a page waits one interval at most before a pass sees
    /// it. While pages go up, and for an interval after, they begin sooner: what is in use now may
    /// not be for long. Of an idle migrator they begin four intervals apart, so the first page that
    /// becomes ready waits four at most. A pass that took longer is followed by a rest of
    /// a quarter interval: a migrator that is never done must not take a whole CPU.
    pub fn next_ms(&mut self, last: &PassReport, sleep_ms: u64) -> u64 {
        let (started_ms, ended_ms) = (last.started_ms, last.ended_ms);
        if last.moved_pages > 0 {
            self.moved_ms = Some(ended_ms);
        }
        if last.ready > 0 || self.ready_ms.is_none() {
            self.ready_ms = Some(started_ms);
        }
        let is_idle = (self.ready_ms)
            .is_some_and(|ready| ready.saturating_add(IDLE_INTERVALS * sleep_ms) <= started_ms);
        let is_busy =
            (self.moved_ms).is_some_and(|moved| ended_ms < moved.saturating_add(sleep_ms));
        let rest_ms = (sleep_ms / OFTENER).max(REST * (ended_ms - started_ms.min(ended_ms)));
        let intervals = if is_idle { IDLE_RARER } else { 1 };
        let due_ms = started_ms.saturating_add(intervals * sleep_ms);
        if is_busy && ended_ms + rest_ms < due_ms {
            ended_ms + rest_ms
        } else if ended_ms <= due_ms {
            due_ms
        } else {
            ended_ms + sleep_ms / 4
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(started_ms: u64, ended_ms: u64, moved_pages: u64) -> PassReport {
        PassReport {
            started_ms,
            ended_ms,
            moved_pages,
            ..PassReport::default()
        }
    }

    #[test]
    fn passes_keep_the_interval_and_always_rest() {
        let next = |started, ended| Pace::default().next_ms(&pass(started, ended, 0), 100);
        assert_eq!(next(1000, 1001), 1100);
        assert_eq!(next(1000, 1070), 1100);
        assert_eq!(next(1000, 1100), 1100);
        assert_eq!(next(1000, 1101), 1126);
        assert_eq!(next(1000, 5000), 5025);
    }

    #[test]
    fn where_no_page_is_ready_passes_become_rare() {
        let mut pace = Pace::default();
        for started in (1000..2000).step_by(100) {
            assert_eq!(pace.next_ms(&pass(started, started, 0), 100), started + 100);
        }
        assert_eq!(pace.next_ms(&pass(2000, 2000, 0), 100), 2400);
        let waits = PassReport {
            ready: 1,
            ..pass(2400, 2400, 0)
        };
        assert_eq!(pace.next_ms(&waits, 100), 2500, "though it did not go");
        assert_eq!(pace.next_ms(&pass(3400, 3400, 0), 100), 3800);
    }

    #[test]
    fn while_pages_go_up_passes_come_sooner() {
        let mut pace = Pace::default();
        assert_eq!(pace.next_ms(&pass(1000, 1000, 0), 100), 1100);
        assert_eq!(pace.next_ms(&pass(1100, 1101, 5), 100), 1111);
        assert_eq!(
            pace.next_ms(&pass(1111, 1116, 5), 100),
            1136,
            "its work is expensive"
        );
        assert_eq!(pace.next_ms(&pass(1136, 1186, 5), 100), 1236);
        assert_eq!(pace.next_ms(&pass(1236, 1336, 5), 100), 1336);
        assert_eq!(pace.next_ms(&pass(1336, 1437, 5), 100), 1462);
        assert_eq!(pace.next_ms(&pass(1462, 1462, 0), 100), 1472);
        assert_eq!(
            pace.next_ms(&pass(1537, 1537, 0), 100),
            1637,
            "none went for an interval"
        );
    }
}
