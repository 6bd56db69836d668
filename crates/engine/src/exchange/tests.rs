//! The laws of the exchange, on tiers whose pages are touched at random at known rates.

use pghot_hotness::Format;

use super::rest::REST_MS;
use super::scales::NARROWEST_MS;
use super::*;

mod all_hot;
mod changes;
mod trial;

fn settings() -> Settings {
    Settings::new(Format::Default)
}

/// What a machine shows: pages above and below, each with how often it is touched a second.
struct Tiers {
    above: Vec<(f64, f64)>,
    below: Vec<(f64, f64)>,
    faults: FaultTimes,
    now_ms: u64,
}

impl Tiers {
    /// Shares of pages by rate.
    fn new(above: &[(f64, f64)], below: &[(f64, f64)]) -> Tiers {
        Tiers {
            above: above.to_vec(),
            below: below.to_vec(),
            faults: FaultTimes::default(),
            now_ms: 0,
        }
    }

    /// 100 ms in which 10,000 pages below are marked.
    fn run(&mut self, exchange: &mut Exchange) {
        let settings = settings();
        let touched = |tier: &[(f64, f64)], ms: f64| -> f64 {
            let share = |(share, rate): &(f64, f64)| share * (1.0 - (-rate * ms / 1e3).exp());
            tier.iter().map(share).sum()
        };
        self.now_ms += 100;
        let mut until_ms = f64::from(NARROWEST_MS);
        let mut before = 0.0;
        for count in &mut self.faults.0 {
            let within = touched(&self.below, until_ms);
            *count += (1e4 * (within - before)) as u64;
            (before, until_ms) = (within, 2.0 * until_ms);
        }
        exchange.note(self.now_ms, self.faults, Outcomes::default(), &settings);
        if exchange.resting(self.now_ms).is_some() {
            return;
        }
        if !exchange.is_proven() && !exchange.search(&settings) {
            return;
        }
        let idle = 1.0 - touched(&self.above, exchange.idle_ms(&settings) as f64);
        exchange.note_idle(self.now_ms, idle, exchange.idle_ms(&settings), &settings);
        if exchange.is_proven() {
            let waited = 1e4 * touched(&self.below, exchange.touched_ms(&settings).into());
            let round = Round {
                waited: waited as u64,
                idle: (1e5 * idle) as u64,
                wanted: waited as u64,
                went: waited.min(1e5 * idle) as u64,
                aging_ms: 1000,
            };
            exchange.note_round(self.now_ms, Some(round), &settings);
        }
    }

    fn is_proven_within(&mut self, exchange: &mut Exchange, rounds: u32) -> Option<u32> {
        (0..rounds).find_map(|_| {
            self.run(exchange);
            let scale_ms = exchange.touched_ms(&settings());
            exchange.is_proven().then_some(scale_ms)
        })
    }
}

#[test]
fn hot_below_and_cold_above_are_told_apart_at_the_scale_that_fits() {
    // Cold pages are touched 20 times a second, and hot ones a thousand times.
    let mut exchange = Exchange::default();
    let mut busy = Tiers::new(&[(1.0, 20.0)], &[(0.5, 1000.0), (0.5, 20.0)]);
    assert!(busy.is_proven_within(&mut exchange, 3).is_some());
    assert!(exchange.touched_ms(&settings()) <= 16);
    // Hot ones twenty times a second, cold ones hardly ever.
    let mut exchange = Exchange::default();
    let mut slow = Tiers::new(&[(1.0, 0.01)], &[(0.3, 20.0), (0.7, 0.01)]);
    assert!(slow.is_proven_within(&mut exchange, 3).is_some());
    (0..10).for_each(|_| slow.run(&mut exchange));
    assert_eq!(exchange.touched_ms(&settings()), 125);
}

