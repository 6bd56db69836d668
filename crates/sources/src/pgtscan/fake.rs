//! The source on a modelled machine: clear, wait, read, piece by piece, at the pace of [`Adapt`].

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use pghot_hotness::Table;

use super::DESCRIPTOR;
use super::adapt::{Adapt, Window};
use crate::budget::{Budget, PERCENT};
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
    })
}

struct Scanner {
    reporter: Arc<BulkReporter>,
    config: Config,
    processes: BTreeMap<BitOwner, Process>,
    /// Made at the first step, which tells the time.
    budget: Option<Budget>,
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
        let mut budget = self.budget.take().unwrap_or_else(|| Budget::new(now, PERCENT));
        budget.earn(now, PERCENT);
        let window = Window::of(&self.config.rule);
        let hint_faults_run = self.config.hint_faults_run;
        let mut owners = bits.owners();
        owners.retain(|(owner, _)| matches!(owner, BitOwner::Process(_)));
        let present: BTreeMap<BitOwner, u64> = owners.into_iter().collect();
        self.processes
            .retain(|owner, _| present.contains_key(owner));
        for (&owner, &pages) in &present {
            let process = self.processes.entry(owner);
            let process = process.or_insert_with(|| Process::new(now));
            if process.due > now {
                continue;
            }
            // A series that began is finished whatever it costs.
            if process.scans == 0 && process.cleared_at.is_none() && budget.is_spent() {
                process.due = now + budget.wait();
                continue;
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
            let seen = report_young(&self.reporter, hint_faults_run, bits, of, now, |_| true);
            budget.spend(bits.spent() - spent);
            let since_last = process.last_read.map(|last| now - last);
            process.adapt.learn(seen, window, since_last);
            process.go_on(&piece, pages, seen.ready, window, now);
        }
        self.budget = Some(budget);
        Some(STEP)
    }

    fn stats(&self) -> SourceStats {
        self.reporter.stats()
    }
}
