//! Pages: one byte of state each, however large the machine.
//!
//! A page's number is its place in the memory of its process, and, shifted by [`FIRST_PFN`], its
//! PFN whenever it is in the lower tier: a page that comes back from the top tier comes back to the
//! same PFN. A kernel would take any free one. For the hotness records this makes no difference,
//! because a record is consumed when its page moves; and it saves the eight bytes a page of two
//! page tables.

use std::ops::Range;

use pghot_hotness::{Pfn, PfnRange, SECTION_PAGES};
use serde::{Deserialize, Serialize};

/// A page's number.
pub type Page = u32;

/// The PFN of page 0. Not zero, so that a forgotten shift is seen.
pub const FIRST_PFN: Pfn = 8 * SECTION_PAGES;

/// Base pages of a huge page, and of a block: what shares one time of marking.
pub const HUGE_PAGES: u32 = 512;

/// Of a page's state byte: its node.
const NODE: u8 = 0x07;
/// Its page-table entry was accessed since the bit was cleared.
pub const ACCESSED: u8 = 0x08;
/// Its page-table entry makes the next access fault.
pub const MARKED: u8 = 0x10;
/// It was accessed when reclaim last looked, or DAMON in its place.
pub const ACTIVE: u8 = 0x20;
/// It is on the list of a top-tier node.
pub const LISTED: u8 = 0x40;
/// There is no such page.
pub const ABSENT: u8 = 0x80;

/// What memory is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backing {
    /// Private base pages.
    #[default]
    Anon,
    /// Private huge pages.
    Thp,
    /// Base pages that hint faults do not see, because several processes map them.
    Shared,
    /// Base pages of a file that nobody maps: each access is a system call that reads one page.
    PageCache,
}

impl Backing {
    /// Base pages of each folio.
    pub fn folio_pages(self) -> u32 {
        match self {
            Backing::Thp => HUGE_PAGES,
            Backing::Anon | Backing::Shared | Backing::PageCache => 1,
        }
    }

    /// Whether the kernel's scanner marks its entries.
    pub fn is_hinted(self) -> bool {
        matches!(self, Backing::Anon | Backing::Thp)
    }

    /// Whether there are page-table entries, with their accessed bits. Reads of what nobody maps
    /// are known to reclaim alone.
    pub fn is_mapped(self) -> bool {
        self != Backing::PageCache
    }
}

/// The memory of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// The process that maps it.
    pub process: usize,
    /// Its number, for who sees the machine from outside; another one each time it is started.
    pub pid: u32,
    /// Its pages.
    pub pages: Range<Page>,
    /// What they are made of.
    pub backing: Backing,
    /// Base pages of each folio: [`Backing::folio_pages`], kept because every look at a page asks
    /// for it.
    pub folio_pages: u32,
    /// The lower-tier node where its pages have their PFNs.
    pub home: u32,
}

/// All pages of the machine's processes.
pub struct Memory {
    state: Vec<u8>,
    /// When a block was marked last, in ns.
    marked_ns: Vec<u64>,
    regions: Vec<Region>,
    /// The regions' first pages, rising, each with its region's number.
    starts: Vec<(Page, usize)>,
    ranges: Vec<PfnRange>,
}

impl Memory {
    /// Lays regions out. All pages are absent at first. The caller has checked that the sum of all
    /// pages fits into 32 bits.
    pub fn new(mut regions: Vec<Region>, lower_tier: &[u32]) -> Memory {
        let section = SECTION_PAGES as u32;
        let mut next: Page = 0;
        let mut ranges = Vec::new();
        for &nid in lower_tier {
            let first = next;
            for region in regions.iter_mut().filter(|region| region.home == nid) {
                let length = region.pages.len() as u32;
                region.pages = next..next + length;
                next = (next + length).next_multiple_of(HUGE_PAGES);
            }
            next = next.next_multiple_of(section);
            if next > first {
                let pfn = |page: Page| FIRST_PFN + Pfn::from(page);
                ranges.push(PfnRange {
                    start: pfn(first),
                    end: pfn(next),
                    nid,
                });
            }
        }
        let by_number = regions.iter().enumerate();
        let mut starts: Vec<_> = by_number.map(|(n, r)| (r.pages.start, n)).collect();
        starts.sort_unstable();
        Memory {
            state: vec![ABSENT; next as usize],
            marked_ns: vec![0; (next / HUGE_PAGES) as usize],
            regions,
            starts,
            ranges,
        }
    }

    /// Bytes that the model keeps for its pages.
    pub fn bytes(&self) -> usize {
        self.state.len() + self.marked_ns.len() * size_of::<u64>()
    }

    /// Page numbers below this one are in use, with gaps.
    pub fn end(&self) -> Page {
        self.state.len() as Page
    }

    /// The regions, as they were given.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// The PFNs of the lower-tier nodes, whole sections each.
    pub fn ranges(&self) -> &[PfnRange] {
        &self.ranges
    }

