//! After moves in vain a few pages change places before it is known what comes of it.

use super::*;

/// All that may go at this moment.
fn allowed(exchange: &mut Exchange, now_ms: u64) -> u64 {
    let pages = exchange.refill(now_ms, &settings());
    exchange.spend(now_ms, pages);
    pages
}

fn fates(touched: u64) -> Fates {
    Fates {
        looked: 100,
        touched,
        ..Fates::default()
    }
}

/// One that was in vain and has rested, and tells pages apart again.
fn on_trial() -> (Exchange, Tiers) {
    let mut exchange = Exchange::default();
    let mut busy = Tiers::new(&[(1.0, 20.0)], &[(0.5, 1000.0), (0.5, 20.0)]);
    assert!(busy.is_proven_within(&mut exchange, 3).is_some());
    assert_eq!(allowed(&mut exchange, busy.now_ms), 32_768, "at first");
    exchange.note_fates(busy.now_ms, fates(0), &settings());
    assert!(exchange.resting(busy.now_ms).is_some());
    busy.now_ms += 1000;
    assert!(busy.is_proven_within(&mut exchange, 1000).is_some());
    (exchange, busy)
}

#[test]
fn more_may_go_when_the_first_are_known_to_be_worth_it() {
    let (mut exchange, Tiers { now_ms, .. }) = on_trial();
    assert_eq!(allowed(&mut exchange, now_ms), 2048, "a trial");
    assert!(allowed(&mut exchange, now_ms + 100) < 256);
    exchange.note_fates(now_ms + 100, fates(90), &settings());
    assert_eq!(allowed(&mut exchange, now_ms + 100), 32_768);
}

/// That nobody was idle was no mistake.
#[test]
fn after_another_rest_there_is_no_trial() {
    let mut exchange = Exchange::default();
    exchange.rest(1000, Rest::NobodyIdle);
    exchange.end_rest(3000, &settings());
    exchange.is_proven = true;
    assert_eq!(allowed(&mut exchange, 3000), 32_768);
}

/// What comes back has made it slower, and other pages that were worth it do not make up for that.
#[test]
fn a_rate_that_was_halved_stays_so() {
    let (mut exchange, mut busy) = on_trial();
    exchange.note_fates(busy.now_ms, fates(90), &settings());
    let back = Outcomes {
        promoted: 100,
        returned: 100,
    };
    busy.now_ms += 1000;
    exchange.note(busy.now_ms, busy.faults, back, &settings());
    exchange.note_fates(busy.now_ms, fates(90), &settings());
    assert_eq!(exchange.rate_mbps(), 64);
}

/// There may be nothing to look at, where only huge pages go.
#[test]
fn where_nobody_can_look_it_grows_all_the_same() {
    let (mut exchange, mut busy) = on_trial();
    let mut all = Outcomes::default();
    for _ in 0..30 {
        all.promoted += allowed(&mut exchange, busy.now_ms);
        exchange.note(busy.now_ms, busy.faults, all, &settings());
        busy.run(&mut exchange);
    }
    assert!(exchange.rate_mbps() >= 128, "{}", exchange.rate_mbps());
}

/// What went into free memory tells nothing of what goes in exchange.
#[test]
fn what_fills_room_makes_it_no_quicker() {
    let mut exchange = Exchange::default();
    for s in 1..100 {
        let all = Outcomes {
            promoted: 10_000 * s,
            returned: 0,
        };
        exchange.note(1000 * s, FaultTimes::default(), all, &settings());
    }
    assert_eq!(exchange.rate_mbps(), 128);
}

#[test]
fn who_was_idle_for_long_may_go_at_once() {
    let (mut exchange, Tiers { now_ms, .. }) = on_trial();
    exchange.go_to_widest(now_ms, &settings());
    exchange.is_proven = true;
    assert_eq!(allowed(&mut exchange, now_ms), 32_768);
    exchange.go_to(0, now_ms);
    exchange.is_proven = true;
    assert_eq!(allowed(&mut exchange, now_ms + 1000), 2048, "but no others");
}