#[test]
fn later_than_a_second_after_its_mark_is_late() {
    let faults = FaultTimes([2, 2, 2, 1, 0, 0, 1, 2, 2]);
    assert_eq!((faults.soon(), faults.late()), (10, 2));
}

#[test]
fn pages_that_are_all_alike_stay_where_they_are() {
    for rate in [0.5, 5.0, 20.0, 100.0, 1000.0] {
        let mut exchange = Exchange::default();
        let mut tiers = Tiers::new(&[(1.0, rate)], &[(1.0, rate)]);
        assert_eq!(tiers.is_proven_within(&mut exchange, 300), None, "{rate}");
    }
}

#[test]
fn where_the_hot_are_above_already_they_stay() {
    let mut exchange = Exchange::default();
    let mut tiers = Tiers::new(&[(0.25, 1000.0), (0.75, 20.0)], &[(1.0, 20.0)]);
    assert_eq!(tiers.is_proven_within(&mut exchange, 300), None);
}

#[test]
fn a_rest_ends_when_the_lower_tier_turns_hot() {
    let mut exchange = Exchange::default();
    let above = [(0.25, 1000.0), (0.75, 20.0)];
    let mut tiers = Tiers::new(&above, &[(1.0, 20.0)]);
    for _ in 0..600 {
        tiers.run(&mut exchange);
    }
    exchange.rest(tiers.now_ms, Rest::NobodyIdle);
    assert!(exchange.rest_ms > 8000, "{}", exchange.rest_ms);
    for _ in 0..20 {
        tiers.run(&mut exchange);
    }
    tiers.below = vec![(0.5, 1000.0), (0.5, 20.0)];
    tiers.above = vec![(1.0, 20.0)];
    assert!(tiers.is_proven_within(&mut exchange, 25).is_some());
}

/// Hint faults of a lower tier come, with these gaps at the narrowest scales and none at all
/// others. Nothing older is news.
fn come(exchange: &mut Exchange, now_ms: u64, gaps: &[f64]) {
    let settings = settings();
    for before_ms in [2 * NEWS_MS, NEWS_MS] {
        let before_ms = now_ms - before_ms;
        exchange.note(before_ms, exchange.news.all, Outcomes::default(), &settings);
    }
    let mut faults = exchange.news.all;
    let mut within = 10_000.0;
    faults.0[0] += within as u64;
    let gaps = gaps.iter().chain(std::iter::repeat(&1.0));
    for (count, gap) in faults.0[1..].iter_mut().zip(gaps) {
        *count += (within * gap) as u64;
        within *= 1.0 + gap;
    }
    exchange.note(now_ms, faults, Outcomes::default(), &settings);
}

#[test]
fn one_look_proves_nothing() {
    let (settings, mut exchange) = (settings(), Exchange::default());
    come(&mut exchange, 10_000, &[0.1]);
    assert!(exchange.search(&settings));
    exchange.note_idle(10_000, 0.5, exchange.idle_ms(&settings), &settings);
    assert!(!exchange.is_proven(), "an outlier");
    exchange.note_idle(10_016, 0.5, exchange.idle_ms(&settings), &settings);
    assert!(exchange.is_proven(), "two agree");
    exchange.note_idle(10_032, 0.01, exchange.idle_ms(&settings), &settings);
    assert!(!exchange.is_proven(), "one look ends it");
}

/// Soon after a search nothing waits yet that is as hot as its scale wants.
#[test]
fn rounds_in_vain_of_an_earlier_search_do_not_count() {
    let (settings, mut exchange) = (settings(), Exchange::default());
    let mut now_ms = 10_000;
    for _ in 0..3 {
        come(&mut exchange, now_ms, &[0.1]);
        assert!(exchange.search(&settings));
        for idle in [0.5, 0.5, 0.5] {
            exchange.note_idle(now_ms, idle, 16, &settings);
            let nothing_waits = exchange.is_proven().then(Round::default);
            exchange.note_round(now_ms, nothing_waits, &settings);
        }
        assert!(exchange.is_proven() && exchange.resting(now_ms).is_none());
        // It fails, and hot and cold come further apart.
        exchange.note_idle(now_ms, 0.01, 16, &settings);
        exchange.failed = [f64::INFINITY; NARROW_SCALES];
        now_ms += 2000;
        exchange.resting = None;
    }
}

