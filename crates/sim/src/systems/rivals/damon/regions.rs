//! DAMON's monitoring: the pages of a node in regions, of each of which one page at a time is
//! sampled; regions that are alike grow together, and large ones are cut at random, so that what
//! differs comes apart.
//!
//! After `mm/damon/core.c` and `paddr.c` of 7.2, but for the tuning of the intervals: they are 5 ms
//! and 100 ms throughout.
//!
//! The model's pages keep their number when they move, so a node's regions go over all page
//! numbers, and a sample is drawn among the pages that are on the node now.

use std::ops::Range;

use pghot_workloads::random::XorShift;

use crate::machine::memory::{ABSENT, HUGE_PAGES, Memory, Page, node_of};
use crate::machine::world::World;

/// From one sample of each region to the next.
pub const SAMPLE_NS: u64 = 5_000_000;
/// From one count of accesses to the next.
pub const AGGREGATION_NS: u64 = 100_000_000;
/// What a region can count at most.
pub const ACCESSES_MAX: u32 = (AGGREGATION_NS / SAMPLE_NS) as u32;
const REGIONS_MIN: usize = 10;
const REGIONS_MAX: usize = 1000;
/// Draws of a sample page until one is on the node; a region that is almost all elsewhere goes
/// without.
const DRAWS: u32 = 16;

/// Pages that are taken to be alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// Those of other nodes among them do not belong to it.
    pub pages: Range<Page>,
    /// Samples with an access, in this aggregation interval.
    pub accesses: u32,
    /// The same, in the one before.
    pub last_accesses: u32,
    /// Aggregation intervals since that changed much.
    pub age: u32,
    sample: Option<Sample>,
}

/// A folio whose accessed bit was cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sample {
    head: Page,
    /// It was set before. DAMON leaves the fact in the page's flags, where reclaim finds it.
    was_accessed: bool,
}

/// The monitor of one node.
pub struct Monitor {
    /// The node.
    pub nid: usize,
    /// Its regions, by address, without gaps.
    pub regions: Vec<Region>,
    sampled_ns: u64,
    /// Their number after the last split.
    last_count: usize,
    random: XorShift,
}

impl Region {
    fn new(pages: Range<Page>) -> Region {
        Region {
            pages,
            accesses: 0,
            last_accesses: 0,
            age: 0,
            sample: None,
        }
    }

    /// Cuts off what is behind page `at`.
    pub fn split_off(&mut self, at: Page) -> Region {
        let rest = Region {
            pages: at..self.pages.end,
            sample: None,
            ..self.clone()
        };
        self.pages.end = at;
        rest
    }

    fn length(&self) -> u64 {
        self.pages.len() as u64
    }

    fn merge(&mut self, next: &Region) {
        let (own, other) = (self.length(), next.length());
        let mean = |a: u32, b: u32| {
            ((u64::from(a) * own + u64::from(b) * other) / (own + other).max(1)) as u32
        };
        self.accesses = mean(self.accesses, next.accesses);
        self.age = mean(self.age, next.age);
        self.last_accesses = mean(self.last_accesses, next.last_accesses);
        self.pages.end = next.pages.end;
    }
}

impl Monitor {
    /// Of node `nid`, in regions of equal length at first.
    pub fn new(nid: usize, end: Page, now_ns: u64, seed: u64) -> Monitor {
        let piece = (u64::from(end) / REGIONS_MIN as u64).max(1) as u32;
        let starts = (0..end).step_by(piece as usize);
        let regions = starts.map(|start| Region::new(start..end.min(start + piece)));
        Monitor {
            nid,
            regions: regions.collect(),
            sampled_ns: now_ns,
            last_count: 0,
            random: XorShift::new(seed),
        }
    }

    /// Looks at the samples taken before; returns how many accessed bits it read.
    pub fn check(&mut self, world: &mut World) -> u64 {
        let mut read = 0;
        for region in &mut self.regions {
            let Some(Sample { head, was_accessed }) = region.sample.take() else {
                continue;
            };
            read += 1;
            let World {
                heat,
                memory,
                now_ns,
                ..
            } = world;
            // Reads of page cache that nobody maps escape it where MGLRU is on.
            let is_here = memory.state(head) & ABSENT == 0 && memory.is_mapped(head);
            if is_here && heat.is_accessed_since(memory, head, self.sampled_ns, *now_ns) {
                region.accesses += 1;
            }
            if is_here && was_accessed {
                heat.put_back(memory, head);
            }
        }
        read
    }

    /// Takes a sample of each region; returns how many accessed bits it cleared.
    pub fn sample(&mut self, world: &mut World) -> u64 {
        self.sampled_ns = world.now_ns;
        let mut cleared = 0;
        for region in &mut self.regions {
            let random = &mut self.random;
            let head = draw(random, &world.memory, &region.pages, self.nid);
            region.sample = head.map(|head| Sample {
                head,
                was_accessed: world.heat.clear_one(&mut world.memory, head),
            });
            cleared += u64::from(region.sample.is_some());
        }
        cleared
    }

