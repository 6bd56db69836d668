//! Huge pages of a node: how much of it they are, and how many more fit there whole.

use std::fs;

use crate::root::SysRoot;
use crate::topology::meminfo_kib;
use crate::zoneinfo::ZoneKind;

/// A huge page is a block of free memory of this order.
const ORDER: usize = 9;

/// The share of a node's memory in use that is in huge pages of programs, 0 to 1; without hugetlb.
pub(crate) fn share(root: &SysRoot, nid: u32) -> Option<f64> {
    let path = root
        .sys
        .join(format!("devices/system/node/node{nid}/meminfo"));
    let text = fs::read_to_string(path).ok()?;
    let used_kib = meminfo_kib(&text, "MemUsed:")?;
    let huge_kib = meminfo_kib(&text, "AnonHugePages:")?;
    let reserved_kib = reserved(&text).unwrap_or(0) << (ORDER + 2);
    Some(huge_kib as f64 / used_kib.saturating_sub(reserved_kib).max(1) as f64)
}

/// Huge pages of hugetlb, which are never moved, by a node's meminfo.
fn reserved(meminfo: &str) -> Option<u64> {
    let (_, value) = meminfo.split_once("HugePages_Total:")?;
    value.split_ascii_whitespace().next()?.parse().ok()
}

/// How many huge pages a node has free blocks for. Where there is none the kernel would split the
/// page, and move its parts.
pub(crate) fn free(root: &SysRoot, nid: u32) -> u64 {
    let text = fs::read_to_string(root.proc.join("buddyinfo"));
    text.map_or(0, |text| free_in(&text, nid))
}

/// Of `/proc/buddyinfo`: a line a zone, with its free blocks by order.
fn free_in(buddyinfo: &str, nid: u32) -> u64 {
    let of_zone = |line: &str| {
        let (node, zone) = line.strip_prefix("Node ")?.split_once(", zone")?;
        let mut words = zone.split_ascii_whitespace();
        let kind = ZoneKind::parse(words.next()?);
        if node.parse() != Ok(nid) || !kind.takes_programs() {
            return None;
        }
        let blocks = words.map(|count| count.parse::<u64>().unwrap_or(0));
        let large = blocks.enumerate().skip(ORDER);
        Some(
            large
                .map(|(order, count)| count << (order - ORDER))
                .sum::<u64>(),
        )
    };
    buddyinfo.lines().filter_map(of_zone).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_counted_by_node_and_larger_ones_as_several() {
        let text = "\
Node 0, zone      DMA      1      1      1      0      1      1      0      0      1      1      3
Node 0, zone    DMA32   1041    521    260    130     65     32     16      8      4      2    100
Node 1, zone   Normal      5      4      3      2      1      0      0      0      0      7      0
Node 1, zone  Movable      0      0      0      0      0      0      0      0      0      1     10
";
        assert_eq!(free_in(text, 0), 202);
        assert_eq!(free_in(text, 1), 28);
        assert_eq!(free_in(text, 2), 0);
        assert_eq!(
            free_in("Node 0, zone\nnonsense\nNode 1, zone Normal x y", 1),
            0
        );
    }

    #[test]
    fn of_a_node_a_share_is_huge_pages() {
        let dir = tempfile::tempdir().unwrap();
        let root = SysRoot::under(dir.path());
        assert_eq!(share(&root, 0), None);
        let node = root.sys.join("devices/system/node/node0");
        fs::create_dir_all(&node).unwrap();
        let text =
            "Node 0 MemTotal: 1000 kB\nNode 0 MemUsed: 800 kB\nNode 0 AnonHugePages: 600 kB\n";
        fs::write(node.join("meminfo"), text).unwrap();
        assert_eq!(share(&root, 0), Some(0.75));
        let text = format!("{text}Node 0 HugePages_Total:     1\nNode 0 HugePages_Free: 1\n");
        let text = text.replace("800 kB", "3248 kB");
        fs::write(node.join("meminfo"), text).unwrap();
        assert_eq!(share(&root, 0), Some(0.5));
    }
}
