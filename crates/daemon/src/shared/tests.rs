//! What is set is in force, and sources start, stop and give way.

use std::sync::atomic::Ordering::Relaxed;

use pghot_engine::arbiter::Reads;
use pghot_engine::marking::Visits;
use pghot_linux::knobs::Foreign;

use super::*;
use crate::status::SourceState;
use crate::testing::{LOWER_PFN, REFUSAL, daemon};

#[test]
fn a_good_value_is_in_force_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, _) = daemon(dir.path());
    shared.set("freq_threshold", "3").unwrap();
    shared.set("target_nid", "1").unwrap();
    let (settings, rule) = shared.settings_and_rule();
    assert_eq!((settings.freq_threshold, settings.target_nid), (3, Some(1)));
    assert_eq!(rule, settings.rule().unwrap());
    assert_eq!(shared.config_generation.load(Relaxed), 2);
}

#[test]
fn a_page_that_becomes_ready_and_moves_at_once_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, _) = daemon(dir.path());
    let samples = || lock(&shared.latency).report().samples;
    shared.note_moved(&[Moved {
        pfn: LOWER_PFN,
        when_ns: 5_000_000,
    }]);
    {
        let _starting = lock(&shared.sources);
        shared.measure_waits();
        assert_eq!(samples(), 0);
    }
    shared.measure_waits();
    assert_eq!(samples(), 1);
    let more = vec![Moved { pfn: 1, when_ns: 1 }; MOVED_MAX + 1];
    shared.note_moved(&more);
    assert_eq!(lock(&shared.moved).len(), MOVED_MAX);
}

#[test]
fn a_bad_value_changes_nothing_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, watched) = daemon(dir.path());
    let before = shared.settings();
    for (name, value, sentence) in [
        (
            "freq",
            "1",
            "there is no tunable `freq`: did you mean `freq_",
        ),
        (
            "mode",
            "precision",
            "there is no tunable `mode`; there are freq_threshold",
        ),
        ("freq_threshold", "4", "freq_threshold is 1 to 3"),
        ("freq_threshold", "two", "takes a whole number"),
        (
            "target_nid",
            "2",
            "target_nid 2 is not in the top tier: choose a top-tier node (0, 1)",
        ),
        ("target_nid", "9", "target_nid 9 is offline"),
    ] {
        let error = shared.set(name, value).unwrap_err();
        assert!(error.contains(sentence), "{error}");
    }
    watched.refuses_rule.store(true, Relaxed);
    assert!(shared.set("freq_threshold", "3").is_err());
    assert_eq!(shared.settings(), before);
    assert_eq!(shared.config_generation.load(Relaxed), 0);
}

#[test]
fn sources_are_started_and_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, watched) = daemon(dir.path());
    assert_eq!(watched.running.load(Relaxed), 1);
    shared.set("enabled_sources", "0").unwrap();
    assert_eq!(watched.running.load(Relaxed), 0);
    assert_eq!(
        watched.cleared.load(Relaxed),
        1,
        "the kernel settings went back"
    );
    watched.refuses_start.store(true, Relaxed);
    shared.set("enabled_sources", "0x1").unwrap();
    let report = lock(&shared.sources).report();
    assert_eq!(report[0].state, SourceState::Unavailable);
    assert_eq!(report[0].why.as_deref(), Some(REFUSAL));
    assert_eq!(watched.cleared.load(Relaxed), 2, "nothing is left behind");
    lock(&shared.sources).close();
    watched.refuses_start.store(false, Relaxed);
    shared.set("enabled_sources", "0").unwrap();
    shared.set("enabled_sources", "1").unwrap();
    assert_eq!(
        watched.running.load(Relaxed),
        0,
        "nothing starts once the daemon ends"
    );
}

#[test]
fn faults_that_cannot_stand_by_are_taken_away() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, watched) = daemon(dir.path());
    shared.set("enabled_sources", "0x5").unwrap();
    watched.refuses_stand_by.store(true, Relaxed);
    lock(&shared.sources).note_free_space(Instant::now(), [true]);
    let report = lock(&shared.sources).report();
    assert_eq!(report[0].state, SourceState::Unavailable);
    assert_eq!(report[0].why.as_deref(), Some(REFUSAL));
    assert_eq!(watched.cleared.load(Relaxed), 1);
    assert_eq!(watched.running.load(Relaxed), 1);
}

