//! Whole runs: the same seed gives the same run, and the two modes agree.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use pghot_sim::machine::LruKind;
use pghot_sim::run::{Run, Simulation};
use pghot_sim::scenario::{Mode, Scenario};
use pghot_sim::systems::SYSTEMS;

/// How far the modes may be apart: in elapsed time and in the share of the top tier.
const ERROR: f64 = 0.02;

fn scenario(process: &str) -> Scenario {
    let machine = "name = 'test'\n[machine]\n\
        [[machine.node]]\nmemory_mib = 512\ncpus = 4\nlatency_ns = [100, 250]\n\
        [[machine.node]]\nmemory_mib = 1536\n[[process]]\nthreads = 2\n";
    Scenario::parse(&format!("{machine}{process}"), Path::new("test.toml")).unwrap()
}

fn run(scenario: &Scenario, system: &str, mode: Mode) -> Run {
    let scenario = Scenario {
        mode,
        ..scenario.clone()
    };
    let settings = match system {
        "pghot" => vec![("freq_threshold".to_owned(), "1".to_owned())],
        _ => Vec::new(),
    };
    let simulation = Simulation::new(&scenario, system, &settings).unwrap();
    simulation.finish(&mut |_, _| {})
}

fn near_share(run: &Run) -> f64 {
    run.counters.near_accesses as f64 / run.counters.accesses as f64
}

const SKEWED: &str = "memory_mib = 600\naccesses = 60_000_000\nworkload = 'skewed'\n";

#[test]
fn the_same_seed_gives_the_same_run_to_the_byte() {
    for mode in [Mode::Exact, Mode::Statistical] {
        let text = |seed| {
            let scenario = Scenario {
                seed,
                ..scenario(SKEWED)
            };
            serde_json::to_string(&run(&scenario, "pghot", mode)).unwrap()
        };
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
    }
}

#[test]
fn the_modes_agree() {
    let random = "memory_mib = 128\naccesses = 60_000_000\nworkload = 'uniform'\n";
    let crowded =
        "memory_mib = 900\nnear_share = 0.5\naccesses = 60_000_000\nworkload = 'oversized'\n";
    let huge = "memory_mib = 256\nbacking = 'thp'\naccesses = 60_000_000\nworkload = 'uniform'\n";
    let shared =
        "memory_mib = 128\nbacking = 'shared'\naccesses = 60_000_000\nworkload = 'uniform'\n";
    let mut scenarios = [random, SKEWED, crowded, huge, shared]
        .map(scenario)
        .to_vec();
    let mut lists = scenario(crowded);
    lists.machine.kernel.lru = LruKind::Lists;
    scenarios.push(lists);
    for scenario in scenarios {
        for system in SYSTEMS {
            let exact = run(&scenario, system.name, Mode::Exact);
            let statistical = run(&scenario, system.name, Mode::Statistical);
            assert!(exact.is_complete && statistical.is_complete);
            let time = statistical.elapsed_s / exact.elapsed_s - 1.0;
            let near = near_share(&statistical) - near_share(&exact);
            assert!(
                time.abs() < ERROR && near.abs() < ERROR,
                "{} on {scenario:?}: time {time:+.4}, near {near:+.4}\n{:?}\n{:?}",
                system.name,
                exact.counters,
                statistical.counters
            );
        }
    }
}

/// Memory that several processes share has no hint faults; sampling hardware sees it all the same,
/// and only what it sampled. Page cache that nobody maps is seen by its own source alone.
#[test]
fn what_hint_faults_do_not_see_is_found_by_others() {
    let text = |backing: &str| {
        format!(
            "name = 'x'\nseconds = 60\n[[machine.node]]\nmemory_mib = 64\ncpus = 2\n\
             latency_ns = [100, 250]\n[[machine.node]]\nmemory_mib = 128\n[[process]]\n\
             memory_mib = 64\nthreads = 2\nbacking = '{backing}'\n[[process.phase]]\n\
             pattern = 'skewed'\nhot = [0.3, 0.4]\nhot_percent = 95\naccesses = 20_000_000\n"
        )
    };
    for (backing, blind, seeing, source) in [
        ("shared", "0x1", "0x2", "hw_sample"),
        ("page_cache", "0x17", "0x8", "page_cache"),
    ] {
        let mut times = Vec::new();
        for mode in [Mode::Exact, Mode::Statistical] {
            let mut scenario = Scenario::parse(&text(backing), Path::new("x")).unwrap();
            scenario.mode = mode;
            let run = |mask: &str| {
                let settings = vec![("enabled_sources".to_owned(), mask.to_owned())];
                let simulation = Simulation::new(&scenario, "pghot", &settings).unwrap();
                simulation.finish(&mut |_, _| {})
            };
            assert_eq!(run(blind).counters.promoted_pages, 0, "{backing}");
            let seen = run(seeing);
            assert!(near_share(&seen) > 0.5, "{backing}: {:?}", seen.counters);
            let stats = &seen.details["sources"][source];
            let recorded = stats["recorded"].as_u64().unwrap();
            let told = recorded + stats["not_tracked"].as_u64().unwrap();
            assert!(told > 1000 && told <= seen.counters.accesses, "{stats}");
            times.push(seen.elapsed_s);
        }
        let error = times[1] / times[0] - 1.0;
        assert!(error.abs() < ERROR, "{backing}: {times:?}");
    }
}
