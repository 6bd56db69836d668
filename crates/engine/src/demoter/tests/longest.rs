//! Pages that have been idle for longer than it takes to count accesses: places for anybody.

use super::*;

/// A node half of whose pages have not been touched for ages.
fn long_idle() -> Node {
    let mut node = Node::new(&[(5000, 1), (5000, NEVER)]);
    node.opened_ms = vec![0, 1000, 998_000, 999_000];
    node.youngest = 3;
    for page in &mut node.pages {
        *page = match page.0 {
            NEVER => (NEVER, 0, 0),
            interval_ms => (interval_ms, 3, 999_000),
        };
    }
    node
}

const NOT_TOUCHED: Fates = Fates {
    within_ms: 16,
    looked: 64,
    touched: 0,
    idle: 0,
    idle_touched: 0,
};

/// What went up at a narrow scale came too late to be touched again, but half of the tier is idle.
#[test]
fn vain_moves_at_a_narrow_scale_say_nothing_of_the_longest_idle() {
    let settings = Settings::new(Format::Default);
    let went = |is_widest: bool| {
        let mut node = long_idle();
        let mut demoter = Demoter::default();
        if is_widest {
            demoter.exchange.go_to_widest(node.now_ms, &settings);
        }
        demoter
            .exchange
            .note_fates(node.now_ms, NOT_TOUCHED, &settings);
        let why = demoter.exchange.resting(node.now_ms);
        assert_eq!(why, Some(Rest::NotTouchedAgain));
        node.run(&mut demoter, 2000, 900)
    };
    assert_eq!(went(false), 2000);
    assert_eq!(went(true), 0, "they went for those in vain");
}

/// Memory that comes into use again may have their places at one look, but no others.
#[test]
fn faults_in_bursts_count_while_the_longest_idle_go() {
    let settings = Settings::new(Format::Default);
    let in_bursts = |node: &mut Node| {
        let mut demoter = Demoter::default();
        let went = node.run(&mut demoter, 2000, 900);
        assert!(went > 0 && !demoter.report().has_room, "{went}");
        demoter.report().quick_fault(&settings).in_bursts
    };
    assert!(in_bursts(&mut long_idle()));
    assert!(!in_bursts(&mut Node::new(&[(5000, 1), (5000, 300)])));
}

/// While the scanner rests no hint faults come, whatever is touched: that is no reason to look for
/// who has been idle for long, which takes agings.
#[test]
fn that_nothing_comes_while_nothing_is_marked_tells_nothing() {
    let settings = Settings::new(Format::Default);
    let agings = |rests: &dyn Fn(u64) -> bool| {
        let mut node = Node::new(&[(5000, 1), (5000, 300)]);
        let (mut demoter, start_ms) = (Demoter::default(), node.now_ms);
        while node.now_ms < start_ms + 3000 {
            let demand = Demand {
                faults: FaultTimes::default(),
                scanner_rests: rests(node.now_ms - start_ms),
                ..node.demand(2000)
            };
            node.now_ms += demoter.pass(&demand, &settings, &mut node);
        }
        demoter.report().agings
    };
    assert_eq!(agings(&|_| true), 0);
    assert_eq!(agings(&|ms| ms % 400 < 100), 0, "nor shortly after");
    assert!(agings(&|_| false) > 0);
}

/// What was idle at the last aging is in use again: nobody ages only to know it, and whoever asks
/// them to go in vain asks less and less often, until some go.
#[test]
fn those_that_are_idle_no_more_are_asked_less_and_less_often() {
    let settings = Settings::new(Format::Default);
    let mut node = long_idle();
    node.pages.retain(|page| page.0 != NEVER);
    for page in &mut node.pages {
        page.1 = 0;
    }
    let mut demoter = Demoter::default();
    let mut run = |node: &mut Node, ms: u64| {
        let (asked, end_ms) = (node.asked, node.now_ms + ms);
        while node.now_ms < end_ms {
            let demand = Demand {
                scanner_rests: true,
                faults: FaultTimes::default(),
                ..node.demand(2000)
            };
            node.now_ms += demoter.pass(&demand, &settings, node);
        }
        node.asked - asked
    };
    let (soon, later) = (run(&mut node, 8000), run(&mut node, 64_000));
    assert!(
        soon > 0 && later < 2 * soon,
        "{soon} in 8 s, then {later} in 64"
    );
    let was = node.pages.len();
    for page in &mut node.pages {
        *page = (NEVER, 0, 0);
    }
    run(&mut node, 64_000);
    assert!(node.pages.len() < was - 1000);
}

/// Nobody has looked for a while, and of all pages that were idle then none is now: one aging
/// tells, and the kernel need not be asked for each.
#[test]
fn before_the_longest_idle_are_tried_it_is_looked_whether_they_are() {
    let settings = Settings::new(Format::Default);
    let asked = |ago_ms: u64| {
        let mut node = Node::new(&[(10_000, 100)]);
        let aged_ms = node.now_ms - ago_ms;
        node.opened_ms = vec![0, 1000, node.now_ms - 4000, aged_ms];
        node.youngest = 3;
        for page in &mut node.pages {
            (page.1, page.2) = (1, aged_ms);
        }
        let (mut demoter, end_ms) = (Demoter::default(), node.now_ms + 3000);
        while node.now_ms < end_ms {
            let demand = Demand {
                faults: FaultTimes::default(),
                ..node.demand(2000)
            };
            node.now_ms += demoter.pass(&demand, &settings, &mut node);
        }
        node.asked
    };
    assert!(asked(1000) > 0, "they may be");
    assert_eq!(asked(2000), 0);
}

/// While a node fills up it is learnt who is idle; where it does not, nobody is looked at.
#[test]
fn when_a_node_is_full_it_is_known_who_was_idle_while_it_filled() {
    let settings = Settings::new(Format::Default);
    // How long it takes until some go, in ms, and the agings before the node was full.
    let waits = |promoted_per_ms: u64| {
        let mut node = Node::new(&[(3000, 1), (5000, NEVER)]);
        let (mut demoter, start_ms) = (Demoter::default(), node.now_ms);
        let full_ms = start_ms + 4000;
        let mut pass = |node: &mut Node| {
            node.room = 20 * full_ms.saturating_sub(node.now_ms);
            let is_full = node.room == 0;
            let mut demand = node.demand(if is_full { 2000 } else { 0 });
            demand.faults = FaultTimes::default();
            demand.outcomes.promoted = promoted_per_ms * (node.now_ms - start_ms);
            node.now_ms += demoter.pass(&demand, &settings, node);
            (demoter.report().demoted_pages, demoter.report().agings)
        };
        let mut agings = 0;
        while node.now_ms < full_ms {
            (_, agings) = pass(&mut node);
        }
        while pass(&mut node).0 == 0 && node.now_ms < full_ms + 10_000 {}
        (node.now_ms - full_ms, agings)
    };
    let (waited_ms, agings) = waits(20);
    assert!(waited_ms < 2500 && agings == 2, "{waited_ms} {agings}");
    let (waited_ms, agings) = waits(0);
    assert!(waited_ms > 3000 && agings == 0, "{waited_ms} {agings}");
}
