//! Something else is in use than when a rest began.

use super::*;

/// Whether it still rests after a second with such a gap at the narrowest scale, where the rest
/// began with another.
fn rests_after(failed: f64, gap: f64, rest_ms: u64) -> bool {
    let mut exchange = Exchange {
        rest_ms,
        ..Exchange::default()
    };
    let (mut faults, mut now_ms) = (FaultTimes::default(), 0);
    let mut second = |exchange: &mut Exchange, gap: f64| {
        for _ in 0..10 {
            now_ms += 100;
            let twice = 1000.0 * (1.0 + gap);
            faults.add(&FaultTimes([
                1000,
                (1000.0 * gap) as u64,
                (0.8 * twice) as u64,
                2 * twice as u64,
                4 * twice as u64,
                0,
                0,
                0,
                0,
            ]));
            exchange.note(now_ms, faults, Outcomes::default(), &settings());
        }
        now_ms
    };
    (0..3).for_each(|_| _ = second(&mut exchange, failed));
    let now_ms = second(&mut exchange, failed);
    match exchange.search(&settings()) {
        true => _ = exchange.note_idle(now_ms, 0.0, exchange.idle_ms(&settings()), &settings()),
        false => exchange.rest(now_ms, Rest::NobodyIdle),
    }
    assert!(exchange.resting(now_ms).is_some());
    let now_ms = second(&mut exchange, gap);
    exchange.resting(now_ms).is_some()
}

#[test]
fn a_rest_ends_when_pages_below_are_touched_twice_as_often() {
    let rests = |failed, gap| rests_after(failed, gap, 3000);
    // Fifteen times a second, and then 135 times.
    assert!(!rests(0.887, 0.34));
    assert!(rests(0.887, 0.65), "fifty times");
    // 175 times, and then 300 or 360 times.
    assert!(rests(0.25, 0.09) && !rests(0.25, 0.056));
    assert!(rests(0.9, 0.9) && rests(0.25, 0.25));
    // Some had come already when it began, but too few for that scale to be tried.
    assert!(!rests(0.55, 0.34) && rests(0.55, 0.45));
}

#[test]
fn a_quarter_of_it_lasts_whatever_comes() {
    assert!(!rests_after(0.9, 0.1, 3900) && rests_after(0.9, 0.1, 4500));
}

/// An alarm says that all is being marked: then hint faults decide at once, whatever the rest
/// followed from. Those that came before it tell nothing.
#[test]
fn after_an_alarm_a_rest_ends_as_soon_as_hint_faults_say_so() {
    let soon = FaultTimes([20_000, 2000, 1000, 0, 0, 0, 0, 0, 0]);
    let rests = |why, alarm_ms: Option<u64>| {
        let mut exchange = Exchange {
            rest_ms: 16_000,
            ..Exchange::default()
        };
        exchange.rest(10_000, why);
        if let Some(alarm_ms) = alarm_ms {
            exchange.note_alarm(alarm_ms);
        }
        exchange.note(
            10_200,
            FaultTimes::default(),
            Outcomes::default(),
            &settings(),
        );
        assert!(exchange.resting(10_200).is_some());
        exchange.note(10_500, soon, Outcomes::default(), &settings());
        exchange.resting(10_500).is_some()
    };
    for why in [Rest::NobodyIdle, Rest::NotTouchedAgain, Rest::TheyCameBack] {
        assert!(!rests(why, Some(10_100)) && rests(why, None) && rests(why, Some(10_400)));
        assert!(rests(why, Some(9600)), "it followed from them");
    }
}

/// Where one region after the other is hot for half a second, there are moments in which nothing
/// below is. The longest idle are known only as long as nobody ages.
#[test]
fn for_a_moment_without_hot_pages_the_longest_idle_stay_known() {
    let mut exchange = Exchange::default();
    let mut faults = FaultTimes::default();
    let mut look = |exchange: &mut Exchange, now_ms: u64, within: u64, after: u64, idle: f64| {
        let more = FaultTimes([within, 0, 0, 0, 0, after, 0, 0, 0]);
        faults.add(&more);
        exchange.note(now_ms, faults, Outcomes::default(), &settings());
        exchange.note_idle(now_ms, idle, 3000, &settings());
        exchange.takes_counted(&settings())
    };
    exchange.go_to_widest(0, &settings());
    for now_ms in [1000, 1500] {
        assert!(look(&mut exchange, now_ms, 500, 50, 0.9));
    }
    assert!(exchange.is_proven());
    assert!(look(&mut exchange, 2400, 0, 5000, 0.9) && !exchange.is_proven());
    assert!(look(&mut exchange, 2450, 50_000, 0, 0.9));
    assert!(look(&mut exchange, 2500, 50_000, 0, 0.9) && exchange.is_proven());
    assert!(!look(&mut exchange, 3600, 0, 900_000, 0.9), "for longer");
    // Where few are idle, nothing is lost.
    exchange.go_to_widest(3600, &settings());
    for now_ms in [4600, 5100] {
        assert!(look(&mut exchange, now_ms, 500, 50, 0.9));
    }
    assert!(!look(&mut exchange, 5200, 0, 900_000, 0.3));
}
