//! How many base pages wait, by how many records are ready.
//!
//! A record is of one page, but its whole folio moves, and of a huge page mostly one page has a
//! record. The size of a folio is known only when it is resolved, and pages that find no room are
//! not resolved. So a migrator keeps the mean size of the folios that it resolved last: 80 records
//! of huge pages ask for 40,960 pages of room, not for 80.

/// Records that the mean remembers, about: as many as a pass or two resolve.
const REMEMBERED: u64 = 1024;

/// See the head of this file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sizes {
    records: u64,
    pages: u64,
}

impl Sizes {
    /// A record was resolved: to a folio of so many pages, or to none if its folio was met already.
    pub fn note(&mut self, pages: u32) {
        if self.records >= REMEMBERED {
            self.records /= 2;
            self.pages /= 2;
        }
        self.records += 1;
        self.pages += u64::from(pages);
    }

    /// Base pages that so many records stand for; without anything resolved one each.
    pub fn pages(&self, records: u64) -> u64 {
        (records.saturating_mul(self.pages) / self.records.max(1)).max(records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_of_what_was_resolved_last() {
        let mut sizes = Sizes::default();
        assert_eq!(sizes.pages(80), 80, "nothing is known");
        for _ in 0..10 {
            sizes.note(512);
        }
        assert_eq!(sizes.pages(80), 80 * 512);
        for _ in 0..10 {
            sizes.note(0);
        }
        assert_eq!(sizes.pages(80), 80 * 256, "two records of each");
        for _ in 0..20 * REMEMBERED {
            sizes.note(1);
        }
        assert_eq!(sizes.pages(80), 80);
        assert_eq!(sizes.pages(0), 0);
    }
}
