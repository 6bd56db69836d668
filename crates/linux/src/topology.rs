//! Reads which nodes this machine has, which of them are the lower tier, and where their pages lie.
//!
//! A snapshot: memory may be onlined or offlined later, so whoever holds one re-reads it on a
//! memory hotplug event.

use std::path::Path;

use crate::root::{ReadError, SysRoot, numbered_entries, read_optional, read_text};

/// log2 of the base page in bytes; a PFN is a physical address shifted right by this.
pub const PAGE_SHIFT: u32 = 12;

/// No kernel has more nodes or CPUs than this; keeps a damaged list from filling memory.
const MAX_LIST_ID: u32 = 1 << 20;

/// Page frames `start..end` that belong to one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeRange {
    /// First page frame number.
    pub start: u64,
    /// One past the last page frame number.
    pub end: u64,
    /// The node.
    pub nid: u32,
}

impl NodeRange {
    /// Length in base pages.
    pub fn pages(&self) -> u64 {
        self.end - self.start
    }
}

/// One online NUMA node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Node id.
    pub nid: u32,
    /// Online CPUs; empty for a node of memory only, as most lower-tier nodes are.
    pub cpus: Vec<u32>,
    /// `MemTotal` of the node: pages the buddy allocator manages, in MiB. 0 for a memoryless node.
    pub memory_mib: u64,
    /// Online memory blocks, ascending, neighbours merged. A block may contain small holes.
    pub memory: Vec<NodeRange>,
    /// (nid, ACPI SLIT distance) to every online node; 10 is the node itself.
    pub distances: Vec<(u32, u32)>,
    /// `memory_tierN` that holds the node; smaller is faster. `None` without memory.
    pub tier_id: Option<u32>,
}

impl Node {
    /// SLIT distance to another node.
    pub fn distance_to(&self, nid: u32) -> Option<u32> {
        self.distances
            .iter()
            .find(|(to, _)| *to == nid)
            .map(|(_, distance)| *distance)
    }
}

/// One memory tier: nodes of about the same speed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tier {
    /// Abstract distance divided by the kernel's tier width (128); DRAM is 4 by default.
    pub id: u32,
    /// Its nodes.
    pub nids: Vec<u32>,
}

/// The nodes and tiers of one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// Online nodes by ascending nid; ids may have gaps.
    pub nodes: Vec<Node>,
    /// Memory tiers, fastest first; empty where the kernel has no memory tiering.
    pub tiers: Vec<Tier>,
    /// Unit of memory hotplug in bytes; `None` without CONFIG_MEMORY_HOTPLUG, and then no node
    /// has PFN ranges either.
    pub memory_block_bytes: Option<u64>,
}

impl Topology {
    /// Reads sysfs once.
    pub fn read(root: &SysRoot) -> Result<Self, ReadError> {
        let memory_block_bytes = read_block_bytes(root)?;
        let tiers = read_tiers(root)?;
        let nodes_dir = root.sys.join("devices/system/node");
        let online = read_list(&nodes_dir.join("online"))?;
        let mut nodes = Vec::with_capacity(online.len());
        for &nid in &online {
            let dir = nodes_dir.join(format!("node{nid}"));
            nodes.push(Node {
                nid,
                cpus: read_list(&dir.join("cpulist"))?,
                memory_mib: read_memory_mib(&dir)?,
                memory: match memory_block_bytes {
                    Some(bytes) => read_memory_blocks(&dir, nid, bytes >> PAGE_SHIFT)?,
                    None => Vec::new(),
                },
                distances: read_distances(&dir, &online)?,
                tier_id: tiers
                    .iter()
                    .find(|tier| tier.nids.contains(&nid))
                    .map(|tier| tier.id),
            });
        }
        Ok(Self {
            nodes,
            tiers,
            memory_block_bytes,
        })
    }

    /// CPUs of all nodes.
    pub fn cpus(&self) -> u64 {
        self.nodes.iter().map(|node| node.cpus.len() as u64).sum()
    }

    /// The node, if it is online.
    pub fn node(&self, nid: u32) -> Option<&Node> {
        self.nodes.iter().find(|node| node.nid == nid)
    }

    /// The slowest tier that still counts as top: the greatest tier id which holds a CPU.
    ///
    /// `establish_demotion_targets()` in mm/memory-tiers.c computes the same from abstract
    /// distances. A CPU-less node that shares a tier with CPUs is therefore top tier. If no tier
    /// holds a CPU, the kernel calls no tier top, and neither do we.
    pub fn slowest_top_tier_id(&self) -> Option<u32> {
        self.nodes
            .iter()
            .filter(|node| !node.cpus.is_empty())
            .filter_map(|node| node.tier_id)
            .max()
    }

    /// Whether the kernel's `node_is_toptier()` denies this node; false for an unknown node.
    ///
    /// A node without a tier (no memory, or no memory tiering in this kernel) is top tier.
    pub fn is_lower(&self, nid: u32) -> bool {
        self.node(nid)
            .is_some_and(|node| node.tier_id > self.slowest_top_tier_id())
    }