/// Until they went, most idle pages had been touched; what went is colder than all of them.
#[test]
fn a_few_that_go_are_worth_a_round() {
    for (went, rests) in [(1300, false), (1200, true)] {
        let mut exchange = Exchange::default();
        let round = Round {
            waited: 50_000,
            idle: 10_000,
            wanted: 40_000,
            went,
            aging_ms: 1,
        };
        (0..ROUNDS).for_each(|_| exchange.note_round(10_000, Some(round), &settings()));
        assert_eq!(exchange.resting(10_000).is_some(), rests, "{went}");
    }
}

/// Where agings take long, hint faults may name another scale at each look.
#[test]
fn two_looks_agree_whatever_scale_each_was_at() {
    let (settings, mut exchange) = (settings(), Exchange::default());
    let mut look = |now_ms: u64, gaps: &[f64], idle: f64| {
        come(&mut exchange, now_ms, gaps);
        assert!(exchange.search(&settings));
        exchange.note_idle(now_ms, idle, exchange.idle_ms(&settings), &settings);
        (exchange.touched_ms(&settings), exchange.is_proven())
    };
    assert_eq!(look(10_000, &[0.1], 0.5), (8, false));
    assert_eq!(look(20_000, &[0.9, 0.1], 0.5), (16, true));
    assert_eq!(look(30_000, &[0.1], 0.5), (8, true), "told apart at both");
    assert_eq!(look(40_000, &[0.3, 0.1], 0.01), (16, false), "no more");
    assert_eq!(look(50_000, &[0.9, 0.1], 0.5), (16, false), "the first");
    let second = "8 ms are open, too, but 16 gets its second look";
    assert_eq!(look(60_000, &[0.05, 0.1], 0.5), (16, true), "{second}");
    assert_eq!(look(70_000, &[0.05, 0.1], 0.5), (8, true));
}

/// A longer time leaves no more pages idle: what fails for want of them fails at wider scales.
#[test]
fn a_look_tells_of_wider_scales_that_ask_for_as_many() {
    for (idle, next_ms) in [(0.3, 16), (0.1, 32), (0.005, 0)] {
        let mut exchange = Exchange::default();
        come(&mut exchange, 10_000, &[0.4, 0.3, 0.1, 0.1]);
        assert!(exchange.search(&settings()));
        exchange.note_idle(10_000, idle, 16, &settings());
        let rests = exchange.resting(10_000) == Some(Rest::NobodyIdle);
        assert_eq!(rests, next_ms == 0, "{idle}");
        assert!(
            rests || exchange.touched_ms(&settings()) == next_ms,
            "{idle}"
        );
        assert!(!exchange.is_promising());
    }
    // And it may tell pages apart at a scale that it was not for.
    let mut exchange = Exchange::default();
    come(&mut exchange, 10_000, &[0.4, 0.05]);
    assert!(exchange.search(&settings()));
    exchange.note_idle(10_000, 0.04, 33, &settings());
    assert!(exchange.is_promising() && exchange.touched_ms(&settings()) == 16);
}

#[test]
fn a_scale_that_failed_is_tried_again_when_hot_and_cold_are_further_apart() {
    let (settings, mut exchange) = (settings(), Exchange::default());
    let scale_ms = |exchange: &mut Exchange, now_ms: u64, gap: f64| {
        come(exchange, now_ms, &[gap, 0.15]);
        assert!(exchange.search(&settings));
        exchange.touched_ms(&settings)
    };
    assert_eq!(scale_ms(&mut exchange, 10_000, 0.2), 8);
    exchange.note_idle(10_000, 0.07, exchange.idle_ms(&settings), &settings);
    assert_eq!(scale_ms(&mut exchange, 20_000, 0.2), 16, "that failed");
    let hardly_wider = 0.2 / WIDER_GAP * 1.1;
    assert_eq!(scale_ms(&mut exchange, 30_000, hardly_wider), 16);
    let wider = 0.2 / WIDER_GAP * 0.9;
    assert_eq!(scale_ms(&mut exchange, 40_000, wider), 8);
}

