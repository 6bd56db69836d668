//! Whole runs on a machine of several sockets.

#![allow(clippy::unwrap_used)]

use pghot_sockets::benchmark::{BENCHMARKS, Benchmark};
use pghot_sockets::machine::Machine;
use pghot_sockets::policies::{Follow, POLICIES, find};
use pghot_sockets::run::{Figures, run};

const SEED: u64 = 7;

fn figures(machine: &Machine, policy: &str, benchmark: &Benchmark) -> Figures {
    run(machine, &find(policy).unwrap().policy, benchmark, SEED)
}

/// Nothing moves threads but their end and their homes.
fn quiet() -> Machine {
    Machine {
        strays_per_s: 0.0,
        ..Machine::default()
    }
}

fn shorter(number: usize, share: f64) -> Benchmark {
    let benchmark = &BENCHMARKS[number];
    let part = |passes: u32| (f64::from(passes) * share).ceil() as u32;
    Benchmark {
        whole_passes: part(benchmark.whole_passes),
        slice_passes: part(benchmark.slice_passes),
        ..benchmark.clone()
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let benchmark = shorter(2, 0.1);
    for descriptor in POLICIES {
        let machine = Machine::default();
        let once = run(&machine, &descriptor.policy, &benchmark, SEED);
        let again = run(&machine, &descriptor.policy, &benchmark, SEED);
        assert_eq!(once, again, "{}", descriptor.name);
    }
}

#[test]
fn on_one_node_nothing_migrates() {
    let machine = Machine {
        nodes: 1,
        cpus: 48,
        ..Machine::default()
    };
    for descriptor in POLICIES {
        let figures = run(&machine, &descriptor.policy, &shorter(2, 0.1), SEED);
        assert_eq!(figures.migrated_pages, 0.0, "{}", descriptor.name);
        assert_eq!(figures.local_faults, figures.hint_faults);
        assert_eq!(figures.hint_faults > 0.0, descriptor.policy.is_marking);
        assert_eq!(figures.local_share, 1.0);
    }
}

#[test]
fn without_balancing_the_memory_of_one_node_is_all_there_is() {
    let figures = figures(&quiet(), "stats", &BENCHMARKS[2]);
    let rate = BENCHMARKS[2].bytes() / figures.elapsed_s;
    assert!(
        (rate / quiet().node_bytes_per_s - 1.0).abs() < 0.02,
        "{rate}"
    );
    assert_eq!(figures.pte_updates, 0.0);
}

#[test]
fn slices_become_local_by_moving_each_page_once() {
    let figures = figures(&quiet(), "moron", &BENCHMARKS[2]);
    let pages = BENCHMARKS[2].blocks as f64 * 512.0;
    assert!(figures.last_local_share > 0.9, "{figures:?}");
    assert!(figures.migrated_pages > 0.6 * pages && figures.migrated_pages <= pages);
}

#[test]
fn memory_that_all_threads_write_does_not_become_local_by_moving_pages() {
    for descriptor in POLICIES {
        // What brings threads together is another matter: with homes, they may gather.
        if descriptor.policy.follow != Follow::Never {
            continue;
        }
        let share = |passes| {
            let benchmark = shorter(0, passes);
            run(&quiet(), &descriptor.policy, &benchmark, SEED).local_share
        };
        let (short, long) = (share(0.15), share(0.3));
        let name = descriptor.name;
        assert!(short < 0.5 && long < 0.5, "{name}: {short} {long}");
    }
}

#[test]
fn memory_that_all_threads_write_keeps_moving() {
    let migrated = |passes| {
        let benchmark = shorter(0, passes);
        figures(&quiet(), "twostage", &benchmark).migrated_pages
    };
    let (short, long) = (migrated(0.15), migrated(0.45));
    assert!(long > 1.5 * short, "{short} {long}");
    let once = figures(&quiet(), "moron", &shorter(0, 0.45)).migrated_pages;
    let pages = (BENCHMARKS[0].processes * BENCHMARKS[0].blocks) as f64 * 512.0;
    assert!(once <= pages, "each page at most once");
}

#[test]
fn what_comes_to_a_node_in_a_window_is_limited() {
    let mut machine = quiet();
    // The test wants more than this, and takes longer the less is admitted.
    machine.limits.window_pages = 200.0;
    let limited = figures(&machine, "twostage", &shorter(2, 0.2));
    assert_eq!(limited.busiest_window_pages, 200.0);
    let free = figures(&quiet(), "twostage", &shorter(2, 0.2));
    assert!(free.busiest_window_pages > 200.0);
    assert!(free.elapsed_s < limited.elapsed_s);
    let without = figures(&machine, "moron", &shorter(2, 0.2));
    assert!(without.busiest_window_pages > 200.0, "it has no limit");
}
