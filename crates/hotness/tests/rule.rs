//! The update rule against a slow oracle that keeps every timestamp.

#![allow(clippy::unwrap_used)]

use pghot_hotness::{
    Access, Format, PfnRange, Record, Report, Rule, SECTION_PAGES, Span, Table, is_sampled,
};
use proptest::prelude::*;

const PFN: u64 = 7 * SECTION_PAGES;

fn table(format: Format) -> Table {
    let range = PfnRange {
        start: PFN,
        end: PFN + SECTION_PAGES,
        nid: 2,
    };
    Table::in_memory(format, Span::new(&[range]).unwrap())
}

/// The frequency of a record after accesses by these rules, and whether its page is ready.
fn freq_after(format: Format, rules: &[Rule]) -> (u32, bool) {
    let table = table(format);
    for rule in rules {
        table.report(PFN, 0, 1_000_000, rule);
    }
    let record = table.get(PFN).unwrap();
    (record.freq(), record.is_ready())
}

/// What was quick by a wider limit may not be by a narrower one.
#[test]
fn what_only_counts_fills_no_record() {
    for (format, full) in [(Format::Default, 3), (Format::Precision, 7)] {
        let rule = Rule::new(format, 2, 1000).unwrap();
        let freq_after = |rules: &[Rule]| freq_after(format, rules);
        let (quick, counting) = (rule.at_one_look(), rule.counting());
        assert_eq!(freq_after(&[quick]), (full, true));
        assert_eq!(freq_after(&[counting]), (1, false));
        assert_eq!(freq_after(&[counting, counting]), (2, true));
        assert_eq!(freq_after(&[counting; 9]), (full - 1, true));
        assert_eq!(freq_after(&[quick, counting]), (full - 1, true));
        assert_eq!(freq_after(&[counting, quick]), (full, true));
        // Nothing less would make it ready.
        let rule = Rule::new(format, full, 1000).unwrap();
        assert_eq!(freq_after(&[rule.counting(); 9]), (full, true));
    }
}

/// Remembers all accesses of one page; the truth that the record approximates.
#[derive(Clone, Default)]
struct Oracle {
    accesses_ms: Vec<u64>,
}

impl Oracle {
    /// Length of the newest run of accesses with no gap over `gap_ms`.
    fn run(&self, gap_ms: u64) -> u32 {
        let gaps = self
            .accesses_ms
            .windows(2)
            .rev()
            .take_while(|w| w[1] - w[0] <= gap_ms);
        gaps.count() as u32 + !self.accesses_ms.is_empty() as u32
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// Time passes, then page `PFN + page` is accessed.
    Access { page: u64, gap_ms: u64 },
    /// Time passes, then the migrator ages what is due.
    Sweep { gap_ms: u64 },
    /// Time passes, then the migrator takes a page's record: it moved.
    Take { page: u64, gap_ms: u64 },
}

fn steps(max_gap_ms: u64) -> impl Strategy<Value = Vec<Step>> {
    let page = 0..6u64;
    let gap = prop_oneof![0..50u64, 0..1500u64, 0..=max_gap_ms];
    let step = prop_oneof![
        6 => (page.clone(), gap.clone()).prop_map(|(page, gap_ms)| Step::Access { page, gap_ms }),
        2 => gap.clone().prop_map(|gap_ms| Step::Sweep { gap_ms }),
        1 => (page, gap).prop_map(|(page, gap_ms)| Step::Take { page, gap_ms }),
    ];
    prop::collection::vec(step, 1..80)
}

fn rules() -> impl Strategy<Value = Rule> {
    prop_oneof![
        (1..=3u32, 1000..=3968u32).prop_map(|(f, w)| Rule::new(Format::Default, f, w).unwrap()),
        (1..=7u32, 1000..=16383u32).prop_map(|(f, w)| Rule::new(Format::Precision, f, w).unwrap()),
    ]
}

/// Around every wrap of the time field, and far from it.
fn starts() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..70_000u64,
        (1u64 << 32) - 9_000..(1 << 32) + 9_000,
        0..1u64 << 50
    ]
}

