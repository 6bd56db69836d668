//! Processes that the kernel's scan, or the daemon's, does not come round in a window of the
//! records. pghot must find their hot pages all the same, and move less than the kernel's own
//! tiering does.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use pghot_sim::run::{Run, Simulation};
use pghot_sim::scenario::{Scenario, thin};
use pghot_sim::systems::Setting;

fn run(name: &str, system: &str, seed: u64, settings: &[(&str, &str)]) -> Run {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut scenario = Scenario::load(&path.join(name)).unwrap();
    scenario.seed = seed;
    let own = |(name, value): &(&str, &str)| -> Setting { (name.to_string(), value.to_string()) };
    let settings: Vec<Setting> = settings.iter().map(own).collect();
    // A page stands for four, or it would take minutes.
    let thin = thin::scenario(&scenario, 4);
    let simulation = Simulation::new(&thin, system, &settings).unwrap();
    simulation.finish(&mut |_, _| {})
}

fn near_share(run: &Run) -> f64 {
    run.counters.near_accesses as f64 / run.counters.accesses as f64
}

/// pghot saves `least` of the time that the kernel's tiering saves, with so many of its moves at
/// most.
fn compare(name: &str, least: f64, moves: f64) {
    let [none, pghot, kernel] = ["none", "pghot", "numab2"].map(|system| run(name, system, 1, &[]));
    let told = format!("{name}: {:?}\n{:?}", pghot.counters, kernel.counters);
    assert!(pghot.is_complete && kernel.is_complete, "{told}");
    let saved_s = |run: &Run| none.work_s() - run.work_s();
    assert!(saved_s(&pghot) > least * saved_s(&kernel), "{told}");
    let moved = |run: &Run| (run.counters.promoted_pages + run.counters.demoted_pages) as f64;
    assert!(moved(&pghot) < moves * moved(&kernel), "{told}");
}

/// Hint faults: a process of 4 GiB takes 16 s a pass.
#[test]
fn one_look_finds_the_hot_pages_of_tenants() {
    // Four fifths of the kernel's moves.
    compare("tenants.toml", 1.0, 0.9);
    // Which pages meet the scan by chance differs from run to run by more than this.
    let near = |settings: &[(&str, &str)]| -> f64 {
        let runs = [1, 2].map(|seed| run("tenants.toml", "pghot", seed, settings));
        runs.iter().map(near_share).sum::<f64>() / 2.0
    };
    let (quick, twice) = (near(&[]), near(&[("quick_fault_ms", "0")]));
    assert!(quick > twice + 0.03, "{quick} and {twice}");
}

/// Page tables, for the top tier is so empty that the kernel would promote in faults: 96 GiB in
/// pieces of 4, as fast as a twentieth of a CPU goes through them.
#[test]
fn page_tables_are_gone_through_whatever_becomes_ready() {
    compare("cache.toml", 0.8, 0.75);
}
