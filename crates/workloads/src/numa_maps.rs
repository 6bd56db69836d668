//! Pages per node of an address range, from `/proc/self/numa_maps`.
//!
//! One read costs a page-table walk in the kernel and no copy per page. It tells how many pages are
//! where, not which ones. The walk holds the lock of each page table that the workers' faults need
//! too: repeated every 100 ms in an emulated guest, it added a quarter to their time in the kernel.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;

use anyhow::{Context, Result};

/// Base pages per node. A page being moved right now is in no node.
pub type NodePages = BTreeMap<u32, u64>;

/// Reads how many pages of `range` are on each node.
pub fn read(range: &Range<usize>) -> Result<NodePages> {
    let text =
        fs::read_to_string("/proc/self/numa_maps").context("cannot read /proc/self/numa_maps")?;
    Ok(parse(&text, range))
}

/// Sums the `N<node>=<pages>` fields of the mappings that start inside `range`.
///
/// A huge page counts as the base pages it consists of: the kernel adds `HPAGE_PMD_NR` for it,
/// while `kernelpagesize_kB` stays 4. (hugetlb would count huge pages; no workload uses it.)
fn parse(text: &str, range: &Range<usize>) -> NodePages {
    let mut pages = NodePages::new();
    for line in text.lines() {
        let mut fields = line.split_ascii_whitespace();
        let start = fields
            .next()
            .and_then(|field| usize::from_str_radix(field, 16).ok());
        if start.is_some_and(|start| range.contains(&start)) {
            for (node, count) in fields.filter_map(node_count) {
                *pages.entry(node).or_default() += count;
            }
        }
    }
    pages
}

/// `N2=512` as `(2, 512)`; anything else is none of our business.
fn node_count(field: &str) -> Option<(u32, u64)> {
    let (node, count) = field.strip_prefix('N')?.split_once('=')?;
    Some((node.parse().ok()?, count.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
55d0c0a00000 default file=/bin/N0=9 mapped=3 N0=3 kernelpagesize_kB=4
7f0000000000 default anon=100 dirty=100 N0=40 N2=60 kernelpagesize_kB=4
7f0000100000 default anon=512 dirty=512 active=0 N2=512 kernelpagesize_kB=4
7f0000300000 default
7f0000400000 default anon=7 dirty=7 N1=7 kernelpagesize_kB=4
";

    #[test]
    fn sums_the_mappings_of_the_range_only() {
        let pages = parse(TEXT, &(0x7f00_0000_0000..0x7f00_0040_0000));
        assert_eq!(pages, NodePages::from([(0, 40), (2, 572)]));
    }

    #[test]
    fn nothing_for_an_unknown_range_or_garbage() {
        assert!(parse(TEXT, &(0x1000..0x2000)).is_empty());
        assert!(parse("zz N0=1\n\n7f N=1 N1= Nx=2\n", &(0x7f..0x80)).is_empty());
    }
}
