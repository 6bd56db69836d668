//! Which PFNs have a record, and where: lower-tier ranges laid end to end, in whole sections.

use crate::{Error, Nid, Pfn, mirror};

/// Pages per section: 128 MiB of 4 KiB pages, a memory block of x86-64 Linux. One section word
/// marks a section, and one section belongs to one node.
pub const SECTION_PAGES: u64 = 1 << 15;

/// Ranges that the BPF programs search, at most.
pub const RANGES_MAX: usize = 64;

mirror! {
    /// Page frames with the index of the first one's record, as the BPF programs know them.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct IndexedRange = "hotness_range" {
        /// First PFN.
        pub start_pfn: u64,
        /// One past the last PFN.
        pub end_pfn: u64,
        /// The first one's record.
        pub first_index: u64,
    }
}

/// A range of page frames of one node; `end` is exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PfnRange {
    /// First PFN, a multiple of [`SECTION_PAGES`].
    pub start: Pfn,
    /// One past the last PFN, a multiple of [`SECTION_PAGES`].
    pub end: Pfn,
    /// The node that owns the range.
    pub nid: Nid,
}

/// The lower-tier page frames, numbered without holes: record `i` belongs to one PFN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    ranges: Vec<PfnRange>,
    /// Index of each range's first record.
    bases: Vec<u64>,
    pages: u64,
}

impl Span {
    /// Lays the ranges out in PFN order. Each must be made of whole sections.
    pub fn new(ranges: &[PfnRange]) -> Result<Span, Error> {
        let mut ranges = ranges.to_vec();
        ranges.sort();
        let (mut bases, mut pages, mut last_end) = (Vec::new(), 0, 0);
        for r in &ranges {
            let whole = r.start % SECTION_PAGES == 0 && r.end % SECTION_PAGES == 0;
            if !whole || r.start >= r.end || r.start < last_end {
                return Err(Error::Range(*r));
            }
            last_end = r.end;
            bases.push(pages);
            pages += r.end - r.start;
        }
        Ok(Span {
            ranges,
            bases,
            pages,
        })
    }

    /// All pages that have a record.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// All sections.
    pub fn sections(&self) -> usize {
        (self.pages / SECTION_PAGES) as usize
    }

    /// Each range with the index of its first record, in PFN order.
    pub fn ranges(&self) -> impl Iterator<Item = (PfnRange, u64)> + '_ {
        self.ranges.iter().copied().zip(self.bases.iter().copied())
    }

    /// How many ranges there are, and the first [`RANGES_MAX`] of them for BPF programs.
    pub fn indexed_ranges(&self) -> (u32, [IndexedRange; RANGES_MAX]) {
        let mut indexed = [IndexedRange::default(); RANGES_MAX];
        let ranges = indexed.iter_mut().zip(self.ranges());
        for (slot, (range, first_index)) in ranges {
            *slot = IndexedRange {
                start_pfn: range.start,
                end_pfn: range.end,
                first_index,
            };
        }
        (self.ranges.len().min(RANGES_MAX) as u32, indexed)
    }

    /// The record index of a PFN; `None` if the page is in no range.
    pub fn index(&self, pfn: Pfn) -> Option<u64> {
        // A machine has few ranges: looking at each beats a binary search.
        self.ranges().find_map(|(r, base)| {
            let offset = pfn.wrapping_sub(r.start);
            (offset < r.end - r.start).then(|| base + offset)
        })
    }

    /// The node that owns a PFN; `None` if the page is in no range.
    pub fn nid(&self, pfn: Pfn) -> Option<Nid> {
        self.ranges
            .iter()
            .find(|r| (r.start..r.end).contains(&pfn))
            .map(|r| r.nid)
    }

    /// The sections of one node: (first section, number of sections, PFN of the first page).
    pub(crate) fn sections_of(&self, nid: Nid) -> impl Iterator<Item = (usize, usize, Pfn)> + '_ {
        self.ranges()
            .filter(move |(r, _)| r.nid == nid)
            .map(|(r, base)| {
                let first = (base / SECTION_PAGES) as usize;
                (first, ((r.end - r.start) / SECTION_PAGES) as usize, r.start)
            })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ffi;

    fn range(start: u64, end: u64, nid: Nid) -> PfnRange {
        PfnRange {
            start: start * SECTION_PAGES,
            end: end * SECTION_PAGES,
            nid,
        }
    }

    proptest! {
        #[test]
        fn the_programs_find_the_same_record(
            gaps in prop::collection::vec((1..5u64, 1..4u64), 1..=RANGES_MAX),
            sections in prop::collection::vec((0..400u64, 0..3u64), 1..100),
        ) {
            let mut end = 0;
            let ranges = gaps.iter().map(|(gap, length)| {
                let start = end + gap - 1;
                end = start + length;
                range(start, end, 1)
            });
            let span = Span::new(&ranges.collect::<Vec<_>>()).unwrap();
            let (nr, indexed) = span.indexed_ranges();
            for (section, before) in sections {
                let pfn = (section * SECTION_PAGES).wrapping_sub(before);
                // SAFETY: there are at least `nr` ranges.
                let index = unsafe { ffi::pghot_index(indexed.as_ptr(), nr, pfn) };
                prop_assert_eq!(u64::try_from(index).ok(), span.index(pfn));
            }
        }
    }

    #[test]
    fn ranges_are_numbered_without_holes() {
        let span = Span::new(&[range(20, 21, 3), range(4, 6, 2)]).unwrap();
        assert_eq!(span.sections(), 3);
        assert_eq!(span.index(4 * SECTION_PAGES), Some(0));
        assert_eq!(
            span.index(6 * SECTION_PAGES - 1),
            Some(2 * SECTION_PAGES - 1)
        );
        assert_eq!(span.index(6 * SECTION_PAGES), None);
        assert_eq!(span.index(0), None);
        assert_eq!(
            span.index(20 * SECTION_PAGES + 7),
            Some(2 * SECTION_PAGES + 7)
        );
        assert_eq!(span.nid(20 * SECTION_PAGES), Some(3));
        assert_eq!(span.nid(21 * SECTION_PAGES), None);
        assert_eq!(
            span.sections_of(3).collect::<Vec<_>>(),
            [(2, 1, 20 * SECTION_PAGES)]
        );
    }

    #[test]
    fn crooked_ranges_are_refused() {
        let crooked = PfnRange {
            start: 5,
            end: SECTION_PAGES,
            nid: 0,
        };
        assert_eq!(Span::new(&[crooked]), Err(Error::Range(crooked)));
        assert!(Span::new(&[range(3, 3, 0)]).is_err());
        assert!(Span::new(&[range(1, 4, 0), range(3, 5, 1)]).is_err());
        assert_eq!(Span::new(&[]).unwrap().pages(), 0);
    }
}
