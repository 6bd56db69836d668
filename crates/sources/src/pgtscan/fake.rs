//! The source on a modelled machine: clear, wait, read, piece by piece, at the pace of [`Adapt`].

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use pghot_hotness::Table;

use super::adapt::{Adapt, Window};
use super::{DESCRIPTOR, SCAN_CPU_MAX_PERCENT, UNDER_WAY_MAX_ENTRIES};
use crate::budget::Budget;
use crate::bulk::BulkReporter;
use crate::fake::{AccessedBits, BitOwner, Fake, report_young};
use crate::{Config, Descriptor, SourceStats};

const PAGE_BYTES: u64 = 4096;
/// How often it looks for processes that are due.
const STEP: Duration = Duration::from_millis(20);

/// The entry of the source's [`DESCRIPTOR`].
pub(super) fn fake(table: &Arc<Table>, config: &Config) -> Box<dyn Fake> {
    Box::new(Scanner {
        reporter: BulkReporter::new(table, &config.rule),
        config: config.clone(),
        processes: BTreeMap::new(),
        budget: None,
        busy_until: Duration::ZERO,
    })
}

struct Scanner {
    reporter: Arc<BulkReporter>,
    config: Config,
    processes: BTreeMap<BitOwner, Process>,
    /// Made at the first step, which tells the time.
    budget: Option<Budget>,
    /// Until when the source's only thread is at work on what it began.
    busy_until: Duration,
}

struct Process {
    adapt: Adapt,
    /// Where the piece begins that is being scanned.
    first: u64,
    cleared_at: Option<Duration>,
    last_read: Option<Duration>,
    scans: u32,
    due: Duration,
}

impl Process {
    fn new(now: Duration) -> Process {
        Process {
            adapt: Adapt::new(),
            first: 0,
            cleared_at: None,
            last_read: None,
            scans: 0,
            due: now,
        }
    }

    fn is_under_way(&self) -> bool {
        self.scans > 0 || self.cleared_at.is_some()
    }

    fn piece(&self, pages: u64) -> Range<u64> {
        let first = if self.first < pages { self.first } else { 0 };
        first..pages.min(first + self.adapt.size_bytes() / PAGE_BYTES)
    }

    /// After a scan: the same piece again while that pays, else the next.
    fn go_on(&mut self, piece: &Range<u64>, pages: u64, ready: u64, window: Window, now: Duration) {
        let cleared_at = self.cleared_at.take().unwrap_or(now);
        self.last_read = Some(now);
        self.scans += 1;
        let is_whole = *piece == (0..pages);
        if is_whole || window.stays(self.scans, ready) {
            self.due = now.max(cleared_at + self.adapt.period());
            return;
        }
        let is_last = piece.end == pages;
        (self.first, self.last_read, self.scans) = (piece.end, None, 0);
        self.due = match is_last {
            true => now + self.adapt.period(),
            false => now,
        };
    }
}

impl Fake for Scanner {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn configure(&mut self, config: &Config) {
        self.reporter.set_rule(&config.rule);
        self.config = config.clone();
    }

