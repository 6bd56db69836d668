//! A process under way: where it has memory, and what it touched.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use pghot_linux::topology::Topology;
use pghot_profile::{BLOCK_PAGES, BLOCKS_MAX, Interval, Process, Touched};

use crate::kernel::page_tables::clear::{self, Method, PAGE_BYTES};
use crate::kernel::page_tables::walk::Walker;

/// Addresses of a block.
const BLOCK_BYTES: u64 = BLOCK_PAGES as u64 * PAGE_BYTES;

/// Page frames of the lower tier, rising.
pub(super) struct LowerTier(Vec<Range<u64>>);

impl LowerTier {
    /// As it is now; none on a machine without.
    pub fn of(topology: &Topology) -> LowerTier {
        let ranges = topology.lower_tier_ranges().into_iter();
        LowerTier(ranges.map(|range| range.start..range.end).collect())
    }

    fn has(&self, pfn: u64) -> bool {
        let after = self.0.partition_point(|range| range.start <= pfn);
        after > 0 && pfn < self.0[after - 1].end
    }
}

/// A process under way.
pub(super) struct Watched {
    pub start_time: u64,
    pub cpu_ticks: u64,
    pub method: Method,
    /// Where it has pages, by the last walk.
    pub ranges: Vec<Range<u64>>,
    /// Present entries of the last walk.
    pub entries: u64,
    /// Young pages of the last walk that flush the TLB if they are cleared.
    pub flushing: Option<Range<u64>>,
    /// Most of what a walk found young was huge pages.
    pub is_mostly_huge: bool,
    /// The number of each block, by its address in blocks.
    blocks: HashMap<u64, u32>,
    huge_blocks: HashSet<u32>,
    name: String,
    cgroup: String,
    pub intervals: Vec<Interval>,
}

/// A walk over all of a process.
#[derive(Default)]
pub(super) struct Seen {
    pub entries: u64,
    pub ranges: Vec<Range<u64>>,
    pub touched: Vec<Range<u32>>,
    /// Of those, in the lower tier.
    pub lower: Vec<Range<u32>>,
    pub young_pages: u64,
    /// Of those, in huge pages.
    pub huge_pages: u64,
    /// Young pages of the call that `flushing` is from.
    most_young: u64,
}

impl Watched {
    pub fn new(name: String, cgroup: String, start_time: u64, cpu_ticks: u64) -> Watched {
        Watched {
            start_time,
            cpu_ticks,
            method: Method::ClearRefs,
            ranges: Vec::new(),
            entries: 0,
            flushing: None,
            is_mostly_huge: false,
            blocks: HashMap::new(),
            huge_blocks: HashSet::new(),
            name,
            cgroup,
            intervals: Vec::new(),
        }
    }

    /// Takes over what one call met.
    pub fn note(&mut self, walker: &Walker, start: u64, lower_tier: &LowerTier, seen: &mut Seen) {
        seen.entries += walker.entries();
        // Where most is in use: what others map too, as libraries, is not cleared and flushes
        // nothing.
        let of_folios = walker.folios().iter().map(|folio| u64::from(folio.pages));
        let huge_pages = of_folios
            .clone()
            .filter(|pages| *pages >= BLOCK_PAGES.into());
        let young = walker.young().len() as u64 + of_folios.clone().sum::<u64>();
        seen.huge_pages += huge_pages.sum::<u64>();
        seen.young_pages += young;
        if young > seen.most_young
            && let Some(range) = clear::flush_range(start, walker.young(), walker.folios())
        {
            (seen.most_young, self.flushing) = (young, Some(range));
        }
        for table in walker.tables().iter().filter(|table| table.lower_pages > 0) {
            let first = table.address / BLOCK_BYTES * BLOCK_BYTES;
            self.block(first);
            match seen.ranges.last_mut() {
                Some(last) if last.end >= first => last.end = first + BLOCK_BYTES,
                _ => seen.ranges.push(first..first + BLOCK_BYTES),
            }
        }
        let address = |page: u32| start + u64::from(page) * PAGE_BYTES;
        for young in walker.young() {
            let is_lower = lower_tier.has(young.pfn);
            self.touch(address(young.page), 1, is_lower, seen);
        }
        for folio in walker.folios() {
            let address = address(folio.page);
            if folio.pages >= BLOCK_PAGES && address.is_multiple_of(BLOCK_BYTES) {
                let block = self.block(address);
                self.huge_blocks.extend(block);
            }
            self.touch(address, folio.pages, lower_tier.has(folio.pfn), seen);
        }
    }

