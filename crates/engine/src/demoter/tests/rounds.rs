//! How much goes in a round, and when there is none.

use super::*;

/// Both tiers are full, and agings take long: pages still change places at each pass. A pass
/// without a look is no reason to change the time scale.
#[test]
fn a_round_that_is_cut_short_goes_on() {
    let settings = Settings::new(Format::Default);
    let mut node = Node::new(&[(3000, 1), (50_000, 2000)]);
    node.aging_ms = 50;
    let mut demoter = Demoter::default();
    let end_ms = node.now_ms + 10_000;
    let mut promoted = 0;
    while node.now_ms < end_ms {
        node.lower_room = 256 + std::mem::take(&mut node.room);
        promoted += node.lower_room - 256;
        let demand = node.demand(10_000);
        let before = (node.calls, demoter.report().idle_ms);
        node.now_ms += demoter.pass(&demand, &settings, &mut node);
        let is_look = node.calls > before.0 || !demoter.report().is_proven;
        assert!(is_look || demoter.report().idle_ms == before.1);
    }
    assert!(promoted > 10_000, "{promoted} with {} agings", node.calls);
    let hot = node.pages.iter().filter(|page| page.0 == 1).count();
    assert_eq!(hot, 3000);
}

#[test]
fn the_rate_limit_holds_for_demotion_too() {
    let mut node = Node::new(&[(50_000, NEVER)]);
    let mut demoter = Demoter::default();
    let mut settings = Settings::new(Format::Default);
    settings.promote_rate_limit_mbps = 1;
    let end_ms = node.now_ms + 20_000;
    while node.now_ms < end_ms {
        let demand = node.demand(50_000);
        node.now_ms += demoter.pass(&demand, &settings, &mut node);
    }
    let demoted = demoter.report().demoted_pages;
    assert!((2000..=21 * 256).contains(&demoted), "{demoted}");
}

/// Hot pages come at each pass, and have room; then for a second none, as between two passes of
/// the scanner.
#[test]
fn while_nothing_waits_nobody_looks_and_nothing_is_forgotten() {
    let settings = Settings::new(Format::Default);
    let mut node = Node::new(&[(3000, 1), (50_000, 2000)]);
    let mut demoter = Demoter::default();
    node.run(&mut demoter, 1000, 2000);
    assert!(demoter.report().is_proven);
    let (end_ms, calls) = (node.now_ms + 1000, node.calls);
    let counted = Waiting {
        quick_pages: 0,
        counted_pages: 5000,
    };
    while node.now_ms < end_ms {
        let demand = Demand {
            waiting: [(0, counted)].into(),
            ..node.demand(0)
        };
        node.now_ms += demoter.pass(&demand, &settings, &mut node);
    }
    // One look at the longest idle.
    assert!(node.calls <= calls + 2, "{} looks", node.calls - calls);
    let demoted = node.run(&mut demoter, 4000, 200);
    assert!(demoted > 0 && demoter.report().is_proven, "{demoted}");
}

/// Where all others are touched all the time, one idle page in two hundred is worth two agings.
#[test]
fn a_few_idle_pages_among_many_go() {
    let went = |idle: usize| {
        let mut node = Node::new(&[(10_000 - idle, 1), (idle, NEVER)]);
        node.run(&mut Demoter::default(), 1000, 900)
    };
    assert_eq!((went(60), went(30)), (60, 0));
}
