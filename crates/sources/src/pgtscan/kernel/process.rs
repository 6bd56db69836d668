//! What the scanner knows of one process, and which process is due first. Pure: no clock, no
//! kernel.
//!
//! A process that used no CPU time since its accessed bits were cleared, or since it was found to
//! have nothing in the lower tier, has nothing new to show: it rests. Of the others the one that
//! used most comes first: the budget is seldom enough for all of two hundred processes, and an
//! order by age or number spends it on those that sleep.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use pghot_engine::{Turn, Turns};

use crate::kernel::page_tables::clear::Method;
use crate::pgtscan::UNDER_WAY_MAX_ENTRIES;
use crate::pgtscan::adapt::{Adapt, Window, is_useful};

/// Looks at a process that has nothing worth a scan in the lower tier; doubled each time.
pub(super) const LOOK_MIN: Duration = Duration::from_millis(2000);
pub(super) const LOOK_MAX: Duration = Duration::from_millis(32_000);
/// When to look again whether there is room for one more.
const UNDER_WAY_PAUSE: Duration = Duration::from_millis(100);
/// When a scan that waits for a recording asks again.
const RECORDING_PAUSE: Duration = Duration::from_millis(100);
pub(super) const ADDRESS_END: u64 = u64::MAX;

/// What comes next for a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Look,
    Clear,
    Flush { cleared_at: Duration },
    Read { cleared_at: Duration },
}

/// A process that is large enough to be looked at.
#[derive(Clone)]
pub(super) struct Process {
    pub start_time: u64,
    /// CPU time used, in ticks of the kernel, by the last reading and when it was last seen.
    pub cpu_ticks: u64,
    seen_ticks: u64,
    /// It was due, and had used none since it was seen; until it uses some.
    is_resting: bool,
    pub step: Step,
    pub due: Duration,
    pub adapt: Adapt,
    pub method: Method,
    /// Clearing by [`Method::ClearRefs`] left nothing to flush with; the next time the other way.
    pub must_flush: bool,
    /// The piece that is being scanned.
    pub piece: Range<u64>,
    /// Where it has pages in the lower tier.
    pub lower: Vec<Range<u64>>,
    /// Present entries of the piece.
    pub entries: u64,
    /// Scans of this piece, in the series under way.
    pub scans: u32,
    /// Pages in the lower tier, of all pieces since the first.
    pub lower_pages: u64,
    /// Whether any of these pieces was worth a scan.
    pub is_useful: bool,
    pub look_again: Duration,
    pub last_read: Option<Duration>,
    /// From clearing to reading.
    pub turn: Option<Turn>,
}

impl Process {
    /// A process that may be looked at from `due` on. All CPU time that it ever used counts.
    pub fn new(start_time: u64, due: Duration) -> Process {
        Process {
            start_time,
            cpu_ticks: 0,
            seen_ticks: 0,
            is_resting: false,
            step: Step::Look,
            due,
            adapt: Adapt::new(),
            method: Method::ClearRefs,
            must_flush: false,
            piece: 0..ADDRESS_END,
            lower: Vec::new(),
            entries: 0,
            scans: 0,
            lower_pages: 0,
            is_useful: false,
            look_again: LOOK_MIN,
            last_read: None,
            turn: None,
        }
    }

    /// Notes the CPU time that the process has used by now.
    pub fn used(&mut self, cpu_ticks: u64) {
        self.cpu_ticks = cpu_ticks;
        self.is_resting &= cpu_ticks == self.seen_ticks;
    }

    /// From now on only CPU time used later counts.
    pub fn seen(&mut self) {
        self.seen_ticks = self.cpu_ticks;
    }

    /// Lets a process that is due rest if it has nothing new to show; returns whether it does.
    pub fn rests(&mut self) -> bool {
        self.is_resting = self.cpu_ticks == self.seen_ticks;
        self.is_resting
    }

    pub fn then(&mut self, step: Step, due: Duration) {
        (self.step, self.due) = (step, due);
    }

    /// Begins its turn to be cleared, if it has none; false while there is a recording, and then it
    /// is due again later.
    pub fn take_turn(&mut self, turns: &Turns, now: Duration) -> bool {
        self.turn = self.turn.take().or_else(|| turns.begin());
        if self.turn.is_none() {
            self.due = now + RECORDING_PAUSE;
        }
        self.turn.is_some()
    }

    /// Whether all of the process fits into one piece.
    pub fn is_whole(&self) -> bool {
        self.piece == (0..ADDRESS_END)
    }

