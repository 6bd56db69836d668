//! Features and conflicts of described machines.

use pghot_linux::SysRoot;
use pghot_linux::conflicts::conflicts;
use pghot_linux::probe::{Finding, Level, features};

use crate::fake::FakeTree;

fn level(findings: &[Finding], id: &str) -> Level {
    findings
        .iter()
        .find(|finding| finding.id == id)
        .expect("a check of that name")
        .level
}

/// The testbed's machine with everything pghot wants.
fn good_machine() -> FakeTree {
    let tree = FakeTree::three_nodes();
    tree.sys("kernel/btf/vmlinux", "x");
    tree.sys(
        "kernel/debug/sched/numa_balancing/hot_threshold_ms",
        "1000\n",
    );
    tree.sys("kernel/mm/numa/demotion_enabled", "true\n");
    tree.sys(
        "kernel/security/lockdown",
        "[none] integrity confidentiality\n",
    );
    tree.proc("sys/kernel/numa_balancing", "0\n");
    tree.proc(
        "sys/kernel/numa_balancing_promote_rate_limit_MBps",
        "65536\n",
    );
    tree.proc("sys/vm/zone_reclaim_mode", "0\n");
    tree.proc("self/status", "Name:\tx\nCapEff:\t000001ffffffffff\n");
    tree.proc(
        "zoneinfo",
        "Node 0, zone   Normal\n  pages free     100\n        present  200\n",
    );
    tree
}

#[test]
fn a_good_machine_is_all_ok() {
    let tree = good_machine();
    for finding in features(&tree.root).iter().chain(&conflicts(&tree.root)) {
        assert_eq!(finding.level, Level::Ok, "{finding:?}");
    }
}

#[test]
fn an_empty_machine_is_described_not_an_error() {
    let tree = FakeTree::new();
    let findings = features(&tree.root);
    for id in ["lower_tier", "btf", "cap_bpf", "memory_blocks"] {
        assert_eq!(level(&findings, id), Level::Fail, "{id}");
    }
    for id in ["numa_balancing", "promote_rate_limit"] {
        assert_eq!(level(&findings, id), Level::Warn, "{id}");
    }
    assert_eq!(level(&findings, "debugfs"), Level::Ok, "optional");
    conflicts(&tree.root);
}

#[test]
fn missing_capability_and_lockdown() {
    let tree = good_machine();
    tree.proc("self/status", "CapEff:\t0000008000000000\n"); // CAP_BPF alone
    tree.sys(
        "kernel/security/lockdown",
        "none integrity [confidentiality]\n",
    );
    let findings = features(&tree.root);
    assert_eq!(level(&findings, "cap_bpf"), Level::Ok);
    assert_eq!(level(&findings, "cap_perfmon"), Level::Fail);
    assert_eq!(level(&findings, "cap_sys_admin"), Level::Warn);
    assert_eq!(level(&findings, "lockdown"), Level::Fail);
}

#[test]
fn no_lower_tier() {
    let tree = good_machine();
    std::fs::remove_dir_all(
        tree.root
            .sys
            .join("devices/virtual/memory_tiering/memory_tier22"),
    )
    .unwrap();
    let findings = features(&tree.root);
    let finding = findings
        .iter()
        .find(|finding| finding.id == "lower_tier")
        .unwrap();
    assert_eq!(finding.level, Level::Fail);
    assert!(finding.advice.contains("CXL"));
}

#[test]
fn every_fight_is_seen() {
    let tree = good_machine();
    tree.proc("sys/kernel/numa_balancing", "2\n");
    tree.proc("sys/vm/zone_reclaim_mode", "1\n");
    tree.sys("kernel/mm/numa/demotion_enabled", "false\n");
    tree.sys("kernel/mm/damon/admin/kdamonds/nr_kdamonds", "2\n");
    tree.sys("kernel/mm/damon/admin/kdamonds/0/state", "off\n");
    tree.sys("kernel/mm/damon/admin/kdamonds/1/state", "on\n");
    tree.sys("module/damon_stat/parameters/enabled", "Y\n");
    tree.proc(
        "zoneinfo",
        "Node 1, zone   Normal\n  pages free     300000\n        present  400000\n",
    );
    for finding in conflicts(&tree.root) {
        assert_eq!(finding.level, Level::Warn, "{finding:?}");
        assert!(!finding.advice.is_empty(), "{finding:?}");
    }
    tree.proc("sys/kernel/numa_balancing", "1\n");
    assert_eq!(level(&conflicts(&tree.root), "kernel_promotion"), Level::Ok);
}

#[test]
fn this_machine() {
    let root = SysRoot::default();
    assert!(!features(&root).is_empty() && !conflicts(&root).is_empty());
}
