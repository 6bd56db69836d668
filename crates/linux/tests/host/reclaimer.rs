//! What the kernel is asked to demote, and when it is not asked.

use std::path::Path;
use std::sync::Arc;

use pghot_engine::demoter::{Reclaim, Unable};
use pghot_linux::Reclaimer;
use pghot_linux::keeper::Keeper;
use pghot_linux::moving::MovingTime;
use pghot_linux::topology::Topology;

use crate::fake::{FakeTree, content};
use crate::watermarks::{low_node, zoneinfo};

const LIST: &str = "\
memcg     7 /
 node     0
          3     167880      16384          0
          4       9000       1000          7
          5       4000          0          0
          6         20        100          1
 node     2
          1       5000       8000          0
";

/// The testbed's machine with MGLRU on, demotion on, and pages in four generations of node 0.
fn tree() -> FakeTree {
    let tree = FakeTree::three_nodes();
    tree.sys("kernel/mm/numa/demotion_enabled", "true\n");
    tree.sys("kernel/mm/lru_gen/enabled", "0x0007\n");
    tree.sys("kernel/debug/lru_gen", LIST);
    tree.proc("vmstat", "pgdemote_proactive 41\n");
    tree.proc("zoneinfo", &zoneinfo(&[&low_node()], true, 2));
    tree
}

fn reclaimer(tree: &FakeTree, dry_run: bool) -> Reclaimer {
    let topology = Topology::read(&tree.root).expect("a topology");
    let keeper = Arc::new(Keeper::in_thread(&tree.root, Path::new("/nowhere")).expect("a thread"));
    Reclaimer::open(
        &tree.root,
        &topology,
        &keeper,
        MovingTime::default(),
        dry_run,
    )
    .expect("its files")
}

/// What was written over the list, or the list.
fn written(tree: &FakeTree) -> String {
    content(&tree.root.sys.join("kernel/debug/lru_gen"))
}

#[test]
fn the_generations_of_the_node_are_listed_oldest_first() {
    let lruvecs = reclaimer(&tree(), false).lruvecs(0).unwrap();
    let listed = &lruvecs[0].generations;
    let listed: Vec<_> = listed.iter().map(|g| (g.seq, g.age_ms, g.pages)).collect();
    let expected = [
        (3, 167_880, 16_384),
        (4, 9000, 1007),
        (5, 4000, 0),
        (6, 20, 101),
    ];
    assert_eq!((lruvecs.len(), lruvecs[0].memcg_id), (1, 7));
    assert_eq!(listed, expected);
}

#[test]
fn it_asks_in_small_calls_and_no_more_when_nothing_goes() {
    let tree = tree();
    let mut reclaimer = reclaimer(&tree, false);
    assert_eq!(reclaimer.demote(0, 7, 4, 10_000), 0, "vmstat counts none");
    reclaimer.age(0, 7, 6);
    let written = written(&tree);
    let commands = "- 7 0 4 200 4096\n+ 7 0 6 200 1\n";
    assert!(written.starts_with(commands), "{written}");
}

#[test]
fn without_demotion_it_asks_nothing_for_the_kernel_would_swap() {
    for (path, text, dry_run, why) in [
        (
            "kernel/mm/numa/demotion_enabled",
            "false\n",
            false,
            Unable::DemotionOff,
        ),
        (
            "kernel/mm/lru_gen/enabled",
            "0x0000\n",
            false,
            Unable::NoGenerations,
        ),
        (
            "kernel/mm/lru_gen/enabled",
            "0x0007\n",
            true,
            Unable::DryRun,
        ),
    ] {
        let tree = tree();
        let mut reclaimer = reclaimer(&tree, dry_run);
        tree.sys(path, text);
        assert_eq!(reclaimer.lruvecs(0).unwrap_err(), why);
        assert_eq!(reclaimer.demote(0, 7, 4, 100), 0);
        assert_eq!(written(&tree).trim(), LIST.trim(), "{why:?}");
    }
}

#[test]
fn without_debugfs_there_are_no_generations() {
    let tree = tree();
    std::fs::remove_file(tree.root.sys.join("kernel/debug/lru_gen")).unwrap();
    let mut reclaimer = reclaimer(&tree, false);
    assert_eq!(reclaimer.lruvecs(0).unwrap_err(), Unable::NoGenerations);
    reclaimer.age(0, 7, 6);
    assert_eq!(reclaimer.demote(0, 7, 4, 100), 0);
}
