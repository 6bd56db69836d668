//! Reads free pages and watermarks of every zone, and says how many pages a promotion may take.
//!
//! `move_pages(2)` allocates *with* direct reclaim and no look at the high watermark, unlike the
//! kernel's own promotion. This gate is what keeps pghot from pushing a full node into direct
//! reclaim.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::PathBuf;

use crate::root::{ReadError, SysRoot};
use crate::topology::PAGE_SHIFT;

/// More than any kernel's MAX_NR_ZONES (6).
const MAX_ZONES: usize = 8;

/// `pgdat_free_space_enough()`: 1 GiB, in pages.
const ENOUGH_FREE_PAGES: u64 = (1 << 30) >> PAGE_SHIFT;

/// A per-CPU list is filled up from its zone when it runs empty: `zone_batchsize()` at most.
const LIST_BATCH_PAGES: u64 = 64;

/// Zone types, in the kernel's order (`enum zone_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZoneKind {
    /// Below 16 MiB on x86.
    Dma,
    /// Below 4 GiB.
    Dma32,
    /// The rest of directly mapped memory.
    Normal,
    /// 32-bit kernels only.
    HighMem,
    /// Movable allocations only.
    Movable,
    /// Device memory, never allocated from.
    Device,
    /// A type this crate does not know; never counted as room.
    Other,
}

impl ZoneKind {
    fn parse(name: &str) -> Self {
        match name {
            "DMA" => Self::Dma,
            "DMA32" => Self::Dma32,
            "Normal" => Self::Normal,
            "HighMem" => Self::HighMem,
            "Movable" => Self::Movable,
            "Device" => Self::Device,
            _ => Self::Other,
        }
    }
}

/// One zone of one node; all counts in base pages. Watermarks include a temporary boost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zone {
    /// The node.
    pub nid: u32,
    /// Its type.
    pub kind: ZoneKind,
    /// Free pages, without those in per-CPU lists.
    pub free_pages: u64,
    /// Free pages in the list of the CPU that is [looked from](Watermarks::look_from).
    pub at_hand_pages: u64,
    /// Below: direct reclaim.
    pub min_pages: u64,
    /// Below: kswapd wakes.
    pub low_pages: u64,
    /// kswapd's goal with memory tiering off; the kernel promotes only above it.
    pub high_pages: u64,
    /// kswapd's goal with memory tiering on; `None` if this kernel does not print it.
    pub promo_pages: Option<u64>,
    /// Physically present.
    pub present_pages: u64,
    /// Managed by the buddy allocator.
    pub managed_pages: u64,
    /// Free pages reserved for CMA, part of `free_pages`.
    pub free_cma_pages: u64,
    /// `lowmem_reserve`: pages kept from an allocation that could have used a higher zone, by the
    /// highest zone it could have used.
    pub protection_pages: [u64; MAX_ZONES],
}

impl Zone {
    fn new(nid: u32, kind: ZoneKind) -> Self {
        Self {
            nid,
            kind,
            free_pages: 0,
            at_hand_pages: 0,
            min_pages: 0,
            low_pages: 0,
            high_pages: 0,
            promo_pages: None,
            present_pages: 0,
            managed_pages: 0,
            free_cma_pages: 0,
            protection_pages: [0; MAX_ZONES],
        }
    }

    /// The promo watermark: as printed, or one more watermark step above high
    /// (`__setup_per_zone_wmarks()`: the distances min-low-high-promo are equal).
    fn promo_or_derived_pages(&self) -> u64 {
        let step_pages = self.high_pages.saturating_sub(self.low_pages);
        self.promo_pages.unwrap_or(self.high_pages + step_pages)
    }
}

/// All zones of the machine at one moment.
#[derive(Debug)]
pub struct Watermarks {
    path: PathBuf,
    /// Kept open: the kernel keeps its output buffer with the open file, and growing that buffer
    /// means formatting a node anew at each doubling.
    file: File,
    buffer: Vec<u8>,
    zones: Vec<Zone>,
    /// Whose list is at hand.
    cpu: Option<u32>,
    /// Place of ZONE_MOVABLE in `enum zone_type` of this kernel.
    movable_index: usize,
}

