//! NUMA balancing's scanner in tiering mode: some of a process's lower-tier pages are marked at
//! each visit, so that their next access faults.
//!
//! As in `task_numa_work()`: a visit goes on where the last one ended, until it has marked
//! something in `scan_size` of address space, or has gone through eight times as much, or is at the
//! end; the first period is the scan delay, and it is adapted when the address space was gone
//! through once. From the third pass on the kernel skips mappings in which the thread took no hint
//! fault lately, and visits one of them after the other by itself, since 6.7.

use crate::machine::memory::{ABSENT, HUGE_PAGES, MARKED, Page, Region, node_of};
use crate::machine::world::World;
use crate::machine::{KernelSpec, PAGES_PER_MIB};

/// The scanner may take 1/33 of a thread's time.
const REST_PER_WORK: f64 = 32.0;
/// Address space per second that no process exceeds, in MiB.
const MAX_SCAN_MIB_S: u64 = 2560;
/// Address space of one visit that has nothing to mark.
const VIRTUAL_FACTOR: u64 = 8;

/// The kernel's tick, at Debian's 250 Hz. A thread sees at a tick whether a visit is due, and two
/// ticks later if it made the last one. So visits are late by about a tick and a half.
const TICK_MS: u64 = 4;
const LATE_MS: u64 = TICK_MS * 3 / 2;

/// Times that the scanner goes through all mappings alike.
const PASSES_UNFILTERED: u64 = 2;

/// Where the scanner is in one process.
#[derive(Debug, Clone)]
pub struct Scan {
    due_ns: u64,
    period_ms: u64,
    next: Page,
    /// Other mappings, of which nothing is marked because all lies in the top tier.
    mappings: u32,
    /// Those to visit before the pass ends.
    mappings_left: u32,
    /// Times it went through the whole.
    pub passes: u64,
    /// Base pages promoted by faults since the last pass ended.
    promoted_pages: u64,
    /// Base pages marked beyond what the visits so far may, where a block is more than one visit's.
    owed_pages: u64,
}

impl Scan {
    /// Of a process that begins now, with so many other mappings.
    pub fn new(region: &Region, mappings: u32, kernel: &KernelSpec, now_ns: u64) -> Scan {
        Scan {
            due_ns: now_ns + kernel.scan_delay_ms * 1_000_000,
            // Not the minimum: that comes with the first adaptation.
            period_ms: kernel.scan_delay_ms,
            next: region.pages.start,
            mappings,
            mappings_left: 0,
            passes: 0,
            promoted_pages: 0,
            owed_pages: 0,
        }
    }

    /// Begins anew, as in a process that begins now.
    pub fn restart(&mut self, region: &Region, kernel: &KernelSpec, now_ns: u64) {
        *self = Scan::new(region, self.mappings, kernel, now_ns);
    }

    /// A fault of the process promoted pages.
    pub fn note_promoted(&mut self, pages: u64) {
        self.promoted_pages += pages;
    }

    /// A visit, if it is due: tells the newly marked folios, and returns what it took, in ns.
    pub fn step(&mut self, world: &mut World, region: &Region, sink: &mut dyn FnMut(Page)) -> f64 {
        let is_idle = world.scanner_rests || !region.backing.is_hinted();
        if world.now_ns < self.due_ns || is_idle {
            return 0.0;
        }
        let marked = match self.mappings_left {
            0 => self.visit(world, region, sink),
            _ => 0,
        };
        // A huge page has one entry.
        let entries = marked / u64::from(region.folio_pages);
        let spent_ns = entries as f64 * world.spec.costs.mark_ns;
        let period_ms = self.period_ms.next_multiple_of(TICK_MS) + LATE_MS;
        let rest_ns = (period_ms * 1_000_000).max((spent_ns * REST_PER_WORK) as u64);
        self.due_ns = world.now_ns + rest_ns;
        let is_filtered = self.passes >= PASSES_UNFILTERED;
        if self.mappings_left > 0 {
            self.mappings_left -= 1;
        } else if self.next >= region.pages.end && is_filtered {
            self.mappings_left = self.mappings;
        }
        if self.next >= region.pages.end && self.mappings_left == 0 {
            self.next = region.pages.start;
            self.passes += 1;
            self.adapt(region, &world.spec.kernel, world.spec.page_weight);
        }
        spent_ns
    }

    /// Marks the next pages; returns the base pages marked.
    fn visit(&mut self, world: &mut World, region: &Region, sink: &mut dyn FnMut(Page)) -> u64 {
        let weight = world.spec.page_weight;
        let budget = (world.spec.kernel.scan_size_mib * PAGES_PER_MIB / weight).max(1);
        let paid = self.owed_pages.min(budget);
        self.owed_pages -= paid;
        let mut left = budget - paid;
        let mut virtual_left = left * VIRTUAL_FACTOR;
        let mut marked = 0;
        while left > 0 && virtual_left > 0 && self.next < region.pages.end {
            let end = (self.next + HUGE_PAGES).min(region.pages.end);
            let length = u64::from(end - self.next);
            let here = mark_block(world, region, self.next..end, sink);
            if here > 0 {
                world.memory.stamp(self.next, world.now_ns);
                // Times of marks are kept by block, so it is marked whole, and visits are left out.
                self.owed_pages += length.saturating_sub(left);
                left = left.saturating_sub(length);
                marked += here;
            }
            virtual_left = virtual_left.saturating_sub(length);
            self.next = end;
        }
        world.counters.marked_pages += marked;
        marked
    }

    /// `update_task_scan_period()`: promotions by faults count as private faults, and the period
    /// gets a third longer. Other faults of the lower tier do not reach the statistics, so
    /// without such promotions the period stays what it is.
    fn adapt(&mut self, region: &Region, kernel: &KernelSpec, weight: u64) {
        let windows = (region.pages.len() as u64 * weight)
            .div_ceil(kernel.scan_size_mib * PAGES_PER_MIB)
            .max(1);
        let floor = 1000 * kernel.scan_size_mib / MAX_SCAN_MIB_S;
        let min = floor.max(kernel.scan_period_min_ms / windows).max(1);
        let max = min.max(kernel.scan_period_max_ms / windows);
        if std::mem::take(&mut self.promoted_pages) > 0 {
            let longer = self.period_ms + self.period_ms / 10 * 3;
            self.period_ms = longer.clamp(min, max);
        }
    }
}

/// Marks the folios of a block that are present, in the lower tier, and not marked.
fn mark_block(
    world: &mut World,
    region: &Region,
    pages: std::ops::Range<Page>,
    sink: &mut dyn FnMut(Page),
) -> u64 {
    let (nodes, above) = (&world.nodes, world.marks_above);
    let step = region.folio_pages;
    let mut marked = 0;
    let first = pages.start;
    let states = world.memory.states_mut(pages);
    for (at, state) in states.iter_mut().enumerate().step_by(step as usize) {
        let is_candidate =
            *state & (ABSENT | MARKED) == 0 && (above || !nodes[node_of(*state)].is_top_tier);
        if is_candidate {
            *state |= MARKED;
            marked += u64::from(step);
            sink(first + at as Page);
        }
    }
    marked
}