    /// Notes an access of pages in one block; what is behind its end is cut off.
    fn touch(&mut self, address: u64, pages: u32, is_lower: bool, seen: &mut Seen) {
        let Some(block) = self.block(address) else {
            return;
        };
        let offset = (address % BLOCK_BYTES / PAGE_BYTES) as u32;
        let start = block * BLOCK_PAGES + offset;
        let end = start + pages.min(BLOCK_PAGES - offset);
        push(&mut seen.touched, start..end);
        if is_lower {
            push(&mut seen.lower, start..end);
        }
    }

    /// The number of the block around an address; none beyond what a profile can hold.
    fn block(&mut self, address: u64) -> Option<u32> {
        let next = self.blocks.len() as u32;
        let key = address / BLOCK_BYTES;
        if next >= BLOCKS_MAX {
            return self.blocks.get(&key).copied();
        }
        Some(*self.blocks.entry(key).or_insert(next))
    }

    /// What was recorded of it so far, with its blocks in the order of their addresses; none if
    /// that is nothing.
    pub fn so_far(&self) -> Option<Process> {
        if self.blocks.is_empty() || self.intervals.is_empty() {
            return None;
        }
        let blocks = self.blocks.iter();
        let mut by_address: Vec<(u64, u32)> = blocks.map(|(at, number)| (*at, *number)).collect();
        by_address.sort_unstable();
        let mut order = vec![0; by_address.len()];
        for ((_, seen), place) in by_address.into_iter().zip(0..) {
            order[seen as usize] = place;
        }
        let interval = |interval: &Interval| Interval {
            number: interval.number,
            cpu_us: interval.cpu_us,
            touched: in_order(&interval.touched, &order),
            lower: in_order(&interval.lower, &order),
        };
        Some(Process {
            name: self.name.clone(),
            cgroup: self.cgroup.clone(),
            blocks: order.len() as u32,
            huge_blocks: self.huge_blocks.len() as u32,
            intervals: self.intervals.iter().map(interval).collect(),
        })
    }
}

fn push(ranges: &mut Vec<Range<u32>>, range: Range<u32>) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}

/// The same pages where each block has its place in another order.
fn in_order(touched: &Touched, order: &[u32]) -> Touched {
    let mut ranges = Vec::new();
    for run in touched.runs() {
        let mut start = run.start;
        while start < run.end {
            let block = start / BLOCK_PAGES;
            let end = run.end.min((block + 1) * BLOCK_PAGES);
            let first = order[block as usize] * BLOCK_PAGES + start % BLOCK_PAGES;
            ranges.push(first..first + (end - start));
            start = end;
        }
    }
    Touched::of(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_in_the_order_of_their_addresses() {
        let mut watched = Watched::new("x".into(), "/y".into(), 0, 0);
        let mut seen = Seen::default();
        let page = |block: u64, page: u64| block * BLOCK_BYTES + page * PAGE_BYTES;
        watched.touch(page(1000, 5), 1, false, &mut seen);
        watched.touch(page(1000, 6), 2, true, &mut seen);
        watched.touch(page(7, 0), 512, false, &mut seen);
        watched.touch(page(1000, 511), 16, true, &mut seen);
        // Numbered as they were seen, as long as there may be more of them.
        assert_eq!(seen.touched, [5..8, 512..1024, 511..512]);
        assert_eq!(seen.lower, [6..8, 511..512]);
        watched.intervals.push(Interval {
            number: 0,
            cpu_us: 0,
            touched: Touched::of(seen.touched),
            lower: Touched::of(seen.lower),
        });
        let process = watched.so_far().unwrap();
        assert_eq!((process.blocks, &process.cgroup[..]), (2, "/y"));
        let runs = |touched: &Touched| touched.runs().collect::<Vec<_>>();
        let interval = &process.intervals[0];
        assert_eq!(runs(&interval.touched), [0..512, 517..520, 1023..1024]);
        assert_eq!(runs(&interval.lower), [518..520, 1023..1024]);
    }

    #[test]
    fn a_page_frame_is_in_the_lower_tier_or_not() {
        let lower_tier = LowerTier(vec![10..20, 30..40]);
        let has: Vec<u64> = (0..50).filter(|pfn| lower_tier.has(*pfn)).collect();
        assert_eq!(has, (10..20).chain(30..40).collect::<Vec<_>>());
        assert!(!LowerTier(Vec::new()).has(0));
    }
}
