//! The kernel's decision about a page of the lower tier: room, a threshold that adapts, a rate
//! limit.
//!
//! From `should_numa_migrate_memory()` and its helpers in 7.2, the same in the kernel's pghot
//! proposal but for the reference of the threshold.

use crate::machine::PAGES_PER_MIB;
use crate::machine::world::World;

/// How often the threshold is adapted.
const ADJUST_MS: u64 = 60_000;
/// Steps of the threshold from 0 to twice its reference.
const STEPS: u64 = 16;
const RATE_WINDOW_MS: u64 = 1000;

/// What the kernel remembers per target node, in pages and ms.
#[derive(Debug, Clone, Default)]
pub struct KernelGate {
    threshold_ms: u64,
    adjusted_ms: u64,
    adjusted_candidates: u64,
    window_ms: u64,
    window_candidates: u64,
    candidates: u64,
}

impl KernelGate {
    /// Whether a folio may go to node `nid`; counts why not. `reference_ms` is what the threshold
    /// begins with.
    pub fn admit(
        &mut self,
        world: &mut World,
        nid: usize,
        pages: u32,
        latency_ms: u64,
        reference_ms: u64,
    ) -> bool {
        let now_ms = world.now_ms();
        let pages = u64::from(pages);
        if world.nodes[nid].has_plenty() {
            self.threshold_ms = 0;
            return true;
        }
        let limit =
            world.spec.kernel.promote_rate_limit_mbps * PAGES_PER_MIB / world.spec.page_weight;
        self.adjust(now_ms, limit, reference_ms);
        let threshold_ms = match self.threshold_ms {
            0 => reference_ms,
            adapted => adapted,
        };
        if latency_ms >= threshold_ms {
            world.counters.refused_cold_pages += pages;
            return false;
        }
        // Counted before the limit, so that refused pages raise the threshold too.
        self.candidates += pages;
        world.counters.candidate_pages += pages;
        if now_ms > self.window_ms + RATE_WINDOW_MS {
            (self.window_ms, self.window_candidates) = (now_ms, self.candidates);
        }
        if self.candidates - self.window_candidates >= limit {
            world.counters.refused_rate_pages += pages;
            return false;
        }
        true
    }

    fn adjust(&mut self, now_ms: u64, limit: u64, reference_ms: u64) {
        if now_ms <= self.adjusted_ms + ADJUST_MS {
            return;
        }
        let wanted = limit * (ADJUST_MS / 1000);
        let seen = self.candidates - self.adjusted_candidates;
        let unit = 2 * reference_ms / STEPS;
        let old = match self.threshold_ms {
            0 => reference_ms,
            adapted => adapted,
        };
        self.threshold_ms = if seen > wanted / 10 * 11 {
            old.saturating_sub(unit).max(unit)
        } else if seen < wanted / 10 * 9 {
            (old + unit).min(2 * reference_ms)
        } else {
            old
        };
        (self.adjusted_ms, self.adjusted_candidates) = (now_ms, self.candidates);
    }
}

/// Whether node `nid` can take a folio and stay above its high watermark; if not, kswapd is woken.
pub fn has_room(world: &mut World, nid: usize, pages: u32) -> bool {
    let node = &mut world.nodes[nid];
    if node.room() > u64::from(pages) {
        return true;
    }
    node.is_reclaiming = true;
    world.counters.refused_room_pages += u64::from(pages);
    false
}

/// Moves a folio in the faulting thread, and returns what that cost it, in ns; `None` if it stays.
pub fn promote_in_fault(world: &mut World, head: u32, pages: u32, nid: usize) -> Option<f64> {
    if !has_room(world, nid, pages) || !world.move_folio(head, pages, nid) {
        return None;
    }
    world.counters.promoted_in_fault_pages += u64::from(pages);
    Some(match pages {
        1 => world.spec.costs.move_alone_ns,
        _ => world.spec.costs.move_huge_ns,
    })
}
