//! Where all pages below are equally hot.

use super::*;

/// After a second in which pages below are touched so often a second, by their shares.
fn are_all_hot(below: &[(f64, f64)]) -> bool {
    let mut tiers = Tiers::new(&[(1.0, 100.0)], below);
    let mut exchange = Exchange::default();
    for _ in 0..10 {
        tiers.run(&mut exchange);
    }
    exchange.are_all_hot(&settings())
}

#[test]
fn all_are_hot_that_are_touched_soon_and_alike() {
    assert!(are_all_hot(&[(1.0, 4.0)]), "at random");
    assert!(!are_all_hot(&[(0.9, 4.0), (0.1, 200.0)]), "some are hotter");
    assert!(!are_all_hot(&[(1.0, 0.05)]), "once in 20 s");
    assert!(!are_all_hot(&[(1.0, 0.0)]), "never");
}

/// Memory that is gone through in turn, once a second: each mark is as far from its page's turn as
/// any other.
#[test]
fn all_are_hot_that_are_touched_in_turn() {
    let mut exchange = Exchange::default();
    let mut faults = FaultTimes::default();
    for now_ms in (100..2000).step_by(100) {
        let classes = [80, 80, 160, 320, 610, 1250, 2500, 5000, 0];
        faults.add(&FaultTimes(classes));
        exchange.note(now_ms, faults, Outcomes::default(), &settings());
    }
    assert!(!exchange.are_all_hot(&settings()), "half a second at most");
    for now_ms in (2000..4000).step_by(100) {
        faults.add(&FaultTimes([160, 160, 320, 640, 1220, 2500, 5000, 0, 0]));
        exchange.note(now_ms, faults, Outcomes::default(), &settings());
    }
    assert!(exchange.are_all_hot(&settings()));
}
