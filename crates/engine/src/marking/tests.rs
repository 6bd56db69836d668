//! How the budget of hint faults follows what comes of them.

use super::*;

/// After so many seconds with so many faults each, of which so many led to promotions.
fn after(marking: &mut Marking, seconds: u64, faults: u64, promoted: u64) -> u64 {
    for _ in 0..seconds {
        let now_ms = marking.judged_ms + 1000;
        let mut all = marking.faults;
        all.0[0] += faults;
        marking.note(now_ms, all, marking.promoted + promoted, Worth::Exchanged);
    }
    marking.report().size_mb
}

fn soon(faults: u64) -> FaultTimes {
    let mut times = FaultTimes::default();
    times.0[0] = faults;
    times
}

#[test]
fn pages_in_use_again_are_looked_at_whatever_came_of_it_before() {
    let mut marking = Marking::new(4);
    after(&mut marking, 9, 10_000, 0);
    assert!(!marking.report().pays);
    let mut later = |faults: u64| {
        let mut all = marking.faults;
        all.0[0] += 1000;
        *all.0.last_mut().unwrap() += faults;
        marking.note(
            marking.judged_ms + 1000,
            all,
            marking.promoted,
            Worth::Exchanged,
        );
        marking.report().pays
    };
    assert!(!later(1000), "few");
    assert!(later(10_000), "many");
    // As ever: somebody goes through memory again and again.
    assert_eq!([10_000; 3].map(&mut later), [true, false, false]);
    assert!(later(100_000), "many more");
}

#[test]
fn marks_are_frequent_as_long_as_they_pay() {
    let mut marking = Marking::new(4);
    assert_eq!(after(&mut marking, 2, 0, 0), 16, "marks stay");
    assert_eq!(after(&mut marking, 1, 1000, 1000), 64, "not too fast");
    assert_eq!(after(&mut marking, 9, 8000, 2000), 64);
    assert_eq!(after(&mut marking, 1, 32_768, 4096), 24, "too many");
    assert_eq!(after(&mut marking, 1, 8192, 0), 24, "it may yet pay");
    assert_eq!(after(&mut marking, 1, 8192, 0), 9, "it does not");
    assert_eq!(after(&mut marking, 9, 40_000, 0), 1, "somebody must look");
    assert!(marking.visits().rests);
    assert_eq!(after(&mut marking, 16, 0, 0), 1);
    assert_eq!(after(&mut marking, 1, 1024, 10), 3);
    assert_eq!(after(&mut marking, 9, 64, 0), 16);
    assert!(!marking.report().pays);
    assert_eq!(after(&mut marking, 1, 1000, 2000), 64, "it does again");
    assert!(marking.report().pays);
}

/// In each second in which marks are made so many faults come, and none in others.
#[test]
fn on_average_the_budget_is_kept() {
    const SECONDS: u64 = 60;
    let mut marking = Marking::new(2);
    after(&mut marking, 9, 8000, 0);
    let budget = marking.report().budget_per_s;
    for faults in [1000, budget - 1, 10_000, 30_000, 100] {
        after(&mut marking, 2 * REST_MAX_MS / 1000, 0, 0);
        let mut came = 0;
        let mut rested = 0;
        for _ in 0..SECONDS {
            let now = match marking.visits().rests {
                true => 0,
                false => faults,
            };
            (came, rested) = (came + now, rested + u64::from(now == 0));
            after(&mut marking, 1, now, 0);
        }
        assert!(
            came <= budget * SECONDS + 2 * faults,
            "{came} of {faults} a second, resting {rested} s"
        );
        assert_eq!(rested > 0, faults > budget, "{faults}");
        assert!(rested < SECONDS, "somebody must look");
    }
    assert!(!marking.report().sentence().contains("nothing for a moment"));
}

#[test]
fn a_rest_ends_when_pages_are_in_use_again() {
    let mut marking = Marking::new(2);
    after(&mut marking, 9, 100_000, 0);
    assert!(marking.visits().rests);
    let said = marking.report().sentence();
    assert!(said.starts_with("nothing for a moment"), "{said}");
    let mut all = marking.faults;
    *all.0.last_mut().unwrap() += 100_000;
    marking.note(
        marking.judged_ms + 250,
        all,
        marking.promoted,
        Worth::Exchanged,
    );
    assert!(!marking.visits().rests && marking.report().pays);
}

#[test]
fn faults_are_counted_on_when_their_counter_begins_anew() {
    let mut marking = Marking::new(1);
    marking.note(1000, soon(5), 0, Worth::Exchanged);
    marking.note(2000, soon(3), 0, Worth::Exchanged);
    let classes: Vec<_> = marking.report().fault_times.classes().collect();
    assert_eq!(classes[..2], [(Some(8), 8), (Some(16), 0)]);
    assert_eq!(classes[7..], [(Some(1024), 0), (None, 0)]);
}

#[test]
fn there_may_be_as_many_as_promotions_are_worth() {
    let budget = |worth, promoted| {
        let mut marking = Marking::new(4);
        let start = marking.report().budget_per_s;
        assert_eq!(start, 16_384, "nobody knows yet");
        (1..=3).for_each(|s| marking.note(s * 1000, soon(s * 16_384), s * promoted, worth));
        marking.report().budget_per_s
    };
    assert_eq!(budget(Worth::Exchanged, 16_384), 16_384);
    assert_eq!(budget(Worth::FillsRoom, 16_384), 65_536);
    assert_eq!(budget(Worth::FillsRoom, 6000), 48_000);
    assert_eq!(
        budget(Worth::FillsRoom, 50_000),
        200_000,
        "most are promoted"
    );
    assert_eq!(budget(Worth::FillsRoom, 1 << 20), 4 * 65_536);
    assert_eq!(budget(Worth::FillsRoom, 0), budget(Worth::Exchanged, 0));
    assert_eq!(budget(Worth::InVain, 16_384), 4096, "it earns nothing");
}

