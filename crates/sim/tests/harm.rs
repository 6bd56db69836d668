//! Where nothing can be gained pghot does no harm: on random machines, and to a small program on a
//! large machine, of whose CPUs one is busy, and takes all the hint faults.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use pghot_sim::harm::{HARM_PERCENT, outcomes};
use pghot_sim::run::{Run, Simulation};
use pghot_sim::scenario::Scenario;

/// One thread that touches all of its memory alike; two thirds of it fill the top tier.
fn run(cpus: u32) -> Run {
    let text = format!(
        "name = 'small'\nmode = 'statistical'\nseconds = 200\n[machine]\n\
        [[machine.node]]\nmemory_mib = 1024\ncpus = {cpus}\nlatency_ns = [100, 250]\n\
        [[machine.node]]\nmemory_mib = 3072\n\
        [[process]]\nthreads = 1\nmemory_mib = 1536\nnear_share = 0.65\n\
        [[process.phase]]\npattern = 'random'\naccesses = 400_000_000\n"
    );
    let scenario = Scenario::parse(&text, Path::new("test.toml")).unwrap();
    let simulation = Simulation::new(&scenario, "pghot", &[]).unwrap();
    simulation.finish(&mut |_, _| {})
}

#[test]
fn it_does_not_pay_for_all_cpus() {
    for cpus in [2, 64] {
        let run = run(cpus);
        let faults_per_s = run.counters.hint_faults as f64 / run.work_s();
        // 2,048, and what fills the room that there is. For 64 CPUs they were 60,000.
        let told = format!("{cpus} CPUs: {faults_per_s} hint faults a second");
        assert!(faults_per_s < 4000.0, "{told} {:?}", run.counters);
    }
}

/// The first of those in docs/data/harm.tsv, of which some lose.
#[test]
fn programs_on_random_machines_lose_nothing() {
    let outcomes = outcomes(0..60, &|_| ()).unwrap();
    let percent = outcomes.iter().map(|it| it.percent()[1]);
    let gain = percent.clone().filter(|it| *it < -HARM_PERCENT).count();
    assert!(gain > 40, "{gain} gain");
    let harmed = outcomes.iter().find(|it| it.percent()[1] > HARM_PERCENT);
    assert_eq!(harmed, None);
}
