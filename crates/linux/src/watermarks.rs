//! Reads free pages and watermarks of every zone, and says how many pages a promotion may take.
//!
//! `move_pages(2)` allocates *with* direct reclaim and no look at the high watermark, unlike the
//! kernel's own promotion. This gate is what keeps pghot from pushing a full node into direct
//! reclaim.
//!
//! It is asked before each batch, and what it reads grows with CPUs times zones: 3.6 ms on a host
//! of 512 CPUs and eight nodes, as long as a batch takes. So reading `/proc/zoneinfo` may take a
//! hundredth of the time. In between a node's free pages tell how its room has changed since.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::PathBuf;
use std::time::Instant;

use crate::free_pages::FreePages;
use crate::root::{ReadError, SysRoot};
use crate::topology::PAGE_SHIFT;
use crate::zoneinfo::{self, Zone, ZoneKind};

/// See the head of this file. On a machine of a few CPUs that is every few milliseconds.
const READ_SHARE: u64 = 100;

/// The longest that watermarks are taken for unchanged, in ns: the reader may have been delayed
/// while it read.
const KNOWN_NS: u64 = 1_000_000_000;

/// `pgdat_free_space_enough()`: 1 GiB, in pages.
const ENOUGH_FREE_PAGES: u64 = (1 << 30) >> PAGE_SHIFT;

/// A per-CPU list is filled up from its zone when it runs empty: by `zone_batchsize()` at most,
/// which doubles each time that nothing was freed in between, up to 32 times it
/// (`CONFIG_PCP_BATCH_SCALE_MAX`, since 6.7).
const LIST_BATCH_PAGES: u64 = 64;
const LIST_FILL_MAX_PAGES: u64 = LIST_BATCH_PAGES << 5;

/// All zones of the machine at one moment, and what has changed since.
#[derive(Debug)]
pub struct Watermarks {
    path: PathBuf,
    /// Kept open: the kernel keeps its output buffer with the open file, and growing that buffer
    /// means formatting a node anew at each doubling.
    file: File,
    text: String,
    zones: Vec<Zone>,
    /// Place of ZONE_MOVABLE in `enum zone_type` of this kernel.
    movable_index: usize,
    /// Until when only free pages are read.
    due_ns: u64,
    free_pages: FreePages,
    /// By node, how many more pages are free than when its zones were read.
    more_pages: BTreeMap<u32, i64>,
    /// By node, how many were taken since then by who asks.
    taken_pages: BTreeMap<u32, u64>,
}

impl Watermarks {
    /// Opens `/proc/zoneinfo` and reads it once.
    pub fn open(root: &SysRoot) -> Result<Self, ReadError> {
        let path = root.proc.join("zoneinfo");
        let file = File::open(&path).map_err(|source| ReadError::io(&path, source))?;
        let mut watermarks = Self {
            path,
            file,
            text: String::new(),
            zones: Vec::new(),
            movable_index: 0,
            due_ns: 0,
            free_pages: FreePages::new(root),
            more_pages: BTreeMap::new(),
            taken_pages: BTreeMap::new(),
        };
        watermarks.refresh()?;
        Ok(watermarks)
    }

    /// Reads all zones again; allocates only when the machine has grown.
    pub fn refresh(&mut self) -> Result<(), ReadError> {
        self.more_pages.clear();
        self.taken_pages.clear();
        self.read_text()
            .map_err(|source| ReadError::io(&self.path, source))?;
        zoneinfo::parse(&self.text, &mut self.zones)
            .map_err(|line| ReadError::malformed(&self.path, "a zoneinfo line", &line))?;
        let Some(first) = self.zones.first() else {
            return Err(ReadError::malformed(&self.path, "a list of zones", ""));
        };
        // Every node prints every zone type in order, so its place in the list is its number.
        let mut of_first_node = self.zones.iter().take_while(|zone| zone.nid == first.nid);
        self.movable_index = of_first_node
            .position(|zone| zone.kind == ZoneKind::Movable)
            .unwrap_or(0);
        Ok(())
    }

