//! Checks that this machine has what pghot cannot do without, and lays out its lower tier.

use pghot_engine::Settings;
use pghot_hotness::{Nid, PfnRange, SECTION_PAGES, Span};
use pghot_linux::SysRoot;
use pghot_linux::probe::{CAPABILITY, FEATURES, Finding, Level};
use pghot_linux::topology::Topology;

use crate::error::RunError;

/// The lower-tier nodes, on a machine that has all that pghot cannot do without.
pub fn lower_tier_nids(topology: &Topology, root: &SysRoot) -> Result<Vec<Nid>, RunError> {
    let nids: Vec<Nid> = topology.lower_tier_nodes().map(|node| node.nid).collect();
    if nids.is_empty() {
        return Err(RunError::NoLowerTier);
    }
    let needed = FEATURES
        .iter()
        .filter(|feature| feature.without == Level::Fail);
    let findings = needed.map(|feature| feature.check(root));
    match findings
        .into_iter()
        .find(|finding| finding.level == Level::Fail)
    {
        None => Ok(nids),
        Some(Finding {
            id,
            meaning,
            advice,
            ..
        }) => Err(match id.starts_with(CAPABILITY) {
            true => RunError::Rights { meaning, advice },
            false => RunError::Unfit { meaning, advice },
        }),
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
    Ok(Span::new(&ranges)?)
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

    #[test]
    fn memory_blocks_become_whole_sections() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, _) = daemon(dir.path());
        let mut topology = Topology::read(&shared.root).unwrap();
        let node = topology
            .nodes
            .iter_mut()
            .find(|node| node.nid == 2)
            .unwrap();
        for start in [
            SECTION_PAGES + 4096,
            SECTION_PAGES * 2 - 4096,
            SECTION_PAGES * 5,
        ] {
            let end = start + 4096;
            node.memory
                .push(pghot_linux::topology::NodeRange { start, end, nid: 2 });
        }
        let span = span_of(&topology).unwrap();
        let ranges: Vec<_> = span.ranges().map(|(r, _)| (r.start, r.end)).collect();
        let section = |n| n * SECTION_PAGES;
        assert_eq!(ranges, [(section(1), section(2)), (section(5), section(6))]);
    }
}
