//! Whole runs: the same seed gives the same run, and the two modes agree.

#![allow(clippy::unwrap_used)]

use std::path::Path;

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
    for process in [random, SKEWED, crowded, huge, shared] {
        let scenario = scenario(process);
        for system in SYSTEMS {
            let exact = run(&scenario, system.name, Mode::Exact);
            let statistical = run(&scenario, system.name, Mode::Statistical);
            assert!(exact.is_complete && statistical.is_complete);
            let time = statistical.elapsed_s / exact.elapsed_s - 1.0;
            let near = near_share(&statistical) - near_share(&exact);
            assert!(
                time.abs() < ERROR && near.abs() < ERROR,
                "{} on {process}: time {time:+.4}, near {near:+.4}\n{:?}\n{:?}",
                system.name,
                exact.counters,
                statistical.counters
            );
        }
    }
}

/// Memory that several processes share has no hint faults; sampling hardware sees it all the same, and only
/// what it sampled.
#[test]
fn sampling_hardware_finds_what_is_hot() {
    let text = "name = 'shared'\nseconds = 20\n[[machine.node]]\nmemory_mib = 64\ncpus = 2\n\
        latency_ns = [100, 250]\n[[machine.node]]\nmemory_mib = 128\n[[process]]\nmemory_mib = 64\n\
        threads = 2\nbacking = 'shared'\n[[process.phase]]\npattern = 'skewed'\nhot = [0.3, 0.4]\n\
        hot_percent = 95\naccesses = 20_000_000\n";
    let scenario = Scenario::parse(text, Path::new("x")).unwrap();
    let settings = |mask: &str| vec![("enabled_sources".to_owned(), mask.to_owned())];
    let run = |mask| {
        let simulation = Simulation::new(&scenario, "pghot", &settings(mask)).unwrap();
        simulation.finish(&mut |_, _| {})
    };
    let (faults, samples) = (run("0x1"), run("0x2"));
    assert_eq!(faults.counters.promoted_pages, 0);
    let near = samples.counters.near_accesses as f64 / samples.counters.accesses as f64;
    assert!(near > 0.5, "{near}: {:?}", samples.counters);
    let source = &samples.details["sources"]["hw_sample"];
    let seen = source["recorded"].as_u64().unwrap() + source["not_tracked"].as_u64().unwrap();
    // Two threads at their first period of 16 at most.
    assert!(seen > 1000 && seen <= samples.counters.accesses, "{source}");

    let drawn = Scenario {
        mode: Mode::Statistical,
        ..scenario
    };
    let error = Simulation::new(&drawn, "pghot", &settings("0x2"))
        .err()
        .unwrap();
    assert!(error.to_string().contains("exact mode"), "{error}");
}