    /// Nodes whose pages need no promotion and which have memory to promote to.
    pub fn top_tier_nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes
            .iter()
            .filter(|node| node.memory_mib > 0 && !self.is_lower(node.nid))
    }

    /// Nodes whose pages may be promoted.
    pub fn lower_tier_nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| self.is_lower(node.nid))
    }

    /// All lower-tier page frames, ascending, disjoint, neighbours of one node merged.
    ///
    /// A memory block that straddles a node boundary at boot is listed by sysfs under both nodes.
    /// Two lower-tier nodes then claim the same frames; they are given to the range that starts
    /// first, because a record must have one place. The page itself knows its true node.
    pub fn lower_tier_ranges(&self) -> Vec<NodeRange> {
        let mut claimed: Vec<NodeRange> = self
            .lower_tier_nodes()
            .flat_map(|node| node.memory.iter().copied())
            .collect();
        claimed.sort_unstable_by_key(|range| (range.start, range.nid));
        let mut ranges = Vec::with_capacity(claimed.len());
        for range in claimed {
            push_merged(&mut ranges, range);
        }
        ranges
    }

    /// The top-tier nodes with memory, those nearest to `nid` first; the lowest id wins a tie.
    pub fn top_tier_from(&self, nid: u32) -> Vec<u32> {
        let Some(from) = self.node(nid) else {
            return Vec::new();
        };
        let mut top: Vec<u32> = self.top_tier_nodes().map(|node| node.nid).collect();
        top.sort_by_key(|nid| (from.distance_to(*nid).unwrap_or(u32::MAX), *nid));
        top
    }

    /// The first of these.
    pub fn nearest_top_tier_node(&self, nid: u32) -> Option<u32> {
        self.top_tier_from(nid).first().copied()
    }
}

/// Appends a range that starts at or after the start of the last one, clipped to what is new.
fn push_merged(ranges: &mut Vec<NodeRange>, range: NodeRange) {
    match ranges.last_mut() {
        Some(last) if range.end <= last.end => {}
        Some(last) if range.start <= last.end && range.nid == last.nid => last.end = range.end,
        Some(last) if range.start < last.end => {
            let start = last.end;
            ranges.push(NodeRange { start, ..range });
        }
        _ => ranges.push(range),
    }
}

/// Parses the kernel's list format, `0-1,3`; an empty list is empty text.
pub fn parse_range_list(text: &str) -> Option<Vec<u32>> {
    let mut ids = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last > MAX_LIST_ID {
            return None;
        }
        ids.extend(first..=last);
    }
    Some(ids)
}

pub(crate) fn read_list(path: &Path) -> Result<Vec<u32>, ReadError> {
    let text = read_text(path)?;
    parse_range_list(&text).ok_or_else(|| ReadError::malformed(path, "a list such as 0-1,3", &text))
}

/// Tiers by ascending id; none if this kernel has no memory tiering.
fn read_tiers(root: &SysRoot) -> Result<Vec<Tier>, ReadError> {
    let dir = root.sys.join("devices/virtual/memory_tiering");
    let mut tiers = Vec::new();
    for id in numbered_entries(&dir, "memory_tier")? {
        let nids = read_list(&dir.join(format!("memory_tier{id}/nodelist")))?;
        let id = u32::try_from(id)
            .map_err(|_| ReadError::malformed(&dir, "a tier id", &id.to_string()))?;
        tiers.push(Tier { id, nids });
    }
    Ok(tiers)
}

/// `block_size_bytes` is hexadecimal without a prefix.
fn read_block_bytes(root: &SysRoot) -> Result<Option<u64>, ReadError> {
    let path = root.sys.join("devices/system/memory/block_size_bytes");
    let Some(text) = read_optional(&path)? else {
        return Ok(None);
    };
    match u64::from_str_radix(&text, 16) {
        Ok(bytes) if bytes >> PAGE_SHIFT > 0 => Ok(Some(bytes)),
        _ => Err(ReadError::malformed(
            &path,
            "a block size in hexadecimal bytes",
            &text,
        )),
    }
}

/// Online blocks only. Block `memoryK` covers `[K, K + 1) * block size` of physical addresses.
fn read_memory_blocks(dir: &Path, nid: u32, block_pages: u64) -> Result<Vec<NodeRange>, ReadError> {
    let mut ranges = Vec::new();
    for block in numbered_entries(dir, "memory")? {
        // A block that is unplugged between the listing and this read is simply not online.
        let state = read_optional(&dir.join(format!("memory{block}/state")))?;
        if state.as_deref() == Some("online") {
            let start = block * block_pages;
            push_merged(
                &mut ranges,
                NodeRange {
                    start,
                    end: start + block_pages,
                    nid,
                },
            );
        }
    }
    Ok(ranges)
}

/// `nodeN/distance` has one column per *online* node, not per node id.
fn read_distances(dir: &Path, online: &[u32]) -> Result<Vec<(u32, u32)>, ReadError> {
    let path = dir.join("distance");
    let text = read_text(&path)?;
    let distances: Option<Vec<u32>> = text
        .split_whitespace()
        .map(|distance| distance.parse().ok())
        .collect();
    match distances {
        Some(distances) if distances.len() == online.len() => {
            Ok(online.iter().copied().zip(distances).collect())
        }
        _ => Err(ReadError::malformed(
            &path,
            "one distance per online node",
            &text,
        )),
    }
}

fn read_memory_mib(dir: &Path) -> Result<u64, ReadError> {
    let path = dir.join("meminfo");
    let text = read_text(&path)?;
    let kib = meminfo_kib(&text, "MemTotal:");
    kib.map(|kib| kib / 1024)
        .ok_or_else(|| ReadError::malformed(&path, "a MemTotal line in kB", &text))
}

/// A value of a node's `meminfo`, such as `Node 0 MemTotal:       16314084 kB`, in KiB.
pub fn meminfo_kib(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (_, value) = line.split_once(name)?;
        value.trim().strip_suffix("kB")?.trim().parse().ok()
    })
}
