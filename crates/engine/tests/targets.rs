//! Where a migrator has pages go.

#![allow(clippy::unwrap_used)]

use pghot_engine::{Held, Outcome};
use pghot_hotness::Format;
use rig::{BASE, Rig};

mod rig;

#[test]
fn precision_mode_moves_to_the_accessing_node() {
    let mut rig = Rig::new(Format::Precision, &[("target_nid", "1")]);
    for (page, nid) in [(0, 0), (1, 1), (2, 2), (3, 77)] {
        rig.machine.map(7, BASE + page);
        rig.touch_from(nid, page, 2);
    }
    assert_eq!(rig.pass().moved_pages, 4);
    let nodes: Vec<_> = (0..4)
        .map(|page| rig.machine.folios[&(BASE + page)].nid)
        .collect();
    assert_eq!(
        nodes,
        [0, 1, 1, 1],
        "a node that is not on top is replaced by target_nid"
    );
}

#[test]
fn default_mode_moves_to_the_tunable() {
    let mut rig = Rig::new(Format::Default, &[("target_nid", "1")]);
    rig.hot(7, 0, 3);
    rig.pass();
    assert!(rig.machine.folios.values().all(|f| f.nid == 1));
}

#[test]
fn what_has_no_room_on_the_nearest_node_goes_to_the_next() {
    let on_node = |rig: &Rig, nid| {
        let folios = rig.machine.folios.values();
        folios.filter(|folio| folio.nid == nid).count()
    };
    let mut rig = Rig::new(Format::Default, &[]);
    rig.machine.room_pages = [(0, 2), (1, 100)].into();
    rig.hot(7, 0, 10);
    rig.pass();
    assert_eq!(on_node(&rig, 1), 0, "as far as is known, there is room");
    rig.pass();
    assert_eq!(on_node(&rig, 2), 0, "all are promoted");
    assert!(on_node(&rig, 1) >= 8);
    // With too little everywhere, where there is most of it; if one is set, only there.
    for (target, expected) in [("nearest", [1, 5]), ("0", [1, 0])] {
        let mut rig = Rig::new(Format::Default, &[("target_nid", target)]);
        rig.machine.room_pages = [(0, 1), (1, 5)].into();
        rig.hot(7, 0, 10);
        for _ in 0..3 {
            rig.pass();
        }
        assert_eq!([0, 1].map(|nid| on_node(&rig, nid)), expected, "{target}");
    }
}

#[test]
fn an_absent_target_holds_everything_back() {
    for (set, online) in [("0", vec![1]), ("nearest", vec![])] {
        let mut rig = Rig::new(Format::Default, &[("target_nid", set)]);
        rig.machine.top_tier = Some(online);
        rig.hot(7, 0, 3);
        let report = rig.pass();
        assert_eq!(
            (report.moved_pages, report.held[&Held::TargetAbsent]),
            (0, 3)
        );
        assert!(rig.machine.batches.is_empty());
        rig.machine.top_tier = Some(vec![0, 1]);
        assert_eq!(
            rig.pass().moved_pages,
            3,
            "it comes back when the node does"
        );
    }
}

#[test]
fn a_node_that_went_offline_is_passed_over() {
    let mut rig = Rig::new(Format::Default, &[]);
    rig.machine.top_tier = Some(vec![1]);
    rig.hot(7, 0, 3);
    assert_eq!(rig.pass().moved_pages, 3);
    assert!(rig.machine.folios.values().all(|folio| folio.nid == 1));
}

#[test]
fn who_goes_elsewhere_waits_there() {
    let mut rig = Rig::new(Format::Default, &[]);
    rig.machine.not_allowed = [(7, 0)].into();
    rig.machine.room_pages.insert(1, 0);
    rig.hot(7, 0, 10);
    let mut waiting = || -> Vec<(u32, u64)> {
        let waiting = rig.pass().waiting;
        let pages = waiting.iter().map(|(nid, waiting)| (*nid, waiting.pages()));
        pages.filter(|(_, pages)| *pages > 0).collect()
    };
    // Where it was refused it is tried again after 100, 200 and 400 ms.
    let nodes: Vec<_> = (0..8).flat_map(|_| waiting()).collect();
    let expected = [0, 0, 1, 0, 1, 1, 1, 0].map(|nid| (nid, 10));
    assert_eq!(nodes, expected, "nobody waits twice");
}

#[test]
fn an_owner_that_may_not_use_a_node_goes_to_another_and_is_in_nobodys_way() {
    let mut rig = Rig::new(Format::Default, &[]);
    rig.machine.not_allowed = [(7, 0), (8, 0), (8, 1)].into();
    rig.hot(7, 0, 10);
    rig.hot(8, 100, 10);
    rig.hot(9, 200, 10);
    let on = |rig: &Rig, first, nid| {
        let pages = BASE + first..BASE + first + 10;
        pages
            .filter(|pfn| rig.machine.folios[pfn].nid == nid)
            .count()
    };
    (0..30).for_each(|_| drop(rig.pass()));
    assert_eq!((on(&rig, 0, 1), on(&rig, 200, 0)), (10, 10));
    assert_eq!(on(&rig, 100, 2), 10, "nowhere to go");
    assert_eq!(rig.counted(Outcome::NotAllowed), 10);
    assert_eq!(rig.pass().ready, 0, "and nobody waits");
    // Hot again at each pass, it is tried again now and then.
    let asked = rig.machine.batches.len();
    for _ in 0..100 {
        rig.hot(8, 100, 10);
        rig.pass();
    }
    let calls = rig.machine.batches.len() - asked;
    assert!((2..=10).contains(&calls), "{calls} calls in 10 s");
    // And moves when it may.
    rig.machine.not_allowed.clear();
    for _ in 0..130 {
        rig.hot(8, 100, 10);
        rig.pass();
        if on(&rig, 100, 2) == 0 {
            return;
        }
    }
    panic!("{} pages are left", on(&rig, 100, 2));
}
