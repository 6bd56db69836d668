//! Reporting from user space: for sources that learn of many accesses at once.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use pghot_hotness::{Access, Pfn, Report, Rule, Table, is_sampled};

use crate::{ReadySample, SourceStats};

/// Samples kept until they are drained; the oldest give way.
const SAMPLES_MAX: usize = 4096;

/// The records with the rule in force. Shared by a source and its thread.
pub(crate) struct BulkReporter {
    table: Arc<Table>,
    rule: RwLock<Rule>,
    counts: Counts,
    samples: Mutex<VecDeque<ReadySample>>,
}

#[derive(Default)]
struct Counts {
    recorded: AtomicU64,
    recorded_pages: AtomicU64,
    became_ready: AtomicU64,
    lost: AtomicU64,
    not_tracked: AtomicU64,
    unreadable: AtomicU64,
}

impl BulkReporter {
    /// A reporter that has reported nothing yet.
    pub fn new(table: &Arc<Table>, rule: &Rule) -> Arc<BulkReporter> {
        Arc::new(BulkReporter {
            table: Arc::clone(table),
            rule: RwLock::new(*rule),
            counts: Counts::default(),
            samples: Mutex::default(),
        })
    }

    /// Reports accesses of base pages that were all seen at `when` (`CLOCK_MONOTONIC`).
    pub fn report(&self, accesses: &[Access], when: Duration) {
        let rule = *self.rule.read().unwrap_or_else(PoisonError::into_inner);
        let (when_ms, when_ns) = (when.as_millis() as u64, when.as_nanos() as u64);
        let add = |counter: &AtomicU64, n: u64| {
            counter.fetch_add(n, Ordering::Relaxed);
        };
        let ready_sample = |pfn| self.note_ready(pfn, when_ns);
        let sum = self
            .table
            .report_bulk(accesses, when_ms, &rule, ready_sample);
        add(&self.counts.recorded, sum.recorded);
        add(&self.counts.recorded_pages, sum.recorded);
        add(&self.counts.became_ready, sum.became_ready);
        add(&self.counts.lost, sum.lost);
        add(&self.counts.not_tracked, sum.not_tracked);
    }

    /// Reports one access of a folio of `pages` base pages by its head.
    pub fn report_folio(&self, head: Pfn, nid: u32, pages: u64, when: Duration) {
        let rule = *self.rule.read().unwrap_or_else(PoisonError::into_inner);
        self.report_folio_by(&rule, head, nid, pages, when);
    }

    /// The same by another rule.
    pub fn report_folio_by(&self, rule: &Rule, head: Pfn, nid: u32, pages: u64, when: Duration) {
        let (when_ms, when_ns) = (when.as_millis() as u64, when.as_nanos() as u64);
        self.report_one(head, nid, pages, when_ms, when_ns, rule);
    }

    fn report_one(&self, pfn: Pfn, nid: u32, pages: u64, when_ms: u64, when_ns: u64, rule: &Rule) {
        let add = |counter: &AtomicU64, n: u64| {
            counter.fetch_add(n, Ordering::Relaxed);
        };
        let report = self.table.report(pfn, nid, when_ms, rule);
        if report == Report::BecameReady {
            add(&self.counts.became_ready, 1);
            if is_sampled(pfn) {
                self.note_ready(pfn, when_ns);
            }
        }
        match report {
            Report::Recorded | Report::BecameReady => {
                add(&self.counts.recorded, 1);
                add(&self.counts.recorded_pages, pages);
            }
            Report::Lost => add(&self.counts.lost, 1),
            Report::NotTracked => add(&self.counts.not_tracked, 1),
        }
    }

    /// A sample became ready.
    fn note_ready(&self, pfn: Pfn, when_ns: u64) {
        let mut samples = self.samples();
        if samples.len() == SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back(ReadySample { pfn, when_ns });
    }

    /// Counts events whose page could not be told.
    pub fn note_unreadable(&self, events: u64) {
        self.counts.unreadable.fetch_add(events, Ordering::Relaxed);
    }

    /// Counts events of pages that the caller knows to be outside the lower tier.
    pub fn note_not_tracked(&self, events: u64) {
        self.counts.not_tracked.fetch_add(events, Ordering::Relaxed);
    }

    /// The rule for the reports from now on.
    pub fn set_rule(&self, rule: &Rule) {
        *self.rule.write().unwrap_or_else(PoisonError::into_inner) = *rule;
    }

    /// See [`crate::Source::stats`].
    pub fn stats(&self) -> SourceStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SourceStats {
            recorded: get(&self.counts.recorded),
            recorded_pages: get(&self.counts.recorded_pages),
            became_ready: get(&self.counts.became_ready),
            lost: get(&self.counts.lost),
            not_tracked: get(&self.counts.not_tracked),
            unreadable: get(&self.counts.unreadable),
        }
    }

    /// See [`crate::Source::drain_ready`].
    pub fn drain_ready(&self, sink: &mut dyn FnMut(ReadySample)) {
        self.samples().drain(..).for_each(sink);
    }

    fn samples(&self) -> MutexGuard<'_, VecDeque<ReadySample>> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use pghot_hotness::{Format, PfnRange, SECTION_PAGES, Span};

    use super::*;

    const PAGES: u64 = SECTION_PAGES;

    fn reporter(freq_threshold: u32) -> Arc<BulkReporter> {
        let range = PfnRange {
            start: SECTION_PAGES,
            end: SECTION_PAGES + PAGES,
            nid: 2,
        };
        let table = Table::in_memory(Format::Default, Span::new(&[range]).unwrap());
        let rule = Rule::new(Format::Default, freq_threshold, 3000).unwrap();
        BulkReporter::new(&Arc::new(table), &rule)
    }

    fn all() -> Vec<Access> {
        let access = |pfn| Access { pfn, nid: 0 };
        (SECTION_PAGES - 10..SECTION_PAGES + PAGES)
            .map(access)
            .collect()
    }

    #[test]
    fn every_access_is_counted_once() {
        let reporter = reporter(2);
        reporter.report(&all(), Duration::from_secs(10));
        reporter.note_unreadable(3);
        let first = SourceStats {
            recorded: PAGES,
            recorded_pages: PAGES,
            not_tracked: 10,
            unreadable: 3,
            ..SourceStats::default()
        };
        assert_eq!(reporter.stats(), first);
        reporter.report(&all(), Duration::from_secs(11));
        assert_eq!(reporter.stats().became_ready, PAGES);
    }

    #[test]
    fn one_page_in_64_is_a_sample_and_only_when_it_becomes_ready() {
        let reporter = reporter(1);
        let drained = || {
            let mut samples = Vec::new();
            reporter.drain_ready(&mut |sample| samples.push(sample));
            samples
        };
        reporter.report(&all(), Duration::from_secs(10));
        let samples = drained();
        let share = PAGES as usize / 64;
        assert!((share / 2..share * 2).contains(&samples.len()));
        assert!(samples.iter().all(|s| s.when_ns == 10_000_000_000));
        reporter.report(&all(), Duration::from_secs(11));
        assert!(drained().is_empty(), "they are ready already");
    }

    #[test]
    fn a_folio_counts_by_its_pages() {
        let reporter = reporter(1);
        reporter.report_folio(SECTION_PAGES, 1, 512, Duration::from_secs(1));
        let stats = reporter.stats();
        assert_eq!((stats.recorded, stats.recorded_pages), (1, 512));
    }
}
