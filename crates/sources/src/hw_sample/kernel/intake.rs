//! From records of the rings to reports: understands them, keeps the pages of the lower tier, and
//! reports each by the head of its folio.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pghot_hotness::{Nid, Table};

use super::ring::Record;
use super::sample::{Seen, decode};
use crate::bulk::BulkReporter;
use crate::kernel::folios::{FindHeads, FolioReporter};

/// What was seen beside accesses of the lower tier.
#[derive(Default)]
pub struct Counters {
    pub lost_samples: AtomicU64,
    pub throttles: AtomicU64,
    pub cache_hit_samples: AtomicU64,
    pub no_access_samples: AtomicU64,
    pub period_events: AtomicU64,
    pub period_changes: AtomicU64,
    pub period_refusals: AtomicU64,
}

impl Counters {
    pub fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

/// Takes records in.
pub struct Intake {
    table: Arc<Table>,
    reporter: Arc<BulkReporter>,
    counters: Arc<Counters>,
    folios: FolioReporter,
}

impl Intake {
    /// An intake that has seen nothing yet.
    pub fn new(
        table: &Arc<Table>,
        reporter: &Arc<BulkReporter>,
        counters: &Arc<Counters>,
        find_heads: FindHeads,
    ) -> Intake {
        Intake {
            table: Arc::clone(table),
            reporter: Arc::clone(reporter),
            counters: Arc::clone(counters),
            folios: FolioReporter::new(reporter, find_heads),
        }
    }

    /// Takes one record of a CPU of `nid`.
    pub fn take(&mut self, record: &Record, nid: Nid, now: Duration) {
        let counters = &self.counters;
        match decode(record) {
            Seen::Access(pfn) if self.table.span().index(pfn).is_some() => {
                self.folios.push(pfn, nid, now);
            }
            Seen::Access(_) => self.reporter.note_not_tracked(1),
            Seen::Unreadable => self.reporter.note_unreadable(1),
            Seen::CacheHit => Counters::add(&counters.cache_hit_samples, 1),
            Seen::NoAccess => Counters::add(&counters.no_access_samples, 1),
            Seen::Lost(samples) => Counters::add(&counters.lost_samples, samples),
            Seen::Throttled => Counters::add(&counters.throttles, 1),
            Seen::Other => {}
        }
    }

    /// Reports what was taken since the last flush.
    pub fn flush(&mut self, now: Duration) {
        self.folios.flush(now);
    }
}

#[cfg(test)]
mod tests {
    use pghot_hotness::{Format, Pfn, PfnRange, Rule, SECTION_PAGES, Span};

    use super::*;
    use crate::kernel::folios::fake_heads;

    const FIRST: Pfn = SECTION_PAGES;
    const NOW: Duration = Duration::from_secs(10);

    fn intake() -> Intake {
        let range = PfnRange {
            start: FIRST,
            end: 2 * SECTION_PAGES,
            nid: 2,
        };
        let table = Table::in_memory(Format::Precision, Span::new(&[range]).unwrap());
        let table = Arc::new(table);
        let rule = Rule::new(Format::Precision, 2, 3000).unwrap();
        let reporter = BulkReporter::new(&table, &rule);
        Intake::new(&table, &reporter, &Arc::default(), fake_heads())
    }

    fn sample(pfn: Pfn) -> Record {
        let words = [0, pfn << 12 | 0x123];
        Record { kind: 9, words }
    }

    #[test]
    fn accesses_are_reported_with_the_cpus_node() {
        let mut intake = intake();
        for nid in [1, 3] {
            intake.take(&sample(FIRST + 5), nid, NOW);
        }
        intake.take(&sample(7), 1, NOW);
        assert_eq!(intake.reporter.stats().recorded, 0, "not before the flush");
        intake.flush(NOW);
        intake.flush(NOW);
        let stats = intake.reporter.stats();
        assert_eq!((stats.recorded, stats.became_ready), (2, 1));
        assert_eq!((stats.not_tracked, stats.unreadable), (1, 0));
        assert_eq!(intake.table.get(FIRST + 5).unwrap().nid(), Some(3));
    }

    #[test]
    fn the_rest_is_counted() {
        let mut intake = intake();
        let mut take = |kind, words| intake.take(&Record { kind, words }, 0, NOW);
        take(2, [1, 40]);
        take(13, [2, 0]);
        take(5, [0, 0]);
        take(9, [0x2 | 0x8 << 5, 0x1000]);
        take(9, [0x1, 0]);
        take(9, [0x2, 0]);
        take(0, [0, 0]);
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = Arc::clone(&intake.counters);
        assert_eq!(get(&counters.lost_samples), 42);
        assert_eq!(get(&counters.throttles), 1);
        assert_eq!(get(&counters.cache_hit_samples), 1);
        assert_eq!(get(&counters.no_access_samples), 1);
        assert_eq!(intake.reporter.stats().unreadable, 1);
    }
}