fn record(t: &Table, page: u64) -> Record {
    t.get(PFN + page).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// However late or absent the migrator is: no access outside the window is ever counted, and
    /// no page is ready without `freq_threshold` accesses, each within the window of the last.
    #[test]
    fn nothing_outside_the_window_counts(
        rule in rules(), start in starts(), steps in steps(400_000),
    ) {
        let t = table(rule.format());
        let mut oracles = vec![Oracle::default(); 6];
        let mut now = start;
        for step in steps {
            match step {
                Step::Access { page, gap_ms } => {
                    now += gap_ms;
                    t.report(PFN + page, 1, now, &rule);
                    oracles[page as usize].accesses_ms.push(now);
                }
                Step::Sweep { gap_ms } => {
                    now += gap_ms;
                    t.sweep(2, now, rule.ageing_interval_ms(), &rule);
                }
                Step::Take { page, gap_ms } => {
                    now += gap_ms;
                    t.take(PFN + page);
                    oracles[page as usize] = Oracle::default();
                }
            }
            for (page, oracle) in oracles.iter().enumerate() {
                let rec = record(&t, page as u64);
                let run = oracle.run(rule.window_ms() as u64);
                prop_assert!(rec.freq() <= run, "page {page}: {} > {run}", rec.freq());
                let ready = rec.freq() >= rule.freq_threshold();
                prop_assert_eq!(rec.is_ready(), ready && !rec.is_empty());
            }
        }
    }

    /// With a migrator that ages in time, accesses that are surely inside the window all count:
    /// the frequency is exact up to its saturation and ready comes exactly at the threshold.
    #[test]
    fn everything_inside_the_window_counts(
        rule in rules(), start in starts(), gaps in prop::collection::vec(0.0..1.0f64, 1..30),
    ) {
        let t = table(rule.format());
        let sure_ms = rule.window_ms() as u64 - 2 * rule.format().unit_ms() as u64;
        let (mut now, mut oracle) = (start, Oracle::default());
        for gap in gaps {
            let next = now + (gap * sure_ms as f64) as u64;
            while now + 100 < next {
                now += 100;
                t.sweep(2, now, rule.ageing_interval_ms(), &rule);
            }
            now = next;
            let was_ready = record(&t, 3).is_ready();
            let report = t.report(PFN + 3, 1, now, &rule);
            oracle.accesses_ms.push(now);
            let rec = record(&t, 3);
            let run = oracle.run(rule.window_ms() as u64);
            prop_assert_eq!(rec.freq(), run.min(rule.format().freq_max()));
            prop_assert_eq!(rec.is_ready(), run >= rule.freq_threshold());
            prop_assert_eq!(report == Report::BecameReady, rec.is_ready() && !was_ready);
            prop_assert!(rec.age_ms(now) == 0 && rec.is_fresh(now, &rule));
        }
    }

    /// After a sweep nothing is left that the window has passed, and nothing fresh is lost.
    #[test]
    fn a_sweep_clears_what_is_old_and_only_that(
        rule in rules(), start in starts(), ages in prop::collection::vec(0..60_000u64, 6),
    ) {
        let t = table(rule.format());
        let end = start + 60_000;
        let mut order: Vec<usize> = (0..6).collect();
        order.sort_by_key(|&p| std::cmp::Reverse(ages[p]));
        let mut now = start;
        for p in order {
            while now + 100 < end - ages[p] {
                now += 100;
                t.sweep(2, now, rule.ageing_interval_ms(), &rule);
            }
            now = end - ages[p];
            t.report(PFN + p as u64, 1, now, &rule);
        }
        while now < end {
            now = (now + 100).min(end);
            t.sweep(2, now, rule.ageing_interval_ms(), &rule);
        }
        let swept = t.sweep(2, end, 0, &rule);
        let unit = rule.format().unit_ms() as u64;
        for (p, &age) in ages.iter().enumerate() {
            let rec = record(&t, p as u64);
            if age > rule.window_ms() as u64 {
                prop_assert!(rec.is_empty(), "page {} of age {} is left", p, age);
            } else if age + 2 * unit <= rule.window_ms() as u64 {
                prop_assert_eq!(rec.freq(), 1);
                prop_assert!(rec.age_ms(end) as u64 <= age + unit);
            }
        }
        let left = (0..6).filter(|&p| !record(&t, p).is_empty()).count();
        prop_assert_eq!(t.live_sections(2).0 > 0, left > 0);
        prop_assert!(swept.sections <= 1);
    }

    /// Reports that arrive a little late or out of order count as now.
    #[test]
    fn late_reports_keep_the_history(
        rule in rules(),
        start in 1000..1u64 << 40,
        late in 0..256u64,
    ) {
        let t = table(rule.format());
        t.report(PFN, 1, start, &rule);
        t.report(PFN, 1, start - late, &rule);
        prop_assert_eq!(record(&t, 0).freq(), 2);
    }

    /// Bulks of reports leave the same records as single reports, also across two ranges of pages
    /// and the hole between them.
    #[test]
    fn bulk_equals_single(
        rule in rules(),
        bulks in prop::collection::vec(
            (0..9000u64, prop::collection::vec((0..160u64, 0..3u32), 0..50)),
            0..8,
        ),
    ) {
        let sections = |first: u64, nid| {
            let start = PFN + first * SECTION_PAGES;
            PfnRange { start, end: start + SECTION_PAGES, nid }
        };
        let span = Span::new(&[sections(0, 2), sections(2, 3)]).unwrap();
        let table = || Table::in_memory(rule.format(), span.clone());
        let (one, many) = (table(), table());
        let pfn = |page: u64| PFN + page * 600;
        for (when_ms, bulk) in bulks {
            let accesses: Vec<Access> =
                bulk.iter().map(|&(page, nid)| Access { pfn: pfn(page), nid }).collect();
            let (mut ready, mut untracked, mut ready_samples) = (0, 0, Vec::new());
            for a in &accesses {
                let report = one.report(a.pfn, a.nid, when_ms, &rule);
                ready += (report == Report::BecameReady) as u64;
                untracked += (report == Report::NotTracked) as u64;
                if report == Report::BecameReady && is_sampled(a.pfn) {
                    ready_samples.push(a.pfn);
                }
            }
            let mut samples = Vec::new();
            let sum = many.report_bulk(&accesses, when_ms, &rule, |pfn| samples.push(pfn));
            prop_assert_eq!((sum.became_ready, sum.not_tracked, sum.lost), (ready, untracked, 0));
            prop_assert_eq!(sum.recorded + untracked, accesses.len() as u64);
            prop_assert_eq!(samples, ready_samples);
        }
        for page in 0..160 {
            prop_assert_eq!(one.get(pfn(page)), many.get(pfn(page)));
        }
        prop_assert_eq!(one.live_sections(2), many.live_sections(2));
        prop_assert_eq!(one.live_sections(3), many.live_sections(3));
    }
}