#[test]
fn faults_are_counted_by_the_second() {
    let mut marking = Marking::new(4);
    marking.note(1000, soon(0), 0, Worth::Exchanged);
    assert!(
        !marking.is_due(2999, soon(0), 0, Worth::Exchanged),
        "an idle machine is asked rarely"
    );
    assert!(marking.is_due(3000, soon(0), 0, Worth::Exchanged));
    assert!(!marking.is_due(1249, soon(1), 0, Worth::Exchanged));
    assert!(marking.is_due(1250, soon(1), 0, Worth::Exchanged));
    assert!(marking.is_due(1250, soon(0), 1, Worth::Exchanged));
    // As many as the budget allows in four seconds.
    marking.note(5000, soon(4 * 16_384), 4 * 16_384, Worth::Exchanged);
    assert_eq!(marking.report().size_mb, 16);
    assert!(marking.is_due(5250, soon(4 * 16_384), 4 * 16_384, Worth::Exchanged));
    // For a second in vain.
    marking.note(6000, soon(5 * 16_384), 4 * 16_384, Worth::Exchanged);
    let said = marking.report().sentence();
    assert!(said.starts_with("6 MB of a process"), "{said}");
    assert!(said.ends_with("8192 at most"), "{said}");
    marking.note(13_000, soon(6 * 16_384), 4 * 16_384, Worth::Exchanged);
    let said = marking.report().sentence();
    assert!(
        said.ends_with("4096 at most, for few lead to promotions"),
        "{said}"
    );
}

#[test]
fn counters_that_start_anew_do_no_harm() {
    let mut marking = Marking::new(4);
    marking.note(1000, soon(8000), 8000, Worth::Exchanged);
    marking.note(2000, soon(0), 0, Worth::Exchanged);
    assert_eq!(marking.report().size_mb, 16);
    marking.note(2000, soon(u64::MAX / 1000), u64::MAX / 8, Worth::Exchanged);
}

/// Visits that fill room are large, and there is none now.
#[test]
fn that_room_is_used_up_is_noted_at_once() {
    let mut marking = Marking::new(4);
    marking.note(1000, soon(10_000), 10_000, Worth::FillsRoom);
    assert!(!marking.is_due(1020, soon(11_000), 11_000, Worth::FillsRoom));
    assert!(marking.is_due(1020, soon(11_000), 11_000, Worth::Exchanged));
    marking.note(1020, soon(11_000), 11_000, Worth::Exchanged);
    assert!(!marking.is_due(1040, soon(12_000), 12_000, Worth::Exchanged));
}

/// Many more pages are in use than before: all are marked at once, and then as few as ever.
#[test]
fn an_alarm_lasts_until_what_is_in_use_has_faulted() {
    let mut marking = Marking::new(4);
    after(&mut marking, 9, 40_000, 0);
    assert!(marking.visits().rests && !marking.marks_enough());
    marking.note_alarm(marking.judged_ms, 20_000);
    assert_eq!(
        (marking.visits().rests, marking.visits().size_mb),
        (false, 32)
    );
    let mut all = marking.faults;
    let mut later = |faults: u64| {
        all.0[0] += faults;
        marking.note(marking.judged_ms + 250, all, 0, Worth::Exchanged);
        marking.report()
    };
    assert_eq!(later(10_000).budget_per_s, 4 * ROOMY_BUDGET.0);
    let done = later(10_000);
    assert_eq!(done.budget_per_s, 4 * BUDGET.0);
    assert!(done.size_mb < 8, "{}", done.size_mb);
    // If they do not come, it ends as well.
    marking.note_alarm(marking.judged_ms, 20_000);
    after(&mut marking, 2, 100, 0);
    assert!(!marking.marks_enough());
}

/// Where the scanner comes from pages that nobody touches to others, a large visit may lead to many
/// faults at once. They are paid for as well.
#[test]
fn what_a_large_visit_led_to_is_paid_for() {
    let mut marking = Marking::new(4);
    after(&mut marking, 20, 0, 0);
    after(&mut marking, 9, 40_000, 0);
    after(&mut marking, 40, 0, 0);
    assert_eq!(marking.report().size_mb, 16);
    after(&mut marking, 1, 40_000, 0);
    let seconds = (0..20).take_while(|_| {
        let is_small = after(&mut marking, 1, 0, 0) == 1;
        is_small && marking.visits().rests
    });
    assert_eq!(seconds.count(), 8, "of 4,096 faults each");
}

/// A program of one thread would pay for all CPUs of a large machine.
#[test]
fn few_busy_cpus_have_a_small_budget_where_nothing_comes_of_it() {
    let least = |cpus, busy_cpus| {
        let mut marking = Marking::new(cpus);
        marking.note_busy(busy_cpus);
        after(&mut marking, 20, 50_000, 0);
        assert!(!marking.marks_enough());
        marking.report().budget_per_s
    };
    assert_eq!(least(64, 1.0), 2048);
    assert_eq!(least(64, 0.0), 1024);
    assert_eq!(least(64, 10.5), 21_504);
    assert_eq!(least(64, 60.0), 65_536);
    assert_eq!(least(4, 2.1), 4096);
}