#[test]
fn where_scales_have_failed_and_none_is_left_it_rests() {
    let (settings, mut exchange) = (settings(), Exchange::default());
    exchange.give_up(10_000, &settings);
    assert!(exchange.takes_counted(&settings) && exchange.resting(10_000).is_none());
    come(&mut exchange, 20_000, &[0.4]);
    assert!(exchange.search(&settings));
    // Wide enough at the end of the look, and too wide a moment later.
    exchange.note_idle(20_000, 0.01, exchange.idle_ms(&settings), &settings);
    exchange.resting = None;
    come(&mut exchange, 30_000, &[0.6]);
    assert!(!exchange.search(&settings));
    exchange.give_up(30_000, &settings);
    assert_eq!(exchange.resting(30_000), Some(Rest::NobodyIdle));
}

#[test]
fn a_gap_that_comes_and_goes_is_tried_once() {
    let (settings, mut exchange) = (settings(), Exchange::default());
    let mut looks = 0;
    for now_ms in (10_000..100_000).step_by(2000) {
        // By chance the gap is narrow when the scale is chosen, and not when its look is over.
        come(&mut exchange, now_ms, &[0.2]);
        if !exchange.search(&settings) {
            break;
        }
        come(&mut exchange, now_ms + 1000, &[0.4]);
        exchange.note_idle(now_ms + 1000, 0.03, exchange.idle_ms(&settings), &settings);
        exchange.resting = None;
        looks += 1;
    }
    assert_eq!(looks, 1);
}

#[test]
fn a_gap_that_told_pages_apart_has_not_failed() {
    let (settings, mut exchange) = (settings(), Exchange::default());
    come(&mut exchange, 10_000, &[0.02]);
    for now_ms in [10_000, 10_050] {
        assert!(exchange.search(&settings));
        exchange.note_idle(now_ms, 0.5, exchange.idle_ms(&settings), &settings);
    }
    assert!(exchange.is_proven() && exchange.search(&settings));
    // The hot pages have gone up.
    come(&mut exchange, 20_000, &[0.3]);
    exchange.note_idle(20_000, 0.003, exchange.idle_ms(&settings), &settings);
    assert_eq!(exchange.resting(20_000), Some(Rest::NobodyIdle));
    come(&mut exchange, 20_500, &[0.02]);
    assert_eq!(exchange.resting(20_500), None, "others are hot now");
}

#[test]
fn a_scale_at_which_hardly_any_need_be_idle_is_not_tried_again() {
    let (settings, mut exchange) = (settings(), Exchange::default());
    come(&mut exchange, 10_000, &[0.05, 0.02]);
    assert!(exchange.search(&settings));
    exchange.note_idle(10_000, 0.003, exchange.idle_ms(&settings), &settings);
    assert_eq!(exchange.touched_ms(&settings), 16, "the next scale");
    // Narrower than it was when the first failed, but there one page in 250 must be idle.
    come(&mut exchange, 20_000, &[0.03, 0.02]);
    exchange.note_idle(20_000, 0.003, exchange.idle_ms(&settings), &settings);
    assert_eq!(exchange.resting(20_000), Some(Rest::NobodyIdle));
}

