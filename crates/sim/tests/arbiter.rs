//! The engine's arbiter on the model: which source runs there follows the same laws as in the
//! daemon.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use pghot_sim::run::Simulation;
use pghot_sim::scenario::Scenario;

/// A top tier of 4 GiB, of which 3 are free, so that the kernel promotes in the hint fault.
fn simulation(enabled_sources: &str) -> Simulation {
    let text = "name = 'x'\nseconds = 60\nmode = 'statistical'\n[[machine.node]]\n\
                memory_mib = 4096\ncpus = 2\nlatency_ns = [100, 250]\n[[machine.node]]\n\
                memory_mib = 2048\n[[process]]\nmemory_mib = 256\nhome = 1\n\
                [[process.phase]]\npattern = 'random'\naccesses = 1_000_000_000_000\n";
    let scenario = Scenario::parse(text, Path::new("x")).unwrap();
    // Nothing moves, so that there is something to see to the end.
    let settings = [
        ("enabled_sources", enabled_sources),
        ("promote_rate_limit_MBps", "0"),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Simulation::new(&scenario, "pghot", &settings).unwrap()
}

/// What `status` would say of a source.
fn state(simulation: &Simulation, source: &str) -> String {
    let state = &simulation.details()["source_states"][source];
    state.as_str().unwrap().to_owned()
}

fn run(simulation: &mut Simulation, ms: u64) {
    let until_ms = simulation.world().now_ms() + ms;
    while simulation.world().now_ms() < until_ms {
        simulation.step();
    }
}

/// Somebody takes all of the top tier but so many MiB.
fn leave_free(simulation: &mut Simulation, mib: u64) {
    simulation.world_mut().nodes[0].free = mib << 8;
}

#[test]
fn hint_faults_come_back_when_room_has_been_short_for_three_seconds() {
    let mut simulation = simulation("0x5");
    run(&mut simulation, 2000);
    assert_eq!(state(&simulation, "hint_fault"), "standing_by");
    assert_eq!(
        simulation.world().counters.hint_faults,
        0,
        "nothing is marked"
    );
    leave_free(&mut simulation, 600);
    run(&mut simulation, 2500);
    assert_eq!(
        state(&simulation, "hint_fault"),
        "standing_by",
        "not at once"
    );
    leave_free(&mut simulation, 3000);
    run(&mut simulation, 1500);
    leave_free(&mut simulation, 600);
    run(&mut simulation, 2500);
    assert_eq!(
        state(&simulation, "hint_fault"),
        "standing_by",
        "the wait begins anew"
    );
    run(&mut simulation, 2000);
    assert_eq!(state(&simulation, "hint_fault"), "running");
    run(&mut simulation, 3000);
    assert!(simulation.world().counters.hint_faults > 0);
    leave_free(&mut simulation, 3000);
    run(&mut simulation, 1500);
    assert_eq!(state(&simulation, "hint_fault"), "standing_by");
}

#[test]
fn hint_faults_alone_never_stand_by() {
    let mut simulation = simulation("0x1");
    run(&mut simulation, 3000);
    assert_eq!(state(&simulation, "hint_fault"), "running");
    assert!(simulation.world().counters.hint_faults > 0);
}

#[test]
fn one_source_reads_accessed_bits() {
    let mut simulation = simulation("0x14");
    let set = |simulation: &mut Simulation, mask: &str| {
        let setting = ("enabled_sources".to_owned(), mask.to_owned());
        simulation.set(&setting).unwrap();
    };
    let recorded = |simulation: &Simulation, source: &str| {
        let stats = &simulation.details()["sources"][source];
        stats["recorded"].as_u64()
    };
    run(&mut simulation, 5000);
    assert_eq!(state(&simulation, "pgtscan"), "running");
    assert_eq!(state(&simulation, "mglru"), "standing_by");
    assert!(recorded(&simulation, "pgtscan") > Some(0));
    assert_eq!(recorded(&simulation, "mglru"), None, "it is not started");
    set(&mut simulation, "0x10");
    run(&mut simulation, 5000);
    assert_eq!(state(&simulation, "pgtscan"), "disabled");
    assert!(recorded(&simulation, "mglru") > Some(0));
    set(&mut simulation, "0x14");
    assert_eq!(state(&simulation, "mglru"), "running", "who runs goes on");
}
