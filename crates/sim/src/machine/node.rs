//! A node's memory: how much is free, the kernel's watermarks, and the lists that reclaim goes
//! through.

use super::lru::Lru;
use super::spec::{MachineSpec, NodeSpec, PAGES_PER_MIB};
use crate::kernel::reclaim::Aged;

/// The kernel's bounds of `min_free_kbytes`.
const MIN_FREE_KIB: (f64, f64) = (128.0, 262_144.0);

/// Since 6.7 a CPU's list of free pages that runs empty takes so many from the zone at once, or an
/// eighth of the CPU's part of the zone (`high_max`) if that is less.
const LIST_FILL_PAGES: u64 = 2016;
const LIST_FILL_SHARE: u64 = 8;

/// Free pages of a node that reclaim and promotion keep an eye on. See `mm/page_alloc.c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watermarks {
    /// Only the kernel itself may go below.
    pub min: u64,
    /// kswapd begins below.
    pub low: u64,
    /// And ends above, unless tiering is on.
    pub high: u64,
    /// Then it ends above this one, so that promotion finds room.
    pub promo: u64,
}

impl Watermarks {
    /// Of a node among nodes with so many pages in all, each of which stands for `weight`.
    fn new(spec: &NodeSpec, all_pages: u64, scale_factor: u64, weight: u64) -> Watermarks {
        let pages = spec.pages();
        let at_boot = || {
            let all_kib = (all_pages * weight) as f64 * 4.0;
            let min_kib = (all_kib * 16.0)
                .sqrt()
                .clamp(MIN_FREE_KIB.0, MIN_FREE_KIB.1);
            let min_pages = min_kib / 4.0 / weight as f64;
            (min_pages * pages as f64 / all_pages as f64) as u64
        };
        let min = spec.min_free_pages.unwrap_or_else(at_boot);
        let step = (min / 4).max(pages * scale_factor / 10_000);
        Watermarks {
            min,
            low: min + step,
            high: min + 2 * step,
            promo: min + 3 * step,
        }
    }
}

/// Of a folio, the pages that are parts of a huge one.
fn huge(pages: u32) -> u64 {
    if pages > 1 { pages.into() } else { 0 }
}

/// A node's memory.
#[derive(Debug, Clone)]
pub struct Node {
    /// All pages.
    pub pages: u64,
    /// Those that nobody has.
    pub free: u64,
    /// Those that are parts of huge ones.
    pub huge: u64,
    /// Where reclaim begins and ends.
    pub watermarks: Watermarks,
    /// Whether hot pages belong here.
    pub is_top_tier: bool,
    /// Offline nodes take no pages.
    pub is_online: bool,
    /// Whether kswapd is at work.
    pub is_reclaiming: bool,
    /// How far kswapd's work goes beyond this moment, in ns.
    pub reclaim_ahead_ns: f64,
    /// The folios here, if hot pages belong here.
    pub lru: Lru,
    /// What agings found, where hot pages do not belong.
    pub aged: Aged,
    /// See [`Node::has_plenty`].
    plenty: u64,
    /// See [`Node::room_beside_lists`].
    list_fill: u64,
}

impl Node {
    /// An empty node of a machine with so many pages in all.
    pub fn new(spec: &NodeSpec, all_pages: u64, machine: &MachineSpec) -> Node {
        let (pages, kernel, weight) = (spec.pages(), &machine.kernel, machine.page_weight);
        let scale_factor = kernel.watermark_scale_factor;
        Node {
            pages,
            free: pages,
            huge: 0,
            watermarks: Watermarks::new(spec, all_pages, scale_factor, weight),
            is_top_tier: spec.is_top_tier(),
            is_online: true,
            is_reclaiming: false,
            reclaim_ahead_ns: 0.0,
            lru: Lru::new(kernel.lru),
            aged: Aged::default(),
            plenty: (1024 * PAGES_PER_MIB / weight).max(pages / 16),
            list_fill: (LIST_FILL_PAGES / weight)
                .min(pages / LIST_FILL_SHARE / u64::from(spec.cpus.max(1))),
        }
    }

    /// A folio of so many pages comes.
    pub fn take(&mut self, pages: u32) {
        self.free -= u64::from(pages);
        self.huge += huge(pages);
    }

    /// It goes.
    pub fn give(&mut self, pages: u32) {
        self.free += u64::from(pages);
        self.huge -= huge(pages);
    }

    /// Pages that can be taken and still leave the high watermark free.
    pub fn room(&self) -> u64 {
        match self.is_online {
            true => self.free.saturating_sub(self.watermarks.high),
            false => 0,
        }
    }

    /// The same, but the low watermark stays free even if a CPU's list takes all that it may at
    /// once. pghot reckons so where it makes room itself (`crates/linux/src/watermarks.rs`).
    pub fn room_beside_lists(&self) -> u64 {
        self.room().min(
            self.free
                .saturating_sub(self.watermarks.low + self.list_fill),
        )
    }

    /// Pages that can be taken such that kswapd wakes up and makes room for more, and nobody has to
    /// reclaim for himself: down to half a step below the low watermark.
    pub fn room_with_reclaim(&self) -> u64 {
        let floor = (self.watermarks.min + self.watermarks.low) / 2;
        match self.is_online {
            true => self.free.saturating_sub(floor),
            false => 0,
        }
    }

    /// So much is free that the kernel promotes whatever faults: `pgdat_free_space_enough()`.
    pub fn has_plenty(&self) -> bool {
        self.is_online && self.free > self.watermarks.promo + self.plenty
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(memory_mib: u64) -> Node {
        let spec = NodeSpec {
            memory_mib,
            cpus: 1,
            latency_ns: vec![100.0],
            bandwidth_mib_s: None,
            min_free_pages: None,
        };
        let machine = crate::scenario::replay::machine_of(memory_mib, memory_mib);
        Node::new(&spec, spec.pages(), &machine)
    }

    #[test]
    fn watermarks_are_a_step_apart() {
        // 16 GiB: sqrt(16777216 KiB * 16) = 16384 KiB, and a thousandth of the node is more than a
        // quarter of that.
        let marks = node(16 << 10).watermarks;
        assert_eq!(marks.min, 4096);
        assert_eq!((marks.low, marks.high, marks.promo), (8290, 12_484, 16_678));
    }

    #[test]
    fn plenty_is_a_gigabyte_more_than_promotion_needs() {
        let mut node = node(4096);
        assert!(node.has_plenty());
        node.free = node.watermarks.promo + 1024 * PAGES_PER_MIB;
        assert!(!node.has_plenty());
        node.free = node.watermarks.high;
        assert_eq!(node.room(), 0);
        node.free += 5;
        assert_eq!(node.room(), 5);
    }

    #[test]
    fn a_list_may_take_more_than_lies_between_two_watermarks() {
        // A step of a node of 4 GiB is 1048 pages.
        let mut node = node(4096);
        node.free = node.watermarks.low + 2016;
        assert!(node.room() > 0);
        assert_eq!(node.room_beside_lists(), 0);
        node.free += 5;
        assert_eq!(node.room_beside_lists(), 5);
        node.is_online = false;
        assert_eq!(node.room(), 0);
    }
}
