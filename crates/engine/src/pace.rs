//! When the next pass begins.

use crate::PassReport;

/// While many pages go up passes come so many times as often, at most.
const OFTENER: u64 = 10;

/// So many pages are worth a call: what a call costs whatever it moves is on a Zen 3 what ten pages
/// cost, and it grows with the CPUs whose lists the kernel drains.
const WORTH_A_CALL_PAGES: u64 = 64;

/// Then a pass is followed by a rest of so many times its own time, at least: it takes a CPU's
/// time, and each of its calls drains the lists of all CPUs. Where there is room it is shorter:
/// once that is used up it ends, and the sooner it is the better.
const REST: u64 = 4;
const FILLING_REST: u64 = 1;

/// A migrator is idle if it has seen no ready page for so many intervals, or none that there was
/// room for.
const IDLE_INTERVALS: u64 = 10;

/// Then its passes begin so many intervals apart: each wakes a CPU to find nothing, and that was
/// most of what an idle daemon took.
const IDLE_RARER: u64 = 4;

/// When the passes of one migrator begin.
#[derive(Debug, Clone, Default)]
pub struct Pace {
    /// Pages that went up in the last interval, each by how long ago: after half of it a half.
    recent_pages: u64,
    /// The end of the last pass.
    ended_ms: Option<u64>,
    /// When pages last were ready that could go, or the first pass began.
    ready_ms: Option<u64>,
}

impl Pace {
    /// The start of the next pass, in ms.
    ///
    /// Passes begin `sleep_ms` apart, so that a page waits one interval at most before a pass sees
    /// it. While pages go up they begin sooner, as soon as there should be a call's worth of them:
    /// what is in use now may not be for long. Of an idle migrator they begin four intervals apart,
    /// so the first page that becomes ready waits four at most. A pass that took longer is followed
    /// by a rest of a quarter interval: a migrator that is never done must not take a whole CPU.
    pub fn next_ms(&mut self, last: &PassReport, sleep_ms: u64) -> u64 {
        let (started_ms, ended_ms) = (last.started_ms, last.ended_ms);
        let since_ms = ended_ms.saturating_sub(self.ended_ms.unwrap_or(ended_ms));
        self.ended_ms = Some(ended_ms);
        let left_ms = sleep_ms.saturating_sub(since_ms);
        self.recent_pages = self.recent_pages * left_ms / sleep_ms.max(1) + last.moved_pages;
        let is_stuck = last.wants_room() && last.moved_pages == 0;
        if (last.ready > 0 && !is_stuck) || self.ready_ms.is_none() {
            self.ready_ms = Some(started_ms);
        }
        let is_idle = (self.ready_ms)
            .is_some_and(|ready| ready.saturating_add(IDLE_INTERVALS * sleep_ms) <= started_ms);
        let own_ms = ended_ms - started_ms.min(ended_ms);
        let gather_ms = sleep_ms * WORTH_A_CALL_PAGES / self.recent_pages.max(1);
        let times = if last.wants_room() {
            REST
        } else {
            FILLING_REST
        };
        let rest_ms = (sleep_ms / OFTENER).max(times * own_ms).max(gather_ms);
        let intervals = if is_idle { IDLE_RARER } else { 1 };
        let due_ms = started_ms.saturating_add(intervals * sleep_ms);
        if ended_ms + rest_ms < due_ms {
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
    use crate::Held;

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
        for started in (2500..3500).step_by(100) {
            let full = PassReport {
                ready: 1,
                held: [(Held::NoRoom, 1)].into(),
                ..pass(started, started, 0)
            };
            let next_ms = pace.next_ms(&full, 100);
            let is_idle = started == 3400;
            assert_eq!(
                next_ms,
                started + if is_idle { 400 } else { 100 },
                "no room"
            );
        }
        assert_eq!(pace.next_ms(&pass(3400, 3400, 0), 100), 3800);
    }

    #[test]
    fn passes_wait_until_a_call_is_worth_its_cost() {
        let mut pace = Pace::default();
        assert_eq!(pace.next_ms(&pass(1000, 1000, 5), 100), 1100, "few");
        // A hundred pages in an interval are 64 in 64 % of it.
        assert_eq!(pace.next_ms(&pass(1100, 1100, 100), 100), 1164);
        assert_eq!(pace.next_ms(&pass(1164, 1164, 64), 100), 1228);
        assert_eq!(pace.next_ms(&pass(1228, 1228, 0), 100), 1328, "36 of 100");
    }

    #[test]
    fn while_pages_go_up_passes_come_sooner() {
        let mut pace = Pace::default();
        assert_eq!(pace.next_ms(&pass(1000, 1000, 0), 100), 1100);
        assert_eq!(pace.next_ms(&pass(1100, 1101, 999), 100), 1111);
        let exchanges = PassReport {
            held: [(Held::NoRoom, 1)].into(),
            ..pass(1111, 1116, 999)
        };
        assert_eq!(
            pace.clone().next_ms(&exchanges, 100),
            1136,
            "its work is expensive"
        );
        assert_eq!(
            pace.clone().next_ms(&pass(1111, 1131, 999), 100),
            1151,
            "there is room"
        );
        assert_eq!(pace.next_ms(&pass(1111, 1116, 999), 100), 1126);
        assert_eq!(pace.next_ms(&pass(1136, 1186, 999), 100), 1236);
        assert_eq!(pace.next_ms(&pass(1236, 1336, 999), 100), 1336);
        assert_eq!(pace.next_ms(&pass(1336, 1437, 999), 100), 1462);
        assert_eq!(pace.next_ms(&pass(1462, 1462, 0), 100), 1472);
        assert_eq!(
            pace.next_ms(&pass(1562, 1562, 0), 100),
            1662,
            "none went for an interval"
        );
    }
}
