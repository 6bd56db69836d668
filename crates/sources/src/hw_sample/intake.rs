//! From records of the rings to reports: understands them, keeps the pages of the lower tier, and
//! reports each by the head of its folio.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pghot_hotness::{Access, Nid, Pfn, Table};
use pghot_linux::resolver::Folio;

use super::ring::Record;
use super::sample::{Seen, decode};
use crate::bulk::BulkReporter;

/// Accesses handed on at once; the most for which the resolver makes one call.
const BATCH: usize = 4096;

/// Finds the folios of pages, in their order.
pub type FindHeads = Box<dyn FnMut(&[Pfn], &mut Vec<Folio>) + Send>;

/// What was seen beside accesses of the lower tier.
#[derive(Default)]
pub struct Counters {
    pub lost_samples: AtomicU64,
    pub throttles: AtomicU64,
    pub cache_hit_samples: AtomicU64,
    pub no_access_samples: AtomicU64,
    pub large_folio_samples: AtomicU64,
    pub period_events: AtomicU64,
    pub period_changes: AtomicU64,
    pub period_refusals: AtomicU64,
}

impl Counters {
    pub fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

/// Takes records in. Its buffers are kept between batches, and bounded.
pub struct Intake {
    table: Arc<Table>,
    reporter: Arc<BulkReporter>,
    counters: Arc<Counters>,
    find_heads: FindHeads,
    pfns: Vec<Pfn>,
    nids: Vec<Nid>,
    folios: Vec<Folio>,
    base_pages: Vec<Access>,
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
            find_heads,
            pfns: Vec::with_capacity(BATCH),
            nids: Vec::with_capacity(BATCH),
            folios: Vec::with_capacity(BATCH),
            base_pages: Vec::with_capacity(BATCH),
        }
    }

    /// Takes one record of a CPU of `nid`.
    pub fn take(&mut self, record: &Record, nid: Nid, now: Duration) {
        let counters = &self.counters;
        match decode(record) {
            Seen::Access(pfn) if self.table.span().index(pfn).is_some() => {
                self.pfns.push(pfn);
                self.nids.push(nid);
                if self.pfns.len() == BATCH {
                    self.flush(now);
                }
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
        if self.pfns.is_empty() {
            return;
        }
        (self.find_heads)(&self.pfns, &mut self.folios);
        for (folio, &nid) in self.folios.iter().zip(&self.nids) {
            if folio.pages == 1 {
                let pfn = folio.head;
                self.base_pages.push(Access { pfn, nid });
            } else {
                self.reporter
                    .report_folio(folio.head, nid, folio.pages, now);
                Counters::add(&self.counters.large_folio_samples, 1);
            }
        }
        self.reporter.report(&self.base_pages, now);
        self.pfns.clear();
        self.nids.clear();
        self.folios.clear();
        self.base_pages.clear();
    }
}

#[cfg(test)]
mod tests {
    use pghot_hotness::{Format, PfnRange, Rule, SECTION_PAGES, Span};

    use super::*;

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
        // Folios of 16 pages in the second half of the section.
        let find_heads = |pfns: &[Pfn], folios: &mut Vec<Folio>| {
            folios.extend(
                pfns.iter()
                    .map(|&pfn| match pfn < FIRST + SECTION_PAGES / 2 {
                        true => Folio {
                            head: pfn,
                            pages: 1,
                        },
                        false => Folio {
                            head: pfn & !15,
                            pages: 16,
                        },
                    }),
            );
        };
        Intake::new(&table, &reporter, &Arc::default(), Box::new(find_heads))
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
    fn a_large_folio_is_reported_by_its_head() {
        let mut intake = intake();
        let head = FIRST + SECTION_PAGES / 2;
        for tail in [3, 9] {
            intake.take(&sample(head + tail), 0, NOW);
        }
        intake.flush(NOW);
        let stats = intake.reporter.stats();
        assert_eq!((stats.recorded, stats.recorded_pages), (2, 32));
        assert_eq!(
            stats.became_ready, 1,
            "two pages of one folio count together"
        );
        assert!(intake.table.get(head).unwrap().is_ready());
    }

    #[test]
    fn any_number_of_records_fits() {
        let mut intake = intake();
        for n in 0..3 * BATCH as u64 {
            intake.take(&sample(FIRST + n % 1000), 0, NOW);
        }
        intake.flush(NOW);
        assert_eq!(intake.reporter.stats().recorded, 3 * BATCH as u64);
        assert!(intake.pfns.capacity() <= BATCH);
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
