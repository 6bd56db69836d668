//! Checks that this machine has what pghot cannot do without, and lays out its lower tier.

use std::collections::HashSet;
use std::ops::Range;

use pghot_engine::Settings;
use pghot_hotness::{Nid, Pfn, PfnRange, RANGES_MAX, SECTION_PAGES, Span};
use pghot_linux::SysRoot;
use pghot_linux::probe::{CAPABILITY, FEATURES, Feature, Finding, Level};
use pghot_linux::topology::Topology;

use crate::error::RunError;

/// The lower-tier nodes, on a machine that has all that pghot cannot do without.
pub fn lower_tier_nids(topology: &Topology, root: &SysRoot) -> Result<Vec<Nid>, RunError> {
    let nids: Vec<Nid> = topology.lower_tier_nodes().map(|node| node.nid).collect();
    let needed = FEATURES.iter().filter(|it| it.without == Level::Fail);
    // What no memory that comes online would change is said first, rights last.
    let (rights, of_kernel): (Vec<_>, Vec<_>) = needed
        .filter(|it| it.id != "lower_tier")
        .partition(|it| it.id.starts_with(CAPABILITY));
    let fails = |features: Vec<&Feature>| {
        let mut findings = features.into_iter().map(|it| it.check(root));
        findings.find(|finding| finding.level == Level::Fail)
    };
    match fails(of_kernel) {
        None if nids.is_empty() => return Err(RunError::NoLowerTier),
        None => {}
        Some(Finding {
            meaning, advice, ..
        }) => return Err(RunError::Unfit { meaning, advice }),
    }
    match fails(rights) {
        None => Ok(nids),
        Some(Finding {
            meaning, advice, ..
        }) => Err(RunError::Rights { meaning, advice }),
    }
}

/// The lower tier's page frames in whole sections. Memory blocks are whole sections on x86; where
/// they are smaller, ranges are rounded outwards, and records of pages beyond them stay empty.
pub fn span_of(topology: &Topology) -> Result<Span, RunError> {
    let mut ranges: Vec<PfnRange> = Vec::new();
    for range in topology.lower_tier_ranges() {
        let start = range.start / SECTION_PAGES * SECTION_PAGES;
        let end = range.end.next_multiple_of(SECTION_PAGES);
        let nid = range.nid;
        match ranges.last_mut() {
            Some(last) if last.nid == nid && start <= last.end => last.end = end,
            _ => ranges.push(PfnRange { start, end, nid }),
        }
    }
    close_gaps(&mut ranges, topology);
    Ok(Span::new(&ranges)?)
}

/// Where memory is online in more pieces than programs search, the smallest gaps between two of a
/// node get records, too, which stay empty. Not where pages of the top tier lie: they would be
/// taken for the lower tier's.
fn close_gaps(ranges: &mut Vec<PfnRange>, topology: &Topology) {
    let top_tier = topology.top_tier_nodes().flat_map(|node| &node.memory);
    let top_tier: Vec<_> = top_tier.map(|memory| memory.start..memory.end).collect();
    let is_empty = |gap: &Range<Pfn>| {
        let mut memory = top_tier.iter();
        !memory.any(|memory| memory.start < gap.end && gap.start < memory.end)
    };
    let gap_between = |pair: &[PfnRange]| {
        let gap = pair[0].end..pair[1].start;
        (pair[0].nid == pair[1].nid && is_empty(&gap)).then_some(gap)
    };
    let mut gaps: Vec<_> = ranges.windows(2).filter_map(gap_between).collect();
    gaps.sort_by_key(|gap| gap.end.saturating_sub(gap.start));
    gaps.truncate(ranges.len().saturating_sub(RANGES_MAX));
    let closed: HashSet<Pfn> = gaps.into_iter().map(|gap| gap.end).collect();
    ranges.dedup_by(|next, last| {
        let is_closed = closed.contains(&next.start);
        if is_closed {
            last.end = next.end;
        }
        is_closed
    });
}

/// Only an online top-tier node with memory can be promoted to; unset, `target_nid` is always one.
pub fn check_target(topology: &Topology, settings: &Settings) -> Result<(), RunError> {
    let Some(nid) = settings.target_nid else {
        return Ok(());
    };
    if topology.top_tier_nodes().any(|node| node.nid == nid) {
        return Ok(());
    }
    let why = match topology.node(nid) {
        None => "offline",
        Some(_) if topology.is_lower(nid) => "not in the top tier",
        Some(_) => "without memory",
    };
    let top: Vec<String> = topology
        .top_tier_nodes()
        .map(|node| node.nid.to_string())
        .collect();
    Err(RunError::Target {
        nid,
        why,
        top: top.join(", "),
    })
}

