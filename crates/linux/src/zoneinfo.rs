//! What `/proc/zoneinfo` says: watermarks and free pages of each zone, and seven lines for each
//! CPU, of which a few matter, so they are passed over until one is asked for.

/// More than any kernel's MAX_NR_ZONES (6).
const MAX_ZONES: usize = 8;

/// More than any machine has; so sums of counts that are below it fit into an `i64`.
const MAX_PAGES: u64 = 1 << 52;

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
    pub(crate) fn parse(name: &str) -> Self {
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

    /// Whether it is room for pages of programs. They may fall back to ZONE_DMA, but are not meant
    /// to.
    pub(crate) fn takes_programs(self) -> bool {
        matches!(self, Self::Dma32 | Self::Normal | Self::Movable)
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
    /// Where the lists of its CPUs begin in the text; `None` if it has none.
    lists_at: Option<usize>,
}

impl Zone {
    fn new(nid: u32, kind: ZoneKind) -> Self {
        Self {
            nid,
            kind,
            free_pages: 0,
            min_pages: 0,
            low_pages: 0,
            high_pages: 0,
            promo_pages: None,
            present_pages: 0,
            managed_pages: 0,
            free_cma_pages: 0,
            protection_pages: [0; MAX_ZONES],
            lists_at: None,
        }
    }

    /// The promo watermark: as printed, or one more watermark step above high
    /// (`__setup_per_zone_wmarks()`: the distances min-low-high-promo are equal).
    pub(crate) fn promo_or_derived_pages(&self) -> u64 {
        let step_pages = self.high_pages.saturating_sub(self.low_pages);
        self.promo_pages.unwrap_or(self.high_pages + step_pages)
    }

    /// Free pages in the list of a CPU, of the text that the zone was read from; 0 if there is
    /// none. Its line `cpu: N` is followed by `count: N`.
    pub fn list_pages(&self, text: &str, cpu: u32) -> u64 {
        let mut lines = self.lines_of_lists(text);
        let is_wanted = |line| number(line, "cpu:") == Some(u64::from(cpu));
        let count = lines
            .find(|line| is_wanted(line))
            .and_then(|_| lines.next());
        count
            .and_then(|line| number(line, "count:"))
            .unwrap_or_default()
    }

    /// The longest that a list may grow, which is the same for all CPUs; `None` if this kernel does
    /// not print it.
    pub fn list_pages_max(&self, text: &str) -> Option<u64> {
        let lists = self.lines_of_lists(text).skip(1);
        let mut first = lists.take_while(|line| !line.starts_with("cpu:"));
        first.find_map(|line| number(line, "high_max:"))
    }

    fn lines_of_lists<'a>(&self, text: &'a str) -> impl Iterator<Item = &'a str> {
        let lists = self.lists_at.and_then(|at| text.get(at..));
        let lines = lists.unwrap_or_default().lines();
        lines
            .take_while(|line| !line.starts_with("Node "))
            .map(str::trim_ascii)
    }
}

fn number(line: &str, name: &str) -> Option<u64> {
    parse_pages(line.strip_prefix(name)?.trim_ascii())
}

/// Parses `/proc/zoneinfo` (`zoneinfo_show_print()` in mm/vmstat.c), replacing `zones`.
///
/// A zone's text starts with a line `Node N, zone NAME` at the margin. What follows the watermark
/// block is five lines or more for each CPU; the first of them ends the zone here, and a search for
/// the next capital N skips the rest at the speed of memchr. On failure returns the offending line.
pub fn parse(text: &str, zones: &mut Vec<Zone>) -> Result<(), String> {
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
                zone.lists_at = Some(text.len() - after.len());
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
        let values = list.split(", ").map(parse_pages);
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
    *field = parse_pages(value)?;
    Some(())
}

fn parse_pages(value: &str) -> Option<u64> {
    value.parse().ok().filter(|pages| *pages < MAX_PAGES)
}
