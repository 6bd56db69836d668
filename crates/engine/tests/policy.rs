//! What policies do to a pass.

#![allow(clippy::unwrap_used)]

use pghot_engine::owners::Owners;
use pghot_engine::{Outcome, Pattern, Policies, Policy, Program};
use pghot_hotness::Format;
use rig::Rig;

mod rig;

fn excluding(cgroup: Option<&str>, process: Option<&str>) -> Policies {
    let policy = Policy {
        cgroup: cgroup.map(|text| Pattern::of_cgroup(text).unwrap()),
        process: process.map(|text| Pattern::of_process(text).unwrap()),
        exclude: true,
        ..Policy::default()
    };
    policy.check().unwrap();
    Policies::new(vec![policy])
}

/// Processes 7 and 8 with 20 hot pages each.
fn rig() -> Rig {
    let mut rig = Rig::new(Format::Default, &[]);
    for (pid, name, cgroup) in [(7, "redis-server", "/db/7"), (8, "web", "/web")] {
        let program = Program {
            pid,
            name: name.into(),
            cgroup: cgroup.into(),
        };
        rig.machine.programs.insert(pid, program);
        rig.hot(pid, u64::from(pid) * 100, 20);
    }
    rig
}

#[test]
fn excluded_pages_stay_and_stand_in_nobodys_way() {
    for policies in [
        excluding(Some("/db"), None),
        excluding(None, Some("redis*")),
        excluding(Some("/db/?"), Some("redis-server")),
    ] {
        let mut rig = rig();
        rig.settings.policies = policies;
        let report = rig.pass();
        assert_eq!((report.moved_pages, rig.on_top()), (20, 20));
        assert_eq!(rig.counted(Outcome::Excluded), 20);
        assert!(
            rig.machine
                .batches
                .iter()
                .all(|batch| batch.folios.len() == 20)
        );
        assert!(report.waiting.values().all(|waiting| waiting.pages() == 0));
        assert!(
            !rig.is_ready(700),
            "it must become hot anew to be asked about again"
        );
        let told = rig.migrator.journal().newest(40);
        let excluded = told.iter().filter(|d| d.outcome == Outcome::Excluded);
        assert_eq!(excluded.count(), 20);
        assert_eq!(rig.pass().ready, 0);
    }
}

#[test]
fn others_are_not_touched_by_an_entry() {
    for policies in [
        Policies::default(),
        excluding(Some("/d"), None),
        excluding(Some("/web"), Some("redis-server")),
    ] {
        let mut rig = rig();
        rig.settings.policies = policies;
        assert_eq!(rig.pass().moved_pages, 40);
        assert_eq!(rig.counted(Outcome::Excluded), 0);
    }
}

/// Its name and its group are not known any more, and the kernel says so in its own way.
#[test]
fn a_process_that_is_gone_is_not_excluded() {
    let mut rig = rig();
    rig.settings.policies = excluding(Some("/"), None);
    rig.machine.programs.clear();
    assert_eq!(rig.pass().moved_pages, 40);
}

/// Where the rate lets nothing through, it is known all the same whose pages wait.
#[test]
fn it_is_told_whose_pages_wait() {
    let mut rig = rig();
    rig.settings.promote_rate_limit_mbps = 0;
    rig.hot(9, 900, 5);
    let owners = Owners::default();
    rig.migrator.count_owners(owners.clone());
    assert_eq!(rig.pass().ready, 45);
    let hot = owners.copy().hot.remove(&2).unwrap();
    let told: Vec<_> = hot
        .iter()
        .map(|(it, pages)| (it.cgroup.as_str(), *pages))
        .collect();
    assert_eq!(told, [("/db/7", 20), ("/web", 20), ("(unknown)", 5)]);
    rig.machine.now_ms += 3500;
    assert_eq!(rig.pass().ready, 0);
    assert!(owners.copy().hot[&2].is_empty());
}