impl Watermarks {
    /// Opens `/proc/zoneinfo` and reads it once.
    pub fn open(root: &SysRoot) -> Result<Self, ReadError> {
        let path = root.proc.join("zoneinfo");
        let file = File::open(&path).map_err(|source| ReadError::io(&path, source))?;
        let mut watermarks = Self {
            path,
            file,
            buffer: vec![0; 64 << 10],
            zones: Vec::new(),
            cpu: None,
            movable_index: 0,
        };
        watermarks.refresh()?;
        Ok(watermarks)
    }

    /// From now on the free pages in the lists of a CPU are at hand: pages will be moved there.
    pub fn look_from(&mut self, cpu: Option<u32>) {
        self.cpu = cpu;
    }

    /// Reads again; allocates only when the machine has grown.
    pub fn refresh(&mut self) -> Result<(), ReadError> {
        let bytes = self
            .read_file()
            .map_err(|source| ReadError::io(&self.path, source))?;
        let text = std::str::from_utf8(&self.buffer[..bytes])
            .map_err(|_| ReadError::malformed(&self.path, "text", "not UTF-8"))?;
        parse_zoneinfo(text, self.cpu, &mut self.zones)
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

    /// The populated and unpopulated zones, in the file's order.
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
    /// demotion frees goes there first. Only its own CPU allocates from a list, so only the list at
    /// hand counts. Should the pages be moved at another CPU after all, they come from the zone
    /// itself; so no more count than leave it half a step above its low watermark, where kswapd is
    /// woken.
    ///
    /// Conservative in two ways: ZONE_DMA is not counted, though movable allocations may fall
    /// back to it; a zone below its mark counts as 0. Not seen: free pages in high-order atomic
    /// reserves, which the kernel does not print.
    pub fn room_pages(&self, nid: u32) -> u64 {
        let room = |zone: &Zone| {
            let at_hand_pages = zone.at_hand_pages.saturating_sub(LIST_BATCH_PAGES);
            (zone.free_pages + at_hand_pages)
                .saturating_sub(zone.high_pages + self.reserve_pages(zone))
                .min(self.pages_above(zone, |zone| zone.low_pages.midpoint(zone.high_pages)))
        };
        self.of_node(nid).map(room).sum()
    }

    /// The same where reclaim demotes: pages that may be promoted such that kswapd wakes up and
    /// makes room for more. Half a step below the low watermark, where it is woken, and half a
    /// step above the minimum, where whoever allocates must reclaim for himself.
    ///
    /// Above the high watermark alone, nothing wakes it: a node that filled up with idle memory
    /// would stay full of it. The kernel's own promotion calls it by name, which
    /// `move_pages(2)` does not.
    pub fn room_with_reclaim_pages(&self, nid: u32) -> u64 {
        let mark = |zone: &Zone| zone.min_pages.midpoint(zone.low_pages);
        self.of_node(nid)
            .map(|zone| self.pages_above(zone, mark))
            .sum()
    }

    /// The zones of a node that take pages of programs, but for ZONE_DMA.
    fn of_node(&self, nid: u32) -> impl Iterator<Item = &Zone> {
        self.zones
            .iter()
            .filter(move |zone| zone.nid == nid && zone.managed_pages > 0)
            .filter(|zone| {
                matches!(
                    zone.kind,
                    ZoneKind::Dma32 | ZoneKind::Normal | ZoneKind::Movable
                )
            })
    }

    fn pages_above(&self, zone: &Zone, mark: fn(&Zone) -> u64) -> u64 {
        zone.free_pages
            .saturating_sub(mark(zone) + self.reserve_pages(zone))
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

    fn read_file(&mut self) -> std::io::Result<usize> {
        self.file.rewind()?;
        let mut bytes = 0;
        loop {
            if bytes == self.buffer.len() {
                self.buffer.resize(bytes * 2, 0);
            }
            match self.file.read(&mut self.buffer[bytes..]) {
                Ok(0) => return Ok(bytes),
                Ok(more) => bytes += more,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Parses `/proc/zoneinfo` (`zoneinfo_show_print()` in mm/vmstat.c), replacing `zones`.
///
/// A zone's text starts with a line `Node N, zone NAME` at the margin. What follows the watermark
/// block is five lines or more for each CPU; the first of them ends the zone here, and a search for
/// the next capital N skips the rest at the speed of memchr, but for the list of `cpu`. On failure
/// returns the offending line.
pub fn parse_zoneinfo(text: &str, cpu: Option<u32>, zones: &mut Vec<Zone>) -> Result<(), String> {
    zones.clear();
    let mut rest = text;
    while let Some(header_at) = find_header(rest) {
        rest = &rest[header_at..];
        let (header, body) = rest.split_once('\n').unwrap_or((rest, ""));
        let (nid, kind) = parse_header(header).ok_or_else(|| header.to_owned())?;
        let mut zone = Zone::new(nid, kind);
        rest = body;
        while !rest.is_empty() && !rest.starts_with("Node ") {
            let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
            if line.starts_with("  pagesets") {
                zone.at_hand_pages = cpu.map_or(Ok(0), |cpu| count_at(after, cpu))?;
                break;
            }
            take_line(&mut zone, line).ok_or_else(|| line.to_owned())?;
            rest = after;
        }
        zones.push(zone);
    }
    Ok(())
}

/// Offset of the next line that starts with `Node `.
fn find_header(text: &str) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + text[from..].find('N')?;
        let at_margin = at == 0 || text.as_bytes()[at - 1] == b'\n';
        if at_margin && text[at..].starts_with("Node ") {
            return Some(at);
        }
        from = at + 1;
    }
}

/// Pages in the list of a CPU, of the lists that the text begins with; 0 if it has none. Its line
/// `cpu: N` is followed by `count: N`.
fn count_at(lists: &str, cpu: u32) -> Result<u64, String> {
    let lines = lists.lines().take_while(|line| !line.starts_with("Node "));
    let mut lines = lines.map(str::trim_ascii);
    let number = |line: &str, name| line.strip_prefix(name)?.trim_ascii().parse().ok();
    if !lines.any(|line| number(line, "cpu:") == Some(u64::from(cpu))) {
        return Ok(0);
    }
    let line = lines.next().unwrap_or_default();
    number(line, "count:").ok_or_else(|| line.to_owned())
}

/// `Node 0, zone   Normal`
fn parse_header(line: &str) -> Option<(u32, ZoneKind)> {
    let (nid, name) = line.strip_prefix("Node ")?.split_once(", zone")?;
    Some((nid.parse().ok()?, ZoneKind::parse(name.trim())))
}

/// Notes a line that matters; `None` if such a line has no number. Others are passed over.
fn take_line(zone: &mut Zone, line: &str) -> Option<()> {
    let line = line.trim_ascii();
    if let Some(list) = line.strip_prefix("protection:") {
        let list = list.trim().strip_prefix('(')?.strip_suffix(')')?;
        let values = list.split(", ").map(|value| value.parse().ok());
        for (slot, value) in zone.protection_pages.iter_mut().zip(values) {
            *slot = value?;
        }
        return Some(());
    }
    let Some((name, value)) = line.rsplit_once(' ') else {
        return Some(());
    };
    let field = match name.trim_ascii_end() {
        "pages free" => &mut zone.free_pages,
        "min" => &mut zone.min_pages,
        "low" => &mut zone.low_pages,
        "high" => &mut zone.high_pages,
        "promo" => zone.promo_pages.insert(0),
        "present" => &mut zone.present_pages,
        "managed" => &mut zone.managed_pages,
        "nr_free_cma" => &mut zone.free_cma_pages,
        _ => return Some(()),
    };
    *field = value.parse().ok()?;
    Some(())
}
