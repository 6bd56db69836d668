//! Nodes, tiers and PFN ranges of described machines.

use pghot_linux::SysRoot;
use pghot_linux::topology::{NodeRange, Topology, parse_range_list};

use crate::fake::{BLOCK_PAGES, FakeTree};

fn lower_ids(topology: &Topology) -> Vec<u32> {
    topology.lower_tier_nodes().map(|node| node.nid).collect()
}

fn top_ids(topology: &Topology) -> Vec<u32> {
    topology.top_tier_nodes().map(|node| node.nid).collect()
}

#[test]
fn range_lists() {
    assert_eq!(parse_range_list("0-1,3\n"), Some(vec![0, 1, 3]));
    assert_eq!(parse_range_list("7"), Some(vec![7]));
    assert_eq!(parse_range_list("\n"), Some(vec![]));
    for bad in ["a", "1-", "-1", "3-1", "0-4294967295", "1 2", "0x1"] {
        assert_eq!(parse_range_list(bad), None, "{bad}");
    }
}

#[test]
fn testbed_machine() {
    let topology = Topology::read(&FakeTree::three_nodes().root).unwrap();
    assert_eq!(top_ids(&topology), [0, 1]);
    assert_eq!(lower_ids(&topology), [2]);
    assert!(topology.is_lower(2) && !topology.is_lower(0) && !topology.is_lower(9));
    assert_eq!(topology.memory_block_bytes, Some(128 << 20));
    assert_eq!(topology.node(1).unwrap().cpus, [2, 3]);
    assert_eq!(topology.node(2).unwrap().memory_mib, 2048);
    assert_eq!(topology.nearest_top_tier_node(2), Some(0));
    assert_eq!(topology.nearest_top_tier_node(9), None);
    assert_eq!(
        topology.lower_tier_ranges(),
        [NodeRange {
            start: 32 * BLOCK_PAGES,
            end: 48 * BLOCK_PAGES,
            nid: 2
        }]
    );
}

#[test]
fn without_memory_tiering_all_nodes_are_top() {
    let tree = FakeTree::three_nodes();
    std::fs::remove_dir_all(tree.root.sys.join("devices/virtual")).unwrap();
    let topology = Topology::read(&tree.root).unwrap();
    assert_eq!(top_ids(&topology), [0, 1, 2]);
    assert!(topology.lower_tier_ranges().is_empty());
}

#[test]
fn a_faster_tier_without_cpus_is_top_and_so_is_a_memoryless_node() {
    let tree = FakeTree::new();
    tree.sys("devices/system/memory/block_size_bytes", "8000000\n");
    tree.sys("devices/system/node/online", "0,2-4\n");
    tree.node(0, "0-7", 1 << 20, "10 15 20 30", 0..8);
    tree.node(2, "", 1 << 20, "15 10 20 30", 8..16); // HBM
    tree.node(3, "8-15", 0, "20 20 10 30", 0..0); // CPUs without memory: no tier
    tree.node(4, "", 1 << 20, "30 30 30 10", 16..24);
    tree.tier(1, "2");
    tree.tier(4, "0");
    tree.tier(22, "4");
    let topology = Topology::read(&tree.root).unwrap();
    assert_eq!(topology.slowest_top_tier_id(), Some(4));
    assert_eq!(lower_ids(&topology), [4]);
    assert_eq!(
        top_ids(&topology),
        [0, 2],
        "a node without memory is no promotion target"
    );
    // Ties go to the lowest id; columns of `distance` follow the online nodes, not the ids.
    assert_eq!(topology.nearest_top_tier_node(4), Some(0));
    assert_eq!(topology.node(4).unwrap().distance_to(4), Some(10));
}

#[test]
fn offline_blocks_split_ranges_and_shared_blocks_are_given_once() {
    let tree = FakeTree::three_nodes();
    tree.block(2, 40, "offline");
    tree.block(2, 47, "going-offline");
    std::fs::create_dir_all(tree.root.sys.join("devices/system/node/node2/memory48")).unwrap();
    tree.sys("devices/system/node/online", "0-3\n");
    tree.node(0, "0-1", 1 << 20, "10 20 17 17", 0..8);
    tree.node(1, "2-3", 1 << 20, "20 10 28 28", 8..16);
    tree.node(2, "", 2 << 20, "17 28 10 20", 0..0);
    tree.node(3, "", 2 << 20, "17 28 20 10", 46..50);
    tree.tier(22, "2-3");
    let range = |start, end, nid| NodeRange {
        start: start * BLOCK_PAGES,
        end: end * BLOCK_PAGES,
        nid,
    };
    assert_eq!(
        Topology::read(&tree.root).unwrap().lower_tier_ranges(),
        [range(32, 40, 2), range(41, 47, 2), range(47, 50, 3)]
    );
}

#[test]
fn no_memory_hotplug_means_no_ranges() {
    let tree = FakeTree::three_nodes();
    std::fs::remove_file(tree.root.sys.join("devices/system/memory/block_size_bytes")).unwrap();
    let topology = Topology::read(&tree.root).unwrap();
    assert_eq!(topology.memory_block_bytes, None);
    assert!(topology.lower_tier_ranges().is_empty());
}

#[test]
fn malformed_files_are_named() {
    for (file, text) in [
        ("devices/system/node/online", "zero"),
        ("devices/system/node/node2/distance", "10 20"),
        ("devices/system/node/node1/meminfo", "nothing"),
        ("devices/system/memory/block_size_bytes", "12"),
        ("devices/virtual/memory_tiering/memory_tier4/nodelist", "0-"),
    ] {
        let tree = FakeTree::three_nodes();
        tree.sys(file, text);
        let error = Topology::read(&tree.root).unwrap_err().to_string();
        assert!(error.contains(file), "{error}");
    }
}

#[test]
fn this_machine() {
    let topology = Topology::read(&SysRoot::default()).unwrap();
    assert!(topology.top_tier_nodes().next().is_some());
}
