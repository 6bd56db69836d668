//! How many base pages wait, by how many records are ready.
//!
//! A record is a page's, and what moves is its folio: of a huge page mostly one page is recorded,
//! the one whose access was seen. How large a folio is is known once it is resolved, and what finds
//! no room is not resolved. So a migrator keeps the mean of the last ones that were: with it 80
//! records of huge pages ask for 40,960 pages of room, not for 80.

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
        let pages = u128::from(records) * u128::from(self.pages) / u128::from(self.records.max(1));
        u64::try_from(pages).unwrap_or(u64::MAX).max(records)
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