    /// A process was started anew, and has another number.
    pub fn set_pid(&mut self, process: usize, pid: u32) {
        self.regions[process].pid = pid;
    }

    /// The region of a page.
    pub fn region_of(&self, page: Page) -> Option<&Region> {
        let after = self.starts.partition_point(|(start, _)| *start <= page);
        let (_, number) = self.starts[after.checked_sub(1)?];
        let region = &self.regions[number];
        (page < region.pages.end).then_some(region)
    }

    /// Whether a page has an entry in page tables, and so an accessed bit.
    pub fn is_mapped(&self, page: Page) -> bool {
        self.region_of(page)
            .is_some_and(|region| region.backing.is_mapped())
    }

    /// The first page of a page's folio.
    pub fn head(page: Page, folio_pages: u32) -> Page {
        page & !(folio_pages - 1)
    }

    /// A folio's state, by its head.
    #[inline]
    pub fn state(&self, head: Page) -> u8 {
        self.state[head as usize]
    }

    /// Sets bits of a folio's state.
    #[inline]
    pub fn set(&mut self, head: Page, bits: u8) {
        self.state[head as usize] |= bits;
    }

    /// Clears bits of a folio's state.
    #[inline]
    pub fn clear(&mut self, head: Page, bits: u8) {
        self.state[head as usize] &= !bits;
    }

    /// The node of a present folio.
    #[inline]
    pub fn node(&self, head: Page) -> usize {
        node_of(self.state(head))
    }

    /// Puts a folio on a node; it is present from then on.
    pub fn put(&mut self, head: Page, nid: usize) {
        let state = &mut self.state[head as usize];
        *state = (*state & !(NODE | ABSENT)) | nid as u8;
    }

    /// Nobody has this folio any more.
    pub fn remove(&mut self, head: Page) {
        let listed = self.state(head) & LISTED;
        self.state[head as usize] = ABSENT | listed;
    }

    /// The states of a range of pages.
    pub fn states(&self, pages: Range<Page>) -> &[u8] {
        &self.state[pages.start as usize..pages.end as usize]
    }

    /// The same, to be changed.
    pub fn states_mut(&mut self, pages: Range<Page>) -> &mut [u8] {
        &mut self.state[pages.start as usize..pages.end as usize]
    }

    /// Notes that the block of a page was marked now.
    pub fn stamp(&mut self, page: Page, now_ns: u64) {
        self.marked_ns[(page / HUGE_PAGES) as usize] = now_ns;
    }

    /// When the block of a page was marked last, in ns.
    pub fn marked_ns(&self, page: Page) -> u64 {
        self.marked_ns[(page / HUGE_PAGES) as usize]
    }
}

/// The node in a state byte.
#[inline]
pub fn node_of(state: u8) -> usize {
    usize::from(state & NODE)
}

/// A page's PFN in the lower tier.
pub fn pfn_of(page: Page) -> Pfn {
    FIRST_PFN + Pfn::from(page)
}

/// The page of a PFN; none if it is before the first.
pub fn page_of(pfn: Pfn) -> Option<Page> {
    pfn.checked_sub(FIRST_PFN)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(process: usize, pages: u32, home: u32) -> Region {
        Region {
            process,
            pid: process as u32 + 1,
            pages: 0..pages,
            backing: Backing::Anon,
            folio_pages: 1,
            home,
        }
    }

    #[test]
    fn each_lower_node_has_whole_sections_of_its_own() {
        let regions = vec![region(0, 1000, 1), region(1, 40_000, 2), region(2, 7, 1)];
        let memory = Memory::new(regions, &[1, 2]);
        let pages: Vec<_> = memory.regions().iter().map(|r| r.pages.clone()).collect();
        assert_eq!(pages, [0..1000, 32_768..72_768, 1024..1031]);
        let ends: Vec<_> = memory
            .ranges()
            .iter()
            .map(|r| (r.nid, r.end - FIRST_PFN))
            .collect();
        assert_eq!(ends, [(1, 32_768), (2, 98_304)]);
        assert_eq!(memory.region_of(1030).map(|r| r.process), Some(2));
        assert_eq!(memory.region_of(32_768).map(|r| r.process), Some(1));
        assert!(memory.region_of(1000).is_none(), "between two regions");
        assert!(memory.region_of(1031).is_none());
    }

    #[test]
    fn a_folio_keeps_its_bits_when_it_moves() {
        let mut memory = Memory::new(vec![region(0, 10, 1)], &[1]);
        assert_eq!(memory.state(3), ABSENT);
        memory.put(3, 1);
        memory.set(3, ACCESSED | LISTED);
        memory.put(3, 0);
        assert_eq!((memory.node(3), memory.state(3)), (0, ACCESSED | LISTED));
        memory.remove(3);
        assert_eq!(memory.state(3), ABSENT | LISTED);
        assert_eq!(page_of(pfn_of(3)), Some(3));
        assert_eq!(page_of(3), None);
    }
}