    /// Whether the next step belongs to a series of scans that finds nothing if it is broken off.
    pub fn is_in_series(&self, now: Duration, window: Window) -> bool {
        match self.step {
            Step::Look => false,
            Step::Clear => {
                let is_past = |last| window.is_past(now.saturating_sub(last));
                self.scans < window.scans() && !self.last_read.is_none_or(is_past)
            }
            // What is cleared must be read in time.
            Step::Flush { .. } | Step::Read { .. } => true,
        }
    }

    /// Whether a scan that found so many pages in use, of so many in the lower tier, was worth it.
    pub fn note_use(&mut self, young_pages: u64, lower_pages: u64) {
        if self.is_whole() && self.method == Method::ClearRefs {
            // It saw all there is; the other method leaves out what is shared.
            self.is_useful = false;
        }
        self.is_useful |= is_useful(young_pages, lower_pages);
    }

    /// On to the next piece, or back to the first: the later, the longer nothing was worth a scan.
    pub fn advance(&mut self, now: Duration) {
        let was_last = self.piece.end == ADDRESS_END;
        self.piece = if was_last { 0 } else { self.piece.end }..ADDRESS_END;
        self.last_read = None;
        let due = if !was_last {
            now
        } else if self.is_useful {
            self.look_again = LOOK_MIN;
            now + self.adapt.period()
        } else {
            if self.lower_pages == 0 {
                self.seen();
            }
            self.look_again = (2 * self.look_again).min(LOOK_MAX);
            now + self.look_again
        };
        if was_last {
            (self.lower_pages, self.is_useful) = (0, false);
        }
        self.then(Step::Look, due);
    }
}

