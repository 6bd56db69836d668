//! Thousands of random runs in which much goes wrong, and planted bugs that must be found.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, thread};

use pghot_sim::chaos::{self, Canary};

/// Runs, unless `PGHOT_CHAOS_SEEDS` says otherwise, and in the long form of the tests.
const SEEDS: u64 = 4_000;
const LONG_SEEDS: u64 = 40_000;

/// Runs with each planted bug.
const RUNS: u64 = 200;

#[test]
fn the_engine_keeps_its_promises() {
    let seeds = match env::var("PGHOT_CHAOS_SEEDS") {
        Ok(text) => text.parse().unwrap(),
        Err(_) if env::var_os("PGHOT_LONG").is_some() => LONG_SEEDS,
        Err(_) => SEEDS,
    };
    let next = AtomicU64::new(0);
    let sums: Vec<AtomicU64> = (0..7).map(|_| AtomicU64::new(0)).collect();
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return;
            }
            let story = chaos::run(seed, None)
                .unwrap_or_else(|found| panic!("{found}\nrun it again: pghot sim chaos {seed}"));
            let happened = [
                story.promoted_pages,
                story.demoted_pages,
                story.requested_pages,
                story.refused_pages,
                story.restarts.into(),
                story.respawns.into(),
                story.offlinings.into(),
            ];
            for (sum, happened) in sums.iter().zip(happened) {
                sum.fetch_add(happened, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, |n| n.get()) {
            scope.spawn(work);
        }
    });
    println!("{sums:?}");
    // Runs in which nothing happens would promise nothing.
    let sums: Vec<u64> = sums.into_iter().map(AtomicU64::into_inner).collect();
    assert!(
        sums.iter().all(|sum| *sum > seeds),
        "hardly anything happened: {sums:?}"
    );
}

#[test]
fn planted_bugs_are_found() {
    for (canary, what) in [
        (Canary::IgnoresRateLimit, "promoted: "),
        (Canary::IgnoresDemoteLimit, "demoted: "),
        (Canary::InvitesSwap, "demotion swapped"),
        (Canary::IgnoresBatchLimit, "a batch had"),
        (Canary::LosesMoves, "the engine tells of"),
        (Canary::DoesNothing, "no progress"),
    ] {
        let found =
            |seed: &u64| chaos::run(*seed, Some(canary)).is_err_and(|found| found.contains(what));
        let runs = (0..RUNS).filter(found).count();
        assert!(runs > 0, "nobody noticed {canary:?}");
        println!("{canary:?} was found in {runs} of {RUNS} runs");
    }
}