#[test]
fn a_gap_that_was_hardly_too_wide_ends_no_rest() {
    let (settings, mut exchange) = (settings(), Exchange::default());
    come(&mut exchange, 10_000, &[0.55, 0.3]);
    assert!(exchange.search(&settings));
    assert_eq!(exchange.touched_ms(&settings), 16, "at 8 ms there is none");
    exchange.note_idle(10_000, 0.003, exchange.idle_ms(&settings), &settings);
    assert!(exchange.resting(10_000).is_some());
    let mut by_chance = exchange.clone();
    come(&mut by_chance, 10_500, &[0.45, 0.3]);
    assert!(by_chance.resting(10_500).is_some());
    come(&mut exchange, 10_500, &[0.01, 0.3]);
    assert_eq!(exchange.resting(10_500), None, "a hot set has come");
    // Where memory is gone through in turn, one seems to have come at any moment.
    assert_eq!(exchange.rest_ms, by_chance.rest_ms, "until it has paid");
}

#[test]
fn rests_get_longer_until_one_has_paid() {
    let (settings, mut exchange) = (settings(), Exchange::default());
    let rest_ms = |exchange: &mut Exchange, now_ms: u64, idle: f64| -> u64 {
        assert_eq!(exchange.resting(now_ms), None);
        assert!(exchange.search(&settings));
        exchange.note_idle(now_ms, idle, exchange.idle_ms(&settings), &settings);
        exchange.note_idle(now_ms, idle, exchange.idle_ms(&settings), &settings);
        if exchange.is_proven() {
            exchange.rest(now_ms, Rest::NobodyIdle);
        }
        exchange
            .resting
            .map_or(0, |(until_ms, _)| until_ms - now_ms)
    };
    come(&mut exchange, 100_000, &[0.1]);
    assert_eq!(rest_ms(&mut exchange, 100_000, 0.01), REST_MS.0);
    come(&mut exchange, 200_000, &[0.1]);
    assert_eq!(rest_ms(&mut exchange, 200_000, 0.01), 2 * REST_MS.0);
    // Told apart, but what is left below is touched as often.
    come(&mut exchange, 300_000, &[0.1]);
    assert_eq!(rest_ms(&mut exchange, 300_000, 0.5), 4 * REST_MS.0);
    come(&mut exchange, 400_000, &[0.1]);
    exchange.search(&settings);
    exchange.note_idle(400_000, 0.5, exchange.idle_ms(&settings), &settings);
    exchange.note_idle(400_000, 0.5, exchange.idle_ms(&settings), &settings);
    assert!(exchange.is_proven());
    // And now it is touched more rarely: that has paid.
    come(&mut exchange, 410_000, &[0.1 * WIDER_GAP * 1.1]);
    assert_eq!(rest_ms(&mut exchange, 410_000, 0.5), REST_MS.0);
}

/// However long the pages that move are of no use, what is moved is bounded.
#[test]
fn what_comes_back_ends_the_exchange() {
    let (settings, mut exchange) = (settings(), Exchange::default());
    let mut all = Outcomes::default();
    let mut moved = 0;
    for now_ms in (0..60_000).step_by(100) {
        exchange.is_proven = true;
        let pages = exchange.refill(now_ms, &settings);
        exchange.spend(now_ms, pages);
        all.promoted += pages * 7 / 10;
        all.returned += pages * 3 / 10;
        exchange.note(now_ms, FaultTimes::default(), all, &settings);
        moved += pages;
    }
    assert!(moved < 120_000, "{moved} in a minute");
    // From the moment that they stay where they are, it is as quick as it may be.
    for now_ms in (60_000..140_000).step_by(100) {
        exchange.is_proven = true;
        let pages = exchange.refill(now_ms, &settings);
        all.promoted += pages;
        exchange.spend(now_ms, pages);
        exchange.note(now_ms, FaultTimes::default(), all, &settings);
    }
    assert_eq!(exchange.rate_mbps(), 1024);
}