#[test]
fn precision_keeps_the_accessing_node() {
    let t = table(Format::Precision);
    let rule = Rule::new(Format::Precision, 2, 5000).unwrap();
    t.report(PFN, 1023, 10, &rule);
    assert_eq!(record(&t, 0).nid(), Some(1023));
    t.report(PFN, 1, 20, &rule);
    assert_eq!((record(&t, 0).nid(), record(&t, 0).freq()), (Some(1), 2));
    assert_eq!(table(Format::Default).get(PFN).unwrap().nid(), None);
}

/// Ready at once, but less than full; what was full is so no more.
#[test]
fn one_look_may_be_enough_and_no_more() {
    for format in [Format::Default, Format::Precision] {
        let full = format.freq_max();
        for threshold in 1..full {
            let rule = Rule::new(format, threshold, 3000).unwrap();
            let after = |rules: &[Rule]| freq_after(format, rules);
            let ready = rule.ready_at_one_look();
            assert_eq!(after(&[ready]), (threshold, true));
            assert_eq!(after(&[ready; 9]), (full - 1, true));
            assert_eq!(after(&[rule.at_one_look(), ready]), (full - 1, true));
        }
        let rule = Rule::new(format, full, 3000).unwrap();
        assert_eq!(
            freq_after(format, &[rule.ready_at_one_look()]),
            (full, true)
        );
    }
}

#[test]
fn at_one_look_a_record_is_full_and_its_page_ready() {
    for format in [Format::Default, Format::Precision] {
        for freq_threshold in 1..=format.freq_max() {
            let t = table(format);
            let rule = Rule::new(format, freq_threshold, 2000).unwrap();
            t.report(PFN, 1, 10, &rule.at_one_look());
            assert_eq!(record(&t, 0).freq(), format.freq_max());
            assert!(record(&t, 0).is_ready(), "{format:?} {freq_threshold}");
            // Its time is that of the access, as ever.
            t.report(PFN, 1, 10 + 2 * u64::from(format.unit_ms()) + 2000, &rule);
            assert_eq!(record(&t, 0).freq(), 1, "outside the window");
        }
    }
}

#[test]
fn parameters_out_of_range_are_refused() {
    for (format, freq, window) in [
        (Format::Default, 0, 3000),
        (Format::Default, 4, 3000),
        (Format::Default, 2, 999),
        (Format::Default, 2, 3969),
        (Format::Precision, 8, 5000),
        (Format::Precision, 2, 16384),
    ] {
        assert!(
            Rule::new(format, freq, window).is_err(),
            "{format:?} {freq} {window}"
        );
    }
}

#[test]
fn metadata_is_one_byte_or_four_per_page() {
    assert_eq!(table(Format::Default).bytes(), (SECTION_PAGES, 8));
    assert_eq!(table(Format::Precision).bytes(), (4 * SECTION_PAGES, 8));
}
