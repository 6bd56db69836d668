//! Thousands of random runs in which much goes wrong, and planted bugs that must be found.

#![allow(clippy::unwrap_used)]

use std::env;

use pghot_sim::chaos::{self, Canary};

/// Runs; more in the long form of the tests, and `PGHOT_LONG=1000` makes 1000.
const RUNS: u64 = 4_000;
const LONG_RUNS: u64 = 40_000;

/// Runs with each planted bug.
const CANARY_RUNS: u64 = 200;

#[test]
fn the_engine_keeps_its_promises() {
    let number = |name| env::var(name).ok().and_then(|text| text.parse().ok());
    let runs = match number("PGHOT_LONG") {
        None => RUNS,
        Some(1) => LONG_RUNS,
        Some(runs) => runs,
    };
    let first = number("PGHOT_SEED").unwrap_or(0);
    let counts = chaos::campaign(first..first + runs, &|_| {})
        .unwrap_or_else(|found| panic!("{found}\nrun it again: pghot sim chaos SEED"))
        .counts();
    let words = counts.map(|(name, count)| format!("{name}={count}"));
    println!("campaign: {runs} {}", words.join(" "));
    // Runs in which nothing happens would promise nothing.
    assert!(
        counts.iter().all(|(_, count)| *count > runs),
        "hardly anything happened: {counts:?}"
    );
}

/// Huge pages of two generations went in one round, and what went beyond the limit was not counted.
#[test]
fn what_seed_31639_found_is_mended() {
    chaos::run(31_639, None).unwrap();
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
        let runs = (0..CANARY_RUNS).filter(found).count();
        assert!(runs > 0, "nobody noticed {canary:?}");
        println!("{canary:?} was found in {runs} of {CANARY_RUNS} runs");
    }
}