    /// Learns what there is room for on a node, at a time of any clock: reads all zones, or the
    /// free pages of this node where reading all would take more than its share of the time.
    pub fn refresh_node(&mut self, nid: u32, now_ns: u64) -> Result<(), ReadError> {
        if now_ns < self.due_ns
            && let Some(free_pages) = self.free_pages.of_node(nid)
        {
            let zones = self.zones.iter().filter(|zone| zone.nid == nid);
            let then: u64 = zones.map(|zone| zone.free_pages).sum();
            let more_pages = free_pages as i64 - then as i64;
            self.more_pages.insert(nid, more_pages);
            return Ok(());
        }
        self.due_ns = 0;
        let began = Instant::now();
        self.refresh()?;
        let took_ns = began.elapsed().as_nanos() as u64;
        self.due_ns = now_ns + took_ns.saturating_mul(READ_SHARE).min(KNOWN_NS);
        Ok(())
    }

    /// Takes note that so many pages of a node were taken: those in a CPU's list went first, and
    /// only reading all zones tells how many are left in it.
    pub fn note_taken(&mut self, nid: u32, pages: u64) {
        *self.taken_pages.entry(nid).or_default() += pages;
    }

    /// The populated and unpopulated zones as they were read last, in the file's order.
    pub fn zones(&self) -> &[Zone] {
        &self.zones
    }

    /// Pages that may be promoted to a node without waking reclaim there; 0 for an unknown node.
    ///
    /// The sum over its zones of `free - (high + lowmem_reserve for movable allocations)`, where
    /// positive. The kernel's `migrate_balanced_pgdat()` asks, before every single folio, for one
    /// managed zone above `high + reserve + nr`. The sum is the same test for a whole batch: after
    /// taking that many pages from wherever the allocator likes, at least one zone is still at or
    /// above its mark, which is what `pgdat_balanced()` and kswapd look at.
    ///
    /// Pages in per-CPU lists are free as well, though the kernel's tests pass over them: what
    /// demotion frees goes there first. Only its own CPU allocates from a list, so only the list of
    /// `at_cpu`, where the pages will be moved, counts. Should they be moved at another CPU after
    /// all, they come from the zone itself; so no more count than leave it half a step above its
    /// low watermark, where kswapd is woken.
    ///
    /// A refill of that list may take far more from the zone than the batch needs. So that much
    /// stays above the low watermark, which matters in zones of less than 8 GiB, where the high
    /// watermark is nearer.
    ///
    /// Conservative in two ways: ZONE_DMA is not counted, though movable allocations may fall
    /// back to it; a zone below its mark counts as 0. Not seen: free pages in high-order atomic
    /// reserves, which the kernel does not print.
    pub fn room_pages(&self, nid: u32, at_cpu: Option<u32>) -> u64 {
        let taken = self.taken_pages.get(&nid).copied().unwrap_or(0);
        self.above(nid, |zone| {
            let list = at_cpu.map_or(0, |cpu| zone.list_pages(&self.text, cpu));
            let at_hand = list.saturating_sub(taken + LIST_BATCH_PAGES) as i64;
            let beyond = |mark_pages: u64| zone.free_pages as i64 - mark_pages as i64;
            let fill = zone.list_pages_max(&self.text).unwrap_or(0);
            let low_and_fill = zone.low_pages + fill.min(LIST_FILL_MAX_PAGES);
            (beyond(zone.high_pages.max(low_and_fill)) + at_hand)
                .min(beyond(zone.low_pages.midpoint(zone.high_pages)))
        })
    }

    /// The same where reclaim demotes: pages that may be promoted such that kswapd wakes up and
    /// makes room for more. Half a step below the low watermark, where it is woken, and half a
    /// step above the minimum, where whoever allocates must reclaim for himself.
    ///
    /// Above the high watermark alone, nothing wakes it: a node that filled up with idle memory
    /// would stay full of it. The kernel's own promotion calls it by name, which
    /// `move_pages(2)` does not.
    pub fn room_with_reclaim_pages(&self, nid: u32) -> u64 {
        self.above(nid, |zone| {
            zone.free_pages as i64 - zone.min_pages.midpoint(zone.low_pages) as i64
        })
    }