#[cfg(test)]
mod tests {
    use pghot_hotness::Format;
    use pghot_linux::topology::NodeRange;

    use super::*;
    use crate::testing::daemon;

    #[test]
    fn targets_are_checked() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, _) = daemon(dir.path());
        let topology = Topology::read(&shared.root).unwrap();
        assert_eq!(topology.top_tier_from(2), [1, 0], "nearer than node 0");
        let mut settings = Settings::new(Format::Default);
        check_target(&topology, &settings).unwrap();
        for (nid, why) in [(2, "not in the top tier"), (5, "offline")] {
            settings.target_nid = Some(nid);
            let error = check_target(&topology, &settings).unwrap_err().to_string();
            assert_eq!(
                error,
                format!("target_nid {nid} is {why}: choose a top-tier node (0, 1)")
            );
        }
    }

    /// A machine whose nodes, of which 2 is lower tier, have no memory yet.
    fn without_memory() -> Topology {
        let dir = tempfile::tempdir().expect("a folder");
        let (shared, _) = daemon(dir.path());
        let mut topology = Topology::read(&shared.root).expect("a machine");
        topology
            .nodes
            .iter_mut()
            .for_each(|node| node.memory.clear());
        topology
    }

    /// Gives a node these sections, one by one.
    fn give(topology: &mut Topology, nid: Nid, sections: impl IntoIterator<Item = u64>) {
        let mut nodes = topology.nodes.iter_mut();
        let node = nodes.find(|node| node.nid == nid).expect("a node");
        for section in sections {
            let start = section * SECTION_PAGES;
            let end = start + SECTION_PAGES;
            node.memory.push(NodeRange { start, end, nid });
        }
    }

    #[test]
    fn memory_in_more_pieces_than_programs_search_is_all_tracked() {
        let mut topology = without_memory();
        // Every other section of 1 TiB, with wider gaps here and there, which stay.
        let wide = |n: u64| n / 100;
        let sections = || (0..4096).map(|n| 2 * n + wide(n));
        give(&mut topology, 2, sections());
        let span = span_of(&topology).unwrap();
        assert_eq!(span.ranges().count(), RANGES_MAX);
        let (nr, _) = span.indexed_ranges();
        assert_eq!(nr as usize, RANGES_MAX);
        for section in sections() {
            for pfn in [section * SECTION_PAGES, (section + 1) * SECTION_PAGES - 1] {
                assert_eq!(span.nid(pfn), Some(2));
                assert!(span.index(pfn).is_some());
            }
        }
        // 40 gaps are wide, so 23 others are left, and the records of all that are closed empty.
        let last = 2 * 4095 + wide(4095) + 1;
        assert_eq!(span.sections() as u64, last - 40 * 2 - 23);
    }

    #[test]
    fn few_pieces_are_left_as_they_are() {
        let mut topology = without_memory();
        give(&mut topology, 2, (0..RANGES_MAX as u64).map(|n| 3 * n));
        let span = span_of(&topology).unwrap();
        assert_eq!(span.sections(), RANGES_MAX);
        assert_eq!(span.ranges().count(), RANGES_MAX);
    }

    #[test]
    fn pages_of_the_top_tier_never_get_records() {
        let mut topology = without_memory();
        give(&mut topology, 2, (0..200).map(|n| 4 * n));
        // In every third gap.
        let top: Vec<u64> = (0..200).step_by(3).map(|n| 4 * n + 2).collect();
        give(&mut topology, 1, top.clone());
        let span = span_of(&topology).unwrap();
        assert!(top.iter().all(|n| span.index(n * SECTION_PAGES).is_none()));
        assert!((0..200).all(|n| span.index(4 * n * SECTION_PAGES).is_some()));
        // It cannot be done in fewer: the maps are refused with a sentence.
        assert_eq!(span.ranges().count(), 68);
    }

    #[test]
    fn memory_blocks_become_whole_sections() {
        let mut topology = without_memory();
        let mut nodes = topology.nodes.iter_mut();
        let node = nodes.find(|node| node.nid == 2).unwrap();
        for start in [
            SECTION_PAGES + 4096,
            SECTION_PAGES * 2 - 4096,
            SECTION_PAGES * 5,
        ] {
            let end = start + 4096;
            node.memory.push(NodeRange { start, end, nid: 2 });
        }
        let span = span_of(&topology).unwrap();
        let ranges: Vec<_> = span.ranges().map(|(r, _)| (r.start, r.end)).collect();
        let section = |n| n * SECTION_PAGES;
        assert_eq!(ranges, [(section(1), section(2)), (section(5), section(6))]);
    }
}