#[test]
fn the_rate_limit_bounds_it() {
    let mut settings = settings();
    settings.promote_rate_limit_mbps = 1;
    let mut exchange = Exchange {
        is_proven: true,
        ..Exchange::default()
    };
    assert!(exchange.refill(1000, &settings) <= 256);
    settings.promote_rate_limit_mbps = 0;
    assert_eq!(exchange.refill(2000, &settings), 0);
}

/// Tunables change while it works.
#[test]
fn a_scale_that_is_gone_does_no_harm() {
    let mut exchange = Exchange::default();
    let mut slow = Tiers::new(&[(1.0, 0.01)], &[(0.3, 20.0), (0.7, 0.01)]);
    (0..20).for_each(|_| slow.run(&mut exchange));
    let mut settings = settings();
    for quick_fault_ms in [0, 20, 1, 60_000] {
        settings.quick_fault_ms = quick_fault_ms;
        exchange.note(slow.now_ms, slow.faults, Outcomes::default(), &settings);
        exchange.note_idle(slow.now_ms, 0.5, exchange.idle_ms(&settings), &settings);
        exchange.note_round(slow.now_ms, Some(Round::default()), &settings);
        exchange.search(&settings);
        assert!(exchange.idle_ms(&settings) >= 2 * u64::from(exchange.touched_ms(&settings)));
    }
}

/// A rest that follows from it is longer each time, until something was worth it.
#[test]
fn what_is_not_touched_again_was_promoted_in_vain() {
    let fates = |looked, touched| Fates {
        looked,
        touched,
        ..Fates::default()
    };
    let mut exchange = Exchange::default();
    let mut busy = Tiers::new(&[(1.0, 20.0)], &[(0.5, 1000.0), (0.5, 20.0)]);
    let mut rest_ms = |verdicts: &[Fates]| {
        assert!(busy.is_proven_within(&mut exchange, 1000).is_some());
        for verdict in verdicts {
            exchange.note_fates(busy.now_ms, *verdict, &settings());
        }
        let why = exchange.resting(busy.now_ms)?;
        assert_eq!(why, Rest::NotTouchedAgain);
        (1..).find(|ms| exchange.resting(busy.now_ms + ms).is_none())
    };
    assert_eq!(rest_ms(&[fates(63, 0)]), None, "too few to tell");
    assert_eq!(rest_ms(&[fates(1, 1)]), Some(1000));
    // Places that nobody used: until it is known who uses none for long, instead of 2 s.
    let idle = |idle_touched| Fates {
        idle: 6400,
        idle_touched,
        ..fates(100, 24)
    };
    assert_eq!(rest_ms(&[idle(100)]), Some(3000));
    assert_eq!(rest_ms(&[idle(101)]), Some(4000));
    assert_eq!(rest_ms(&[fates(100, 25)]), None, "a quarter is enough");
    assert_eq!(rest_ms(&[fates(100, 0)]), Some(8000), "vain all the same");
}

/// Where all pages are alike, and where those that could go come next, an exchange brings nothing.
#[test]
fn what_goes_up_must_be_hotter_than_what_could_go() {
    let is_vain = |touched, idle_touched| {
        let mut exchange = Exchange::default();
        let mut busy = Tiers::new(&[(1.0, 20.0)], &[(0.5, 1000.0), (0.5, 20.0)]);
        assert!(busy.is_proven_within(&mut exchange, 1000).is_some());
        let fates = Fates {
            looked: 100,
            touched,
            idle: 10_000,
            idle_touched,
            ..Fates::default()
        };
        exchange.note_fates(busy.now_ms, fates, &settings());
        exchange.resting(busy.now_ms).is_some()
    };
    assert!(is_vain(60, 6000), "all are alike");
    assert!(is_vain(39, 9000), "they come next");
    assert!(!is_vain(43, 500), "a few hot ones");
    assert!(
        !is_vain(60, 4800) && !is_vain(60, 5000),
        "sure, and perhaps"
    );
    assert!(!is_vain(95, 7000), "in a long while most are touched");
}
