//! Reporting single pages by the heads of their folios, for sources that learn of pages and not of
//! folios.

use std::sync::Arc;
use std::time::Duration;

use pghot_hotness::{Access, Nid, Pfn};
use pghot_linux::resolver::Folio;

use crate::bulk::BulkReporter;

/// Pages handed on at once; the most for which the resolver makes one call.
pub(crate) const BATCH: usize = 4096;

/// Finds the folios of pages, in their order.
pub(crate) type FindHeads = Box<dyn FnMut(&[Pfn], &mut Vec<Folio>) + Send>;

/// Collects pages of the lower tier and reports them. Its buffers are kept, and bounded.
pub(crate) struct FolioReporter {
    reporter: Arc<BulkReporter>,
    find_heads: FindHeads,
    /// Pages of one folio that follow each other are one access, not several.
    merges: bool,
    last: Option<Folio>,
    pfns: Vec<Pfn>,
    nids: Vec<Nid>,
    folios: Vec<Folio>,
    base_pages: Vec<Access>,
}

impl FolioReporter {
    /// Counts each page as an access.
    pub fn new(reporter: &Arc<BulkReporter>, find_heads: FindHeads) -> FolioReporter {
        FolioReporter {
            reporter: Arc::clone(reporter),
            find_heads,
            merges: false,
            last: None,
            pfns: Vec::with_capacity(BATCH),
            nids: Vec::with_capacity(BATCH),
            folios: Vec::with_capacity(BATCH),
            base_pages: Vec::with_capacity(BATCH),
        }
    }

    /// Counts neighbouring pages of one folio once.
    pub fn merging(self) -> FolioReporter {
        FolioReporter {
            merges: true,
            ..self
        }
    }

    /// Adds an access of a page of the lower tier by a CPU of `nid`.
    pub fn push(&mut self, pfn: Pfn, nid: Nid, now: Duration) {
        self.pfns.push(pfn);
        self.nids.push(nid);
        if self.pfns.len() == BATCH {
            self.report(now);
        }
    }

    /// Reports what was added since the last flush.
    pub fn flush(&mut self, now: Duration) {
        if !self.pfns.is_empty() {
            self.report(now);
        }
        self.last = None;
    }

    fn report(&mut self, now: Duration) {
        (self.find_heads)(&self.pfns, &mut self.folios);
        for (&folio, &nid) in self.folios.iter().zip(&self.nids) {
            if self.merges && self.last.replace(folio) == Some(folio) {
                continue;
            }
            let pfn = folio.head;
            match folio.pages {
                1 => self.base_pages.push(Access { pfn, nid }),
                pages => self.reporter.report_folio(pfn, nid, pages, now),
            }
        }
        self.reporter.report(&self.base_pages, now);
        self.pfns.clear();
        self.nids.clear();
        self.folios.clear();
        self.base_pages.clear();
    }
}

/// For tests: pages of the upper half of the first section are in folios of 16.
#[cfg(test)]
pub(crate) fn fake_heads() -> FindHeads {
    use pghot_hotness::SECTION_PAGES;
    let folio = |&pfn: &Pfn| match pfn % SECTION_PAGES < SECTION_PAGES / 2 {
        true => Folio {
            head: pfn,
            pages: 1,
        },
        false => Folio {
            head: pfn & !15,
            pages: 16,
        },
    };
    Box::new(move |pfns, folios| folios.extend(pfns.iter().map(folio)))
}

#[cfg(test)]
mod tests {
    use pghot_hotness::{Format, PfnRange, Rule, SECTION_PAGES, Span, Table};

    use super::*;

    const FIRST: Pfn = SECTION_PAGES;
    const LARGE: Pfn = FIRST + SECTION_PAGES / 2;
    const NOW: Duration = Duration::from_secs(10);

    fn folios() -> (FolioReporter, Arc<Table>) {
        let range = PfnRange {
            start: FIRST,
            end: 2 * SECTION_PAGES,
            nid: 2,
        };
        let table = Table::in_memory(Format::Precision, Span::new(&[range]).unwrap());
        let table = Arc::new(table);
        let rule = Rule::new(Format::Precision, 2, 3000).unwrap();
        let reporter = BulkReporter::new(&table, &rule);
        (FolioReporter::new(&reporter, fake_heads()), table)
    }

    #[test]
    fn a_large_folio_is_reported_by_its_head() {
        let (mut folios, table) = folios();
        for tail in [3, 9] {
            folios.push(LARGE + tail, 0, NOW);
        }
        folios.flush(NOW);
        let stats = folios.reporter.stats();
        assert_eq!((stats.recorded, stats.recorded_pages), (2, 32));
        assert_eq!(stats.became_ready, 1, "two pages count together");
        assert!(table.get(LARGE).unwrap().is_ready());
    }

    #[test]
    fn merged_neighbours_count_once() {
        let (folios, table) = folios();
        let mut folios = folios.merging();
        (0..32).for_each(|n| folios.push(LARGE + n, 0, NOW));
        (0..2).for_each(|n| folios.push(FIRST + n, 0, NOW));
        folios.flush(NOW);
        assert_eq!(folios.reporter.stats().recorded, 4);
        assert_eq!(folios.reporter.stats().became_ready, 0);
        (0..16).for_each(|n| folios.push(LARGE + n, 0, NOW));
        folios.flush(NOW);
        assert!(
            table.get(LARGE).unwrap().is_ready(),
            "another flush, another access"
        );
    }

    #[test]
    fn any_number_fits() {
        let (mut folios, _) = folios();
        for n in 0..3 * BATCH as u64 {
            folios.push(FIRST + n % 1000, 0, NOW);
        }
        folios.flush(NOW);
        assert_eq!(folios.reporter.stats().recorded, 3 * BATCH as u64);
        assert!(folios.pfns.capacity() <= BATCH);
    }
}
