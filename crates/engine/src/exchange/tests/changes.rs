//! Something else is in use than when a rest began.

use super::*;

/// Whether it still rests after so many seconds, each with its gap at the narrowest scale.
fn rests_after(gaps: &[f64]) -> bool {
    let mut exchange = Exchange {
        rest_ms: 60_000,
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
    (0..3).for_each(|_| _ = second(&mut exchange, 0.9));
    let now_ms = second(&mut exchange, 0.9);
    exchange.rest(now_ms, Rest::NobodyIdle);
    let mut now_ms = now_ms;
    for gap in gaps {
        now_ms = second(&mut exchange, *gap);
    }
    exchange.resting(now_ms).is_some()
}

#[test]
fn a_wider_difference_ends_a_rest_when_it_lasts() {
    assert!(!rests_after(&[0.2]), "so wide at once");
    assert!(rests_after(&[0.4]), "half as narrow, not for long");
    assert!(!rests_after(&[0.4, 0.4, 0.4]), "for a second");
    assert!(rests_after(&[0.4, 0.9, 0.4, 0.9, 0.4]), "it comes and goes");
    assert!(rests_after(&[0.6; 10]), "hardly wider");
}
