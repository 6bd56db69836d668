//! What is seen of the lower tier without hint faults.

use super::super::below::without_small;
use super::*;

/// A lower tier whose top tier has room.
fn demand() -> Demand {
    Demand {
        lower_tier: vec![1],
        ..Demand::default()
    }
}

/// Runs so long, and so many pages go up after an alarm; returns how many are to be marked at each.
fn watch(
    node: &mut Node,
    demoter: &mut Demoter,
    demand: &mut Demand,
    (ms, go_up): (u64, u64),
) -> Vec<u64> {
    let settings = Settings::new(Format::Default);
    let end_ms = node.now_ms + ms;
    let mut alarms = Vec::new();
    while node.now_ms < end_ms {
        let rest_ms = demoter.pass(demand, &settings, node);
        if let Some(pages) = demoter.alarm() {
            alarms.push(pages);
            demand.outcomes.promoted += go_up;
        }
        node.now_ms += rest_ms;
    }
    alarms
}

/// A node of which a fifth is in use.
fn used() -> Node {
    let mut node = Node::new(&[(4000, 1), (16_000, NEVER)]);
    node.room = 10_000;
    node
}

/// So many more are in use.
fn moves(node: &mut Node, pages: usize) {
    node.pages[4000..]
        .iter_mut()
        .for_each(|page| page.0 = NEVER);
    for page in node.pages.iter_mut().rev().take(pages) {
        page.0 = 1;
    }
}

#[test]
fn a_hot_set_that_moved_is_an_alarm() {
    let (mut node, mut demoter, mut demand) = (used(), Demoter::default(), demand());
    let mut watch = |node: &mut Node, ms| watch(node, &mut demoter, &mut demand, (ms, 0));
    assert_eq!(watch(&mut node, 5000), [0; 0], "as usual");
    let before = node.calls;
    moves(&mut node, 10_000);
    assert_eq!(watch(&mut node, 1500), [20_000], "all are marked");
    assert!(node.calls - before <= 6, "an aging is not free");
    assert_eq!(watch(&mut node, 20_000), [0; 0], "known by now");
    moves(&mut node, 11_000);
    assert_eq!(watch(&mut node, 20_000), [0; 0], "a few more");
}

/// Where nothing comes of alarms there are ever fewer.
#[test]
fn alarms_in_vain_become_rare() {
    let count = |go_up| {
        let (mut node, mut demoter, mut demand) = (used(), Demoter::default(), demand());
        let alarms = (0..60).map(|second| {
            moves(&mut node, if second % 10 < 5 { 0 } else { 10_000 });
            watch(&mut node, &mut demoter, &mut demand, (1000, go_up)).len()
        });
        alarms.sum::<usize>()
    };
    assert_eq!((count(10_000), count(0)), (6, 4));
}

#[test]
fn to_watch_takes_a_small_share_of_the_time() {
    for aging_ms in [1, 20] {
        let mut node = used();
        node.aging_ms = aging_ms;
        watch(
            &mut node,
            &mut Demoter::default(),
            &mut demand(),
            (60_000, 0),
        );
        let took_ms = node.calls * aging_ms;
        assert!(took_ms > 0 && took_ms <= 300, "{took_ms} ms of 60 s");
    }
}

/// Of nearly all in use no alarm can come; when they are fewer, it is soon as elsewhere.
#[test]
fn where_all_are_in_use_it_is_looked_rarely() {
    let calls = |used| {
        let mut node = Node::new(&[(used, 1), (20_000 - used, NEVER)]);
        (node.room, node.aging_ms) = (10_000, 1);
        let mut demoter = Demoter::default();
        watch(&mut node, &mut demoter, &mut demand(), (20_000, 0));
        let before = node.calls;
        node.pages[..].iter_mut().for_each(|page| page.0 = NEVER);
        watch(&mut node, &mut demoter, &mut demand(), (8000, 0));
        moves(&mut node, 10_000);
        let alarms = watch(&mut node, &mut demoter, &mut demand(), (1000, 0));
        (before, alarms)
    };
    let ((few, after_few), (all, after_all)) = (calls(4000), calls(19_000));
    assert!(all * 2 < few, "{all} agings, of few {few}");
    assert_eq!((after_few, after_all), (vec![20_000], vec![20_000]));
}

/// Who records accessed bits waits for pairs under way, so none is left open.
#[test]
fn nobody_waits_for_a_pair_that_is_not_finished() {
    let (mut node, mut demand) = (used(), demand());
    let turns = Turns::default();
    let mut demoter = Demoter::new(History::default(), Gates::default(), turns.clone());
    let settings = Settings::new(Format::Default);
    demoter.pass(&demand, &settings, &mut node);
    let recording = turns.ask();
    assert!(!recording.has_begun(), "a pair is under way");
    demand.marks_enough = true;
    demoter.pass(&demand, &settings, &mut node);
    assert!(recording.has_begun());
}

/// Reclaim of the lower tier swaps, and tells by the generations what has been idle for longest.
#[test]
fn a_full_node_is_not_aged() {
    let mut node = used();
    node.room = 0;
    watch(&mut node, &mut Demoter::default(), &mut demand(), (5000, 0));
    assert_eq!(node.calls, 0);
}

#[test]
fn small_control_groups_are_left_out() {
    let lruvec = |memcg_id, pages| Lruvec {
        memcg_id,
        generations: vec![Generation {
            pages,
            ..Generation::default()
        }],
        ..Lruvec::default()
    };
    let kept = without_small(vec![lruvec(1, 10_000), lruvec(2, 100), lruvec(3, 200)]);
    let ids = kept.iter().map(|lruvec| lruvec.memcg_id);
    assert!(ids.eq([1, 3]));
}