    fn step(&mut self, bits: &mut dyn AccessedBits, now: Duration) -> Option<Duration> {
        if now < self.busy_until {
            return Some(self.busy_until - now);
        }
        let began = bits.spent();
        let percent = self.config.get(&SCAN_CPU_MAX_PERCENT) as u32;
        let budget = self.budget.take();
        let mut budget = budget.unwrap_or_else(|| Budget::new(now, percent));
        budget.earn(now, percent);
        let window = Window::of(&self.config.rule);
        let leave_hinted = self.config.leave_hinted;
        let mut owners = bits.owners();
        owners.retain(|(owner, _)| matches!(owner, BitOwner::Process(_)));
        let present: BTreeMap<BitOwner, u64> = owners.into_iter().collect();
        self.processes
            .retain(|owner, _| present.contains_key(owner));
        for &owner in present.keys() {
            let process = self.processes.entry(owner);
            process.or_insert_with(|| Process::new(now));
        }
        let entries = |owner: &BitOwner, process: &Process| {
            let piece = process.piece(present[owner]);
            piece.end - piece.start
        };
        let series = self.processes.iter().filter(|(_, p)| p.is_under_way());
        let mut under_way: u64 = series.map(|(owner, process)| entries(owner, process)).sum();
        let mut due: Vec<_> = self.processes.iter_mut().collect();
        due.retain(|(_, process)| process.due <= now);
        due.sort_by_key(|(_, process)| (!process.is_under_way(), process.due));
        for (&owner, process) in due {
            if bits.spent() - began >= STEP {
                break;
            }
            let pages = present[&owner];
            // A series that began is finished whatever it costs.
            if !process.is_under_way() {
                let more = entries(&owner, process);
                if budget.is_spent() {
                    process.due = now + budget.wait();
                    continue;
                }
                if under_way > 0 && under_way + more > UNDER_WAY_MAX_ENTRIES {
                    continue;
                }
                under_way += more;
            }
            let piece = process.piece(pages);
            let spent = bits.spent();
            if process.cleared_at.is_none() {
                bits.clear(owner, piece);
                budget.spend(bits.spent() - spent);
                process.cleared_at = Some(now);
                process.due = now + process.adapt.observe();
                continue;
            }
            let of = (owner, piece.clone());
            let seen = report_young(&self.reporter, leave_hinted, bits, of, now, |_| true);
            budget.spend(bits.spent() - spent);
            let since_last = process.last_read.map(|last| now - last);
            process.adapt.learn(seen, window, since_last);
            process.go_on(&piece, pages, seen.ready, window, now);
        }
        self.budget = Some(budget);
        self.busy_until = now + (bits.spent() - began);
        Some(STEP)
    }

    fn stats(&self) -> SourceStats {
        self.reporter.stats()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use pghot_engine::Settings;
    use pghot_hotness::{Format, PfnRange, SECTION_PAGES, Span};

    use super::*;
    use crate::fake::FolioAccess;
    use crate::tunables;

    /// Idle processes of 16 GiB each, whose pages are expensive to read.
    struct Large {
        processes: u32,
        spent: Cell<Duration>,
    }

    impl AccessedBits for Large {
        fn owners(&self) -> Vec<(BitOwner, u64)> {
            (0..self.processes)
                .map(|pid| (BitOwner::Process(pid), 1 << 22))
                .collect()
        }

        fn clear(&mut self, _: BitOwner, _: Range<u64>) {}

        fn spent(&self) -> Duration {
            self.spent.get()
        }

        fn young(&self, _: BitOwner, pages: Range<u64>, _: &mut dyn FnMut(&FolioAccess)) {
            let took = Duration::from_micros(5) * (pages.end - pages.start) as u32;
            self.spent.set(self.spent.get() + took);
        }
    }

    /// CPU time that the source took of a minute.
    fn spent_in_a_minute(processes: u32, percent: &str) -> Duration {
        let mut settings = Settings::new(Format::Default);
        tunables::set(&mut settings, "scan_cpu_max_percent", percent).unwrap();
        let range = PfnRange {
            start: SECTION_PAGES,
            end: 2 * SECTION_PAGES,
            nid: 2,
        };
        let span = Span::new(&[range]).unwrap();
        let table = Arc::new(Table::in_memory(settings.mode, span));
        let config = tunables::config(&settings, settings.rule().unwrap());
        let mut fake = fake(&table, &config);
        let mut large = Large {
            processes,
            spent: Cell::default(),
        };
        for step in 0..3000 {
            fake.step(&mut large, Duration::from_secs(100) + STEP * step);
        }
        large.spent.get()
    }

    #[test]
    fn it_takes_the_share_of_a_cpu_that_it_may() {
        for (text, percent) in [("1", 1), ("5", 5), ("20", 20)] {
            for processes in [8, 5000] {
                let share = Duration::from_secs(70) * percent / 100;
                let spent = spent_in_a_minute(processes, text);
                // Series that began are finished: four of three scans of a gigabyte each.
                let series = Duration::from_millis(3 * 1311);
                assert!(
                    spent <= share + 4 * series,
                    "{processes}, {text}: {spent:?}"
                );
                assert!(spent >= share / 2, "{processes}, {text}: {spent:?}");
            }
        }
    }
}