    /// The least that the zones of a node have above their marks and reserves now, of what they had
    /// above their marks (or below: negative) when they were read.
    ///
    /// Those that take pages of programs, but for ZONE_DMA.
    fn above(&self, nid: u32, beyond_mark: impl Fn(&Zone) -> i64) -> u64 {
        let of_node = self.zones.iter().filter(|zone| zone.nid == nid);
        let zones = of_node.filter(|zone| zone.managed_pages > 0 && zone.kind.takes_programs());
        let (mut above, mut missing) = (0, None);
        for zone in zones {
            let pages = beyond_mark(zone) - self.reserve_pages(zone) as i64;
            above += pages.max(0);
            *missing.get_or_insert(0) += (-pages).max(0);
        }
        // Free pages of a node that has no such zone are room for nobody.
        let more = self.more_pages.get(&nid).copied().unwrap_or(0);
        missing.map_or(0, |missing| least_above(above, missing, more))
    }

    /// Whether the kernel promotes to this node at the first hint fault, whatever the thresholds
    /// and rate limits say.
    ///
    /// `pgdat_free_space_enough()` in kernel/sched/fair.c: any populated zone with
    /// `free - free CMA > promo + max(1 GiB, node_present_pages / 16) + lowmem_reserve[MOVABLE]`.
    pub fn free_space_shortcut(&self, nid: u32) -> bool {
        let of_node = || self.zones.iter().filter(move |zone| zone.nid == nid);
        let present_pages: u64 = of_node().map(|zone| zone.present_pages).sum();
        let enough_pages = ENOUGH_FREE_PAGES.max(present_pages / 16);
        of_node().filter(|zone| zone.present_pages > 0).any(|zone| {
            let mark_pages =
                zone.promo_or_derived_pages() + enough_pages + self.reserve_pages(zone);
            zone.free_pages.saturating_sub(zone.free_cma_pages) > mark_pages
        })
    }

    /// `lowmem_reserve[ZONE_MOVABLE]`, which every movable user allocation must leave free.
    fn reserve_pages(&self, zone: &Zone) -> u64 {
        zone.protection_pages[self.movable_index]
    }

    fn read_text(&mut self) -> std::io::Result<()> {
        self.file.rewind()?;
        self.text.clear();
        self.file.read_to_string(&mut self.text)?;
        Ok(())
    }
}

/// Pages above the marks of a node's zones, of which there were so many, and so many missing in
/// zones below their marks, before so many more pages of the node were free. Nobody says in which
/// zone they are: at worst those that went were above a mark, and those that came fill up first
/// what is missing.
fn least_above(above: i64, missing: i64, more: i64) -> u64 {
    let risen = match more {
        ..0 => more,
        _ => (more - missing).max(0),
    };
    (above + risen).max(0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_one_zone_it_is_exact() {
        assert_eq!(least_above(100, 0, 0), 100);
        assert_eq!(least_above(100, 0, 50), 150);
        assert_eq!(least_above(100, 0, -50), 50);
        assert_eq!(least_above(100, 0, -150), 0);
        assert_eq!(least_above(0, 100, 50), 0);
        assert_eq!(least_above(0, 100, 150), 50);
        assert_eq!(least_above(0, 100, -50), 0);
    }

    #[test]
    fn of_several_it_is_never_too_much() {
        for (first, second) in [(70, -40), (-70, -40), (70, 40), (0, 0), (-5, 90)] {
            let sum = |first: i64, second: i64| first.max(0) + second.max(0);
            for (more_first, more_second) in [(30, 60), (-30, -60), (60, 0), (0, 60), (0, -80)] {
                let now = sum(first + more_first, second + more_second);
                let above = sum(first, second);
                let missing = sum(-first, -second);
                let least = least_above(above, missing, more_first + more_second) as i64;
                assert!(least <= now, "{first} {second} {more_first} {more_second}");
            }
        }
    }
}
