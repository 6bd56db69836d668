//! Whether the memory that a session was started for is still what the machine has. Memory comes
//! online after boot, goes offline, and nodes change their tier; then everything that was laid out
//! for them is laid out anew.

use std::fs::read_to_string;
use std::time::{Duration, Instant};

use pghot_hotness::{Nid, Span};
use pghot_linux::SysRoot;
use pghot_linux::topology::Topology;

use crate::tiers::span_of;

/// Between two looks: each reads a text of the kernel for every node. A change is over when a look
/// finds no further one: memory comes online block by block, and a block is 128 MiB of maybe a
/// terabyte.
const LOOK_INTERVAL: Duration = Duration::from_secs(4);

/// What a session depends on.
#[derive(Debug, PartialEq)]
struct Shape {
    /// The lower tier.
    span: Span,
    /// Of each of its nodes, where pages may go.
    targets: Vec<(Nid, Vec<Nid>)>,
}

impl Shape {
    /// `None` if there is no lower tier.
    fn of(topology: &Topology) -> Option<Shape> {
        let lower = topology.lower_tier_nodes().map(|node| node.nid);
        let targets = |nid| (nid, topology.top_tier_from(nid));
        Some(Shape {
            span: span_of(topology).ok()?,
            targets: lower.map(targets).collect(),
        })
    }
}

/// Looks at the machine's memory now and then.
pub struct TierWatch {
    shape: Option<Shape>,
    signs: String,
    looked: Instant,
    has_changed: bool,
}

impl TierWatch {
    /// A watch of what `topology` tells.
    pub fn new(root: &SysRoot, topology: &Topology) -> TierWatch {
        TierWatch {
            shape: Shape::of(topology),
            signs: signs(root),
            looked: Instant::now(),
            // What changed after `topology` was read and before these signs were is in neither, so
            // the first look reads the whole topology.
            has_changed: true,
        }
    }

    /// Whether it is not any more what the watch began with, and changes no further.
    pub fn has_changed(&mut self, root: &SysRoot, now: Instant) -> bool {
        if now.saturating_duration_since(self.looked) < LOOK_INTERVAL {
            return false;
        }
        self.looked = now;
        let signs = signs(root);
        if signs != self.signs {
            self.signs = signs;
            self.has_changed = true;
            return false;
        }
        if !std::mem::take(&mut self.has_changed) {
            return false;
        }
        // Read whole only now: a terabyte has thousands of blocks.
        Topology::read(root).is_ok_and(|topology| Shape::of(&topology) != self.shape)
    }
}

/// Some small files one of which changes whenever memory comes or goes, or a node changes its tier:
/// one read a node, and one a tier.
fn signs(root: &SysRoot) -> String {
    let nodes = root.sys.join("devices/system/node");
    let tiers = root.sys.join("devices/virtual/memory_tiering");
    let read = |path| read_to_string(path).unwrap_or_default();
    let entries = |dir, prefix| {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let named = entries.map(|entry| entry.path()).filter(move |path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(prefix))
        });
        let mut sorted: Vec<_> = named.collect();
        sorted.sort();
        sorted
    };
    let mut signs = read(nodes.join("has_cpu"));
    for tier in entries(tiers, "memory_tier") {
        signs += &format!("{} {}", tier.display(), read(tier.join("nodelist")));
    }
    for node in entries(nodes, "node") {
        let meminfo = read(node.join("meminfo"));
        signs += meminfo.lines().next().unwrap_or_default();
    }
    signs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{daemon, write};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_tier_that_changes_is_seen_when_it_is_quiet_again() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, _) = daemon(dir.path());
        let root = &shared.root;
        let mut watch = TierWatch::new(root, &Topology::read(root).unwrap());
        let now = Instant::now();
        assert!(!watch.has_changed(root, now));
        assert!(!watch.has_changed(root, now + 9 * SECOND));

        let tiers = root.sys.join("devices/virtual/memory_tiering");
        write(&tiers.join("memory_tier4/nodelist"), "0\n");
        write(&tiers.join("memory_tier22/nodelist"), "1-2\n");
        assert!(!watch.has_changed(root, now + 13 * SECOND), "it may go on");
        assert!(!watch.has_changed(root, now + 16 * SECOND));
        assert!(watch.has_changed(root, now + 17 * SECOND));
    }

    #[test]
    fn what_changes_while_a_session_starts_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, _) = daemon(dir.path());
        let root = &shared.root;
        let before = Topology::read(root).unwrap();
        let tiers = root.sys.join("devices/virtual/memory_tiering");
        write(&tiers.join("memory_tier4/nodelist"), "0\n");
        write(&tiers.join("memory_tier22/nodelist"), "1-2\n");
        let mut watch = TierWatch::new(root, &before);
        assert!(watch.has_changed(root, Instant::now() + 5 * SECOND));
    }

    #[test]
    fn what_is_as_before_again_is_no_change() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, _) = daemon(dir.path());
        let root = &shared.root;
        let mut watch = TierWatch::new(root, &Topology::read(root).unwrap());
        let meminfo = root.sys.join("devices/system/node/node2/meminfo");
        let now = Instant::now();
        write(&meminfo, "Node 2 MemTotal: 130000 kB\n");
        assert!(!watch.has_changed(root, now + 5 * SECOND));
        assert!(!watch.has_changed(root, now + 10 * SECOND), "a balloon");
    }
}