/// A start and a return write the size that they begin with.
#[test]
fn the_scanner_is_told_again_once_it_may_have_been_told_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, watched) = daemon(dir.path());
    let visits = |size_mb, rests| Visits {
        size_mb,
        is_pulse: false,
        rests,
        marks_above: false,
    };
    let told = |size_mb| {
        lock(&shared.sources).mark(visits(size_mb, false));
        std::mem::take(&mut *lock(&watched.marked))
    };
    assert_eq!(told(64), [visits(64, false)]);
    assert!(told(64).is_empty(), "it knows");
    assert_eq!(told(128), [visits(128, false)]);
    let has_plenty = |now, plenty| lock(&shared.sources).note_free_space(now, [plenty]);
    let now = Instant::now();
    shared.set("enabled_sources", "0x5").unwrap();
    has_plenty(now, true);
    assert_eq!(
        told(128),
        [visits(128, true)],
        "who stands by marks nothing"
    );
    has_plenty(now + Duration::from_secs(60), false);
    assert_eq!(watched.standing_by.load(Relaxed), 0);
    assert_eq!(told(128), [visits(128, false)], "it was standing by");
    shared.set("enabled_sources", "0").unwrap();
    assert!(told(128).is_empty(), "nobody is there");
    shared.set("enabled_sources", "1").unwrap();
    assert_eq!(told(128), [visits(128, false)], "it was started again");
}

#[test]
fn a_setting_that_others_change_is_taken_back_once() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, watched) = daemon(dir.path());
    shared.set("enabled_sources", "0x5").unwrap();
    watched.standing_by.store(1, Relaxed);
    let changed = || Foreign {
        path: "/proc/sys/kernel/numa_balancing".into(),
        ours: "2".into(),
        present: "0".into(),
    };
    let now = Instant::now();
    shared.check_sources(now);
    assert_eq!(watched.standing_by.load(Relaxed), 1, "nothing was changed");
    lock(&watched.foreign).push(changed());
    shared.check_sources(now);
    assert_eq!(watched.standing_by.load(Relaxed), 0, "it is set again");
    let state = |source: usize| lock(&shared.sources).report()[source].clone();
    assert_eq!(state(0).state, SourceState::Running);

    lock(&watched.foreign).push(changed());
    shared.check_sources(now + Duration::from_secs(60));
    assert_eq!(state(0).state, SourceState::Unavailable);
    let why = state(0).why.unwrap_or_default();
    assert!(
        why.contains("set /proc/sys/kernel/numa_balancing to 0"),
        "{why}"
    );
    assert_eq!(watched.cleared.load(Relaxed), 1, "the others are put back");
    assert_eq!(state(1).state, SourceState::Running);
    shared.set("enabled_sources", "0x4").unwrap();
    shared.set("enabled_sources", "0x5").unwrap();
    assert_eq!(state(0).state, SourceState::Running, "it was asked for");
}

#[test]
fn a_source_without_its_thread_is_unavailable() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, watched) = daemon(dir.path());
    watched.are_dead.store(true, Relaxed);
    shared.check_sources(Instant::now());
    let report = lock(&shared.sources).report();
    assert_eq!(report[0].state, SourceState::Unavailable);
    assert!(
        report[0]
            .why
            .clone()
            .unwrap_or_default()
            .contains("thread failed")
    );
    assert_eq!(watched.running.load(Relaxed), 0);
}

#[test]
fn reads_are_watched_once_they_can_go_up() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, watched) = daemon(dir.path());
    shared.set("enabled_sources", "0x9").unwrap();
    let state = |after_s, room_pages| {
        let now = Instant::now() + Duration::from_secs(after_s);
        lock(&shared.sources).note_reads(now, || Reads {
            cache_pages: 10_240,
            room_pages,
            top_tier_pages: 1 << 15,
            ..Reads::default()
        });
        let report = lock(&shared.sources).report();
        let why = report[3].why.clone().unwrap_or_default();
        (report[3].state, why)
    };
    let (standing_by, why) = state(1, 0);
    assert_eq!(standing_by, SourceState::StandingBy);
    assert!(why.contains("does not pay"), "{why}");
    assert_eq!(state(2, 1 << 14), (SourceState::Running, String::new()));
    assert_eq!(watched.standing_by.load(Relaxed), 0);
}

#[test]
fn who_stands_by_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, watched) = daemon(dir.path());
    shared.set("enabled_sources", "0x15").unwrap();
    lock(&shared.sources).note_free_space(Instant::now(), [false, true]);
    let report = lock(&shared.sources).report();
    let states: Vec<_> = report.iter().map(|source| source.state).collect();
    let expected = [
        SourceState::StandingBy,
        SourceState::Running,
        SourceState::StandingBy,
        SourceState::Disabled,
    ];
    assert_eq!(states, expected);
    let why = |source: usize| report[source].why.clone().unwrap_or_default();
    assert!(why(0).contains("so much free memory"));
    assert_eq!(why(2), "tables reads the same accessed bits");
    assert_eq!(watched.standing_by.load(Relaxed), 1);
    assert!(!watched.told_of_faults.load(Relaxed), "tables report all");
    assert_eq!(watched.running.load(Relaxed), 2);
}
