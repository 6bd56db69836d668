//! A scenario whose pages stand for several of the machine's comes to what the whole comes to.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use pghot_profile::{Interval, Process, Profile, Touched};
use pghot_sim::run::{Run, Simulation};
use pghot_sim::scenario::{Scenario, thin};

/// How far apart may be the times of work, and the shares of the top tier, on average of so many
/// seeds.
struct Apart {
    time: f64,
    near: f64,
    seeds: u64,
}

/// Where nothing moves.
const STILL: Apart = Apart {
    time: 0.001,
    near: 0.001,
    seeds: 1,
};

/// Where pages move, runs differ by their seeds, too.
const MOVING: Apart = Apart {
    time: 0.03,
    near: 0.06,
    seeds: 3,
};

fn scenario(process: &str) -> Scenario {
    let machine = "name = 'test'\nmode = 'statistical'\nseconds = 600\n[machine]\n\
        [[machine.node]]\nmemory_mib = 8192\ncpus = 16\nlatency_ns = [100, 250]\n\
        [[machine.node]]\nmemory_mib = 24576\n[machine.costs]\ncompute_ns = 200\n\
        [[process]]\nthreads = 16\nnear_share = 1.0\n";
    Scenario::parse(&format!("{machine}{process}"), Path::new("test.toml")).unwrap()
}

/// What a scenario comes to, on average of so many seeds.
struct Mean {
    accesses: u64,
    work_s: f64,
    near_share: f64,
}

fn run(scenario: &Scenario, system: &str, weight: u64, seeds: u64) -> Mean {
    let runs = (1..=seeds).map(|seed| {
        let mut thin = thin::scenario(scenario, weight);
        thin.seed = seed;
        let simulation = Simulation::new(&thin, system, &[]).unwrap();
        simulation.finish(&mut |_, _| {})
    });
    let runs: Vec<Run> = runs.collect();
    let mean = |of: fn(&Run) -> f64| runs.iter().map(of).sum::<f64>() / seeds as f64;
    Mean {
        accesses: runs[0].counters.accesses,
        work_s: mean(|run| run.work_s()),
        near_share: mean(|run| run.counters.near_accesses as f64 / run.counters.accesses as f64),
    }
}

#[test]
fn a_thin_scenario_comes_to_what_the_whole_comes_to() {
    let skewed = "memory_mib = 16384\n[[process.phase]]\npattern = 'skewed'\nhot = [0.7, 0.9]\n\
        hot_percent = 90\naccesses = 3_000_000_000\n[[process.phase]]\npattern = 'skewed'\n\
        hot = [0.1, 0.3]\nhot_percent = 90\naccesses = 3_000_000_000\n";
    let zipf = "memory_mib = 16384\n[[process.phase]]\npattern = 'zipf'\ndrift = 0.2\n\
        repeat = 4\naccesses = 1_000_000_000\n";
    for (name, text) in [("skewed", skewed), ("zipf", zipf)] {
        let scenario = scenario(text);
        for (system, error) in [("none", STILL), ("numab2", MOVING), ("pghot", MOVING)] {
            let whole = run(&scenario, system, 1, error.seeds);
            for weight in [4, 16] {
                let thin = run(&scenario, system, weight, error.seeds);
                assert_eq!(thin.accesses, whole.accesses / weight);
                let time = thin.work_s / whole.work_s - 1.0;
                let near = thin.near_share - whole.near_share;
                assert!(
                    time.abs() < error.time && near.abs() < error.near,
                    "{name}, {system}, {weight}: time {time:+.4}, near {near:+.4}"
                );
            }
        }
    }
}

/// A profile keeps its shape: what was touched how often, and how much there is of it.
#[test]
fn of_a_profile_one_block_in_so_many_is_kept_whole() {
    let set =
        |runs: &[(u32, u32)]| Touched::of(runs.iter().map(|(start, end)| *start..*end).collect());
    let interval = |number| Interval {
        number,
        cpu_us: 700_000,
        // The first half always; of each block in the second half the first page, now and then.
        touched: match number % 4 {
            0 => {
                let firsts = (512..1024).map(|block| block * 512..block * 512 + 1);
                Touched::of(firsts.chain(std::iter::once(0..512 * 512)).collect())
            }
            _ => set(&[(0, 512 * 512)]),
        },
        lower: Touched::default(),
    };
    let whole = Profile {
        kernel: String::new(),
        interval_ms: 1000,
        intervals: 8,
        elapsed_ms: 0,
        disturbed_by: Vec::new(),
        processes: vec![Process {
            name: "x".into(),
            cgroup: String::new(),
            blocks: 1024,
            huge_blocks: 0,
            intervals: (0..8).map(interval).collect(),
        }],
    };
    let thin = thin::profile(&whole, 8);
    thin.check().unwrap();
    let process = &thin.processes[0];
    assert_eq!(process.blocks, 128);
    let touched: Vec<u64> = process
        .intervals
        .iter()
        .map(|it| it.touched.pages())
        .collect();
    let (rare, always) = (64 * 512 + 64, 64 * 512);
    assert_eq!(
        touched,
        [rare, always, always, always, rare, always, always, always]
    );
    assert!(process.intervals.iter().all(|it| it.cpu_us == 700_000));
    assert_eq!(thin::profile(&whole, 1), whole);
}