    /// An aggregation interval is over: ages, and merges what is alike. The counts are there until
    /// [`Monitor::begin`].
    pub fn end(&mut self) {
        let mut threshold = ACCESSES_MAX / 10;
        let total: u64 = self.regions.iter().map(Region::length).sum();
        let length_max = (total / REGIONS_MIN as u64).max(1);
        for region in &mut self.regions {
            let is_new = region.accesses.abs_diff(region.last_accesses) > threshold
                || (region.accesses == 0) != (region.last_accesses == 0);
            region.age = if is_new { 0 } else { region.age + 1 };
        }
        loop {
            self.merge(threshold, length_max);
            if self.regions.len() <= REGIONS_MAX || threshold >= ACCESSES_MAX {
                break;
            }
            threshold = (threshold * 2).max(1);
        }
    }

    fn merge(&mut self, threshold: u32, length_max: u64) {
        let mut merged: Vec<Region> = Vec::with_capacity(self.regions.len());
        for region in self.regions.drain(..) {
            match merged.last_mut() {
                Some(last)
                    if last.accesses.abs_diff(region.accesses) <= threshold
                        && last.length() + region.length() <= length_max =>
                {
                    last.merge(&region);
                }
                _ => merged.push(region),
            }
        }
        self.regions = merged;
    }

    /// The next aggregation interval: counts from 0, and cuts regions in two or three at random.
    pub fn begin(&mut self) {
        let count = self.regions.len();
        let pieces = match count {
            n if n > REGIONS_MAX / 2 => 1,
            n if n == self.last_count && n < REGIONS_MAX / 3 => 3,
            _ => 2,
        };
        let mut regions = Vec::with_capacity(count * pieces);
        for mut region in self.regions.drain(..) {
            (region.last_accesses, region.accesses) = (region.accesses, 0);
            for _ in 1..pieces {
                let tenths = 1 + u64::from(self.random.below(9));
                let first = region.length() * tenths / 10;
                if first == 0 || first >= region.length() {
                    continue;
                }
                let rest = region.split_off(region.pages.start + first as u32);
                regions.push(region);
                region = rest;
            }
            regions.push(region);
        }
        self.last_count = count;
        self.regions = regions;
    }
}

/// A folio on the node, of a random page among these.
fn draw(random: &mut XorShift, memory: &Memory, pages: &Range<Page>, nid: usize) -> Option<Page> {
    (0..DRAWS).find_map(|_| {
        let page = pages.start + random.below(pages.len() as u32);
        let region = memory.region_of(page)?;
        let head = Memory::head(page, region.folio_pages);
        let state = memory.state(head);
        (state & ABSENT == 0 && node_of(state) == nid).then_some(head)
    })
}

/// Shows the folios on a node whose first page is among these, as (first page, base pages), block
/// by block, until `sink` says stop.
pub fn folios_on(
    memory: &Memory,
    pages: Range<Page>,
    nid: usize,
    sink: &mut dyn FnMut(Page, u32) -> bool,
) {
    let mut next = pages.start;
    while next < pages.end {
        // Regions begin with a block.
        let block_end = (next / HUGE_PAGES + 1) * HUGE_PAGES;
        let Some(region) = memory.region_of(next) else {
            next = block_end;
            continue;
        };
        let end = block_end.min(pages.end).min(region.pages.end);
        let step = region.folio_pages;
        for head in (next.next_multiple_of(step)..end).step_by(step as usize) {
            let state = memory.state(head);
            if state & ABSENT == 0 && node_of(state) == nid && !sink(head, step) {
                return;
            }
        }
        next = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_alike_grows_together_and_what_differs_does_not() {
        let mut monitor = Monitor::new(1, 100_000, 0, 1);
        for _ in 0..5 {
            monitor.begin();
        }
        assert!(monitor.regions.len() > 100);
        for region in &mut monitor.regions {
            region.accesses = if region.pages.start < 50_000 { 20 } else { 0 };
        }
        monitor.end();
        assert!(monitor.regions.len() < 40, "{}", monitor.regions.len());
        let mut next = 0;
        for region in &monitor.regions {
            assert_eq!(region.pages.start, next, "a gap");
            assert!(region.accesses == 20 || region.accesses == 0);
            assert!(region.length() <= 10_000);
            next = region.pages.end;
        }
        assert_eq!(next, 100_000);
    }

    #[test]
    fn there_are_never_too_many() {
        let mut monitor = Monitor::new(1, 1 << 20, 0, 1);
        for _ in 0..30 {
            let random = &mut monitor.random;
            for region in &mut monitor.regions {
                region.accesses = random.below(21);
            }
            monitor.end();
            assert!(monitor.regions.len() <= REGIONS_MAX);
            monitor.begin();
        }
        assert!(monitor.regions.len() > REGIONS_MIN);
    }

    #[test]
    fn age_is_time_without_change() {
        let mut monitor = Monitor::new(1, 1000, 0, 1);
        let ages = [(10, 0), (10, 1), (11, 2), (14, 0), (14, 1), (0, 0), (1, 0)];
        for (accesses, age) in ages {
            let region = &mut monitor.regions[0];
            (region.last_accesses, region.accesses) = (region.accesses, accesses);
            monitor.end();
            assert_eq!(monitor.regions[0].age, age, "after {accesses}");
        }
    }
}