/// Which process is due first, and when; of several, one whose series has begun, then the one that
/// used most CPU time. `wait` is what the budget asks of new work.
pub(super) fn next_due(
    processes: &HashMap<i32, Process>,
    now: Duration,
    wait: Duration,
    window: Window,
) -> Option<(Duration, i32)> {
    let in_series = processes.values().filter(|p| p.is_in_series(now, window));
    let under_way: u64 = in_series.map(|p| p.entries).sum();
    let due = |(pid, process): (&i32, &Process)| {
        let is_in_series = process.is_in_series(now, window);
        let is_too_much = process.step == Step::Clear
            && under_way > 0
            && under_way + process.entries > UNDER_WAY_MAX_ENTRIES;
        let held = if is_in_series {
            Duration::ZERO
        } else if is_too_much {
            wait.max(UNDER_WAY_PAUSE)
        } else {
            wait
        };
        let unseen_ticks = process.cpu_ticks.saturating_sub(process.seen_ticks);
        let order = (!is_in_series, Reverse(unseen_ticks), process.due);
        (process.due.max(now + held), order, *pid)
    };
    let awake = processes.iter().filter(|(_, process)| !process.is_resting);
    let (due, _, pid) = awake.map(due).min()?;
    Some((due, pid))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window {
        freq_threshold: 2,
        freq_window_ms: 3000,
        unit_ms: 256,
    };
    const NOW: Duration = Duration::from_secs(10);

    fn process(step: Step, entries: u64, last_read: Option<Duration>) -> Process {
        let mut process = Process::new(1, NOW);
        process.step = step;
        process.entries = entries;
        process.last_read = last_read;
        process
    }

    fn next(processes: &[Process], wait: Duration) -> Option<(Duration, i32)> {
        let numbered = processes.iter().cloned().zip(1..);
        let processes = numbered.map(|(process, pid)| (pid, process)).collect();
        next_due(&processes, NOW, wait, WINDOW)
    }

    #[test]
    fn a_series_is_finished_whatever_the_budget_says() {
        let debt = Duration::from_secs(7);
        let new = process(Step::Clear, 10, None);
        let begun = process(Step::Clear, 10, Some(NOW - Duration::from_secs(1)));
        let stale = process(Step::Clear, 10, Some(NOW - Duration::from_secs(4)));
        let reading = process(Step::Read { cleared_at: NOW }, 10, None);
        assert_eq!(
            next(std::slice::from_ref(&new), debt),
            Some((NOW + debt, 1))
        );
        assert_eq!(next(&[stale], debt), Some((NOW + debt, 1)));
        assert_eq!(next(&[new.clone(), begun], debt), Some((NOW, 2)));
        assert_eq!(next(&[new, reading], debt), Some((NOW, 2)));
        assert_eq!(next(&[], debt), None);
    }

    #[test]
    fn who_used_most_comes_first_and_who_used_none_rests() {
        let used = |ticks: u64| {
            let mut process = process(Step::Look, 10, None);
            process.due = NOW - Duration::from_secs(1);
            process.used(ticks);
            process
        };
        let mut seen = used(700);
        seen.seen();
        let wait = Duration::from_secs(2);
        let all = [used(3), seen.clone(), used(9)];
        assert_eq!(next(&all, wait), Some((NOW + wait, 3)));
        assert_eq!(next(&all[..2], wait), Some((NOW + wait, 1)));

        assert!(seen.rests());
        assert_eq!(next(&[seen.clone()], wait), None);
        seen.used(700);
        assert_eq!(next(&[seen.clone()], wait), None, "as much as before");
        seen.used(701);
        assert_eq!(next(&[seen], wait), Some((NOW + wait, 1)));
    }

    /// A look reads no accessed bits: what it finds is scanned next, before who used less.
    #[test]
    fn only_a_look_that_found_nothing_at_all_is_the_end() {
        let mut looked = process(Step::Look, 10, None);
        looked.used(700);
        // The first of two pieces, without pages in the lower tier.
        looked.piece.end = 1 << 30;
        looked.advance(NOW);
        assert!(!looked.rests());
        looked.lower_pages = 5;
        looked.then(Step::Clear, NOW);
        let mut other = process(Step::Look, 10, None);
        other.used(3);
        assert!(!looked.rests());
        assert_eq!(
            next(&[other, looked.clone()], Duration::ZERO),
            Some((NOW, 2))
        );
        looked.lower_pages = 0;
        looked.advance(NOW);
        assert!(looked.rests());
    }

    /// Each scan clears the accessed bits of all its memory, for a few pages of libraries.
    #[test]
    fn a_process_with_little_in_use_below_is_looked_at_more_and_more_rarely() {
        let mut process = process(Step::Look, 10, None);
        let mut after_series = |is_useful| {
            (process.lower_pages, process.is_useful) = (1000, is_useful);
            process.advance(NOW);
            process.due - NOW
        };
        let rests = [(); 6].map(|()| after_series(false).as_secs());
        assert_eq!(rests, [4, 8, 16, 32, 32, 32]);
        assert_eq!(after_series(true), Adapt::new().period());
        assert_eq!(after_series(false), 2 * LOOK_MIN);
    }

    #[test]
    fn what_the_last_scan_saw_of_all_decides_whether_the_next_is_worth_it() {
        let mut process = process(Step::Look, 10, None);
        let mut after = |method, young_pages, lower_pages| {
            process.method = method;
            process.note_use(young_pages, lower_pages);
            process.is_useful
        };
        assert!(!after(Method::ClearRefs, 5, 1000));
        assert!(after(Method::ClearRefs, 256, 1000), "much of it is in use");
        assert!(!after(Method::ClearRefs, 5, 1000));
        assert!(
            after(Method::ClearRefs, 5, 4096),
            "more may come to be used"
        );
        assert!(after(Method::Cold, 0, 10), "shared memory was left out");
        assert!(!after(Method::ClearRefs, 0, 10));
    }

    #[test]
    fn a_series_comes_before_a_busier_process() {
        let mut busy = process(Step::Look, 10, None);
        busy.used(1000);
        let begun = process(Step::Clear, 10, Some(NOW - Duration::from_secs(1)));
        assert_eq!(next(&[busy, begun], Duration::ZERO), Some((NOW, 2)));
    }

    #[test]
    fn a_scan_waits_for_a_recording() {
        let turns = Turns::default();
        let (mut begun, mut later) = (
            process(Step::Clear, 10, None),
            process(Step::Clear, 10, None),
        );
        assert!(begun.take_turn(&turns, NOW));
        let recording = turns.ask();
        assert!(begun.take_turn(&turns, NOW), "it has begun");
        assert!(!later.take_turn(&turns, NOW) && later.due == NOW + RECORDING_PAUSE);
        assert!(!recording.has_begun());
        drop(begun);
        assert!(recording.has_begun());
        drop(recording);
        assert!(later.take_turn(&turns, NOW));
    }

    #[test]
    fn what_is_under_way_is_bounded() {
        let read = Step::Read {
            cleared_at: NOW + Duration::from_secs(1),
        };
        let mut large = process(read, UNDER_WAY_MAX_ENTRIES, None);
        large.due = NOW + Duration::from_secs(1);
        let small = process(Step::Clear, 10, None);
        let look = process(Step::Look, UNDER_WAY_MAX_ENTRIES, None);
        assert_eq!(
            next(std::slice::from_ref(&small), Duration::ZERO),
            Some((NOW, 1))
        );
        let later = NOW + UNDER_WAY_PAUSE;
        assert_eq!(
            next(&[large.clone(), small], Duration::ZERO),
            Some((later, 2))
        );
        assert_eq!(next(&[large, look], Duration::ZERO), Some((NOW, 2)));
        let huge = process(Step::Clear, 2 * UNDER_WAY_MAX_ENTRIES, None);
        assert_eq!(next(&[huge], Duration::ZERO), Some((NOW, 1)), "alone");
    }
}
