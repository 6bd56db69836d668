//! Huge pages whose heat is known, and what becomes of them.

use std::ops::Range;

use super::*;

fn place(number: u64) -> Place {
    Place::in_process(7, number << 21)
}

fn fault(number: u64, above: bool, since_mark_us: u64) -> HugeFault {
    HugeFault {
        place: place(number),
        above: above.then_some(0),
        since_mark_us,
    }
}

/// After so many us on average, at random, by the number of the draw.
fn random_us(mean_us: f64, draw: u64) -> u64 {
    let bits = (draw + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11;
    (-mean_us * ((bits as f64 + 0.5) / (1u64 << 53) as f64).ln()) as u64
}

#[test]
fn the_soonest_below_change_places_with_the_latest_above() {
    let mut huge = Huge::default();
    let looks = [
        fault(1, false, 3),
        fault(2, false, 9),
        fault(3, true, 40),
        fault(4, true, 300),
    ];
    huge.note(1000, &looks);
    assert_eq!(
        huge.pairs(1000, 0, 9, &mut |_| true),
        Pairs::default(),
        "one look"
    );
    huge.note(1500, &looks);
    let both = Pairs {
        up: vec![place(1), place(2)],
        down: vec![place(4), place(3)],
    };
    assert_eq!(huge.pairs(1500, 0, 9, &mut |_| true), both);
    assert_eq!(
        huge.pairs(1500, 0, 1, &mut |_| true).down,
        [place(4)],
        "the latest"
    );
    assert_eq!(
        huge.pairs(1500, 1, 9, &mut |_| true),
        Pairs::default(),
        "another node"
    );
    assert_eq!(
        huge.pairs(6000, 0, 9, &mut |_| true),
        Pairs::default(),
        "long ago"
    );
    let others = &mut |_| false;
    assert_eq!(huge.pairs(1500, 0, 9, others), Pairs::default(), "kept");
    huge.note_told(1500, &both);
    assert_eq!(
        huge.pairs(1500, 0, 9, &mut |_| true),
        Pairs::default(),
        "they moved"
    );
}

/// A page that was cold for long has late looks behind it, and one that was hot has soon ones.
#[test]
fn who_became_hot_is_known_after_two_looks() {
    let mut huge = Huge::default();
    let look = |huge: &mut Huge, ms: u64, below_us, above_us| {
        huge.note(ms, &[fault(1, false, below_us), fault(2, true, above_us)]);
        huge.pairs(ms, 0, 9, &mut |_| true)
    };
    for ms in (0..4000).step_by(1000) {
        assert_eq!(look(&mut huge, ms, 300, 3), Pairs::default());
    }
    assert_eq!(look(&mut huge, 4000, 3, 300), Pairs::default(), "by chance");
    let both = Pairs {
        up: vec![place(1)],
        down: vec![place(2)],
    };
    assert_eq!(look(&mut huge, 5000, 3, 300), both);
}

/// Exchanges huge pages for a minute, of 200 of which the first 100 are above; returns how many
/// pairs moved, and when at last the hot ones were above. The mean of the times from mark to touch,
/// in us, is given by the page and what is known so far.
fn exchanged(hot: Range<u64>, mut mean_us: impl FnMut(&Huge, u64) -> f64) -> (usize, Option<u64>) {
    let mut huge = Huge::default();
    let mut is_above: Vec<bool> = (0..200).map(|number| number < 100).collect();
    let (mut moved, mut up_ms, mut draw) = (0, None, 0);
    for now_ms in (0..60_000).step_by(500) {
        let rests = huge.rests(now_ms);
        let mut look = |number: u64| {
            draw += 1;
            let is_above = is_above[number as usize];
            // The top tier is not marked then.
            let is_marked = !rests || !is_above;
            let us = random_us(mean_us(&huge, number), draw);
            is_marked.then(|| fault(number, is_above, us))
        };
        let looks: Vec<HugeFault> = (0..200).filter_map(&mut look).collect();
        huge.note(now_ms, &looks);
        if rests {
            continue;
        }
        let pairs = huge.pairs(now_ms, 0, 10, &mut |_| true);
        if pairs.up.is_empty() {
            continue;
        }
        huge.note_told(now_ms, &pairs);
        for (up, down) in pairs.up.iter().zip(&pairs.down) {
            is_above[(up.address >> 21) as usize] = true;
            is_above[(down.address >> 21) as usize] = false;
        }
        moved += pairs.up.len();
        if hot.clone().all(|number| is_above[number as usize]) {
            up_ms = up_ms.or(Some(now_ms));
        }
    }
    (moved, up_ms)
}

#[test]
fn where_all_are_touched_alike_few_change_places() {
    let (moved, _) = exchanged(0..200, |_, _| 100.0);
    // A trial at each end of a rest, and few more by chance.
    assert!((1..150).contains(&moved), "{moved}");
}

#[test]
fn the_hot_ones_go_up_and_few_others() {
    let (moved, up_ms) = exchanged(
        170..200,
        |_, number| if number >= 170 { 5.0 } else { 200.0 },
    );
    assert!(up_ms.is_some_and(|ms| ms < 10_000), "{up_ms:?}");
    assert!((30..200).contains(&moved), "{moved}");
}

/// All are alike for so long that rests become 16 s long; then some of the lower tier become hot,
/// few or many.
#[test]
fn a_rest_is_over_when_others_become_hot() {
    for hot in [170..200, 190..200] {
        let mut end_ms = None;
        let (_, up_ms) = exchanged(hot.clone(), |huge, number| {
            let is_long = huge.rest_ms >= 16_000;
            end_ms = end_ms.or(is_long.then_some(huge.until_ms));
            let is_hot = end_ms.is_some() && hot.contains(&number);
            if is_hot { 5.0 } else { 200.0 }
        });
        let both = up_ms.zip(end_ms);
        assert!(
            both.is_some_and(|(up, end)| up + 6000 < end),
            "{hot:?}: {both:?}"
        );
    }
}

/// Chance picks those that come soonest; when they are looked at again it is seen to be chance.
#[test]
fn what_did_not_pay_rests_longer_each_time() {
    let mut huge = Huge::default();
    let mut rests = Vec::new();
    let mut was = false;
    for now_ms in (0..60_000).step_by(100) {
        let is = huge.rests(now_ms);
        if is && !was {
            rests.push(huge.until_ms - now_ms);
        }
        was = is;
        let numbers = 0..2 * u64::from(TRIAL);
        let chosen: Vec<Place> = numbers.clone().map(place).collect();
        let looks = numbers.map(|number| fault(number, number % 2 == 0, 50));
        huge.note(now_ms, &looks.collect::<Vec<_>>());
        if !is && huge.on_trial == 0 {
            let (up, down) = chosen.chunks(2).map(|it| (it[0], it[1])).unzip();
            huge.note_told(now_ms, &Pairs { up, down });
        }
    }
    assert_eq!(rests[..5], [500, 1000, 2000, 4000, 8000]);
    assert!(!huge.marks_above(huge.until_ms - 1));
}

#[test]
fn who_is_never_touched_again_did_not_pay() {
    let mut huge = Huge::default();
    assert!(!huge.rests(1000) && huge.marks_above(1000));
    let pairs = Pairs {
        up: vec![place(1)],
        down: vec![place(2)],
    };
    huge.note_told(1000, &pairs);
    assert!(!huge.rests(1000 + VERDICT_MS - 1));
    assert!(huge.rests(1000 + VERDICT_MS));
    assert!(!huge.marks_above(1000 + VERDICT_MS));
    assert!(huge.is_resting(1000 + VERDICT_MS));
    assert!(!huge.rests(1000 + VERDICT_MS + REST_MS.0));
}

/// While pages moved, all faults came late.
#[test]
fn faults_after_a_move_tell_nothing() {
    let mut huge = Huge::default();
    let looks = [fault(1, false, 3), fault(2, true, 300)];
    huge.note(1000, &looks);
    huge.note_told(1000, &Pairs::default());
    huge.note(1000, &[]);
    huge.note(1100, &looks);
    assert_eq!(huge.pairs(1100, 0, 9, &mut |_| true), Pairs::default());
    huge.note(1200, &looks);
    assert_eq!(huge.pairs(1200, 0, 9, &mut |_| true).up, [place(1)]);
}
