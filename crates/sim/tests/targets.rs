//! Where hot pages go on a modelled machine with two sockets, each with a lower-tier node of its
//! own.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use pghot_sim::run::Simulation;
use pghot_sim::scenario::Scenario;

/// Nodes 0 and 1 with CPUs, 2 and 3 behind them; a process on each socket, its memory below, and on
/// node 0 as much free memory as said.
fn simulation(node0_mib: u64) -> Simulation {
    let text = format!(
        "name = 'x'\nseconds = 60\nmode = 'statistical'\n\
         [[machine.node]]\nmemory_mib = {node0_mib}\ncpus = 2\nlatency_ns = [100, 150, 250, 350]\n\
         [[machine.node]]\nmemory_mib = 1024\ncpus = 2\nlatency_ns = [150, 100, 350, 250]\n\
         [[machine.node]]\nmemory_mib = 512\n[[machine.node]]\nmemory_mib = 512\n\
         [[process]]\nmemory_mib = 256\nnode = 0\nhome = 2\n\
         [[process.phase]]\npattern = 'random'\naccesses = 1_000_000_000_000\n\
         [[process]]\nmemory_mib = 256\nnode = 1\nhome = 3\n\
         [[process.phase]]\npattern = 'random'\naccesses = 1_000_000_000_000\n"
    );
    let scenario = Scenario::parse(&text, Path::new("x")).unwrap();
    let mut simulation = Simulation::new(&scenario, "pghot", &[]).unwrap();
    while simulation.world().now_ms() < 20_000 {
        simulation.step();
    }
    simulation
}

/// Pages of each process by node.
fn pages(simulation: &Simulation) -> Vec<[usize; 4]> {
    let memory = &simulation.world().memory;
    let of_region = |pages: std::ops::Range<u32>| {
        let mut by_node = [0; 4];
        for page in pages {
            by_node[memory.node(page)] += 1;
        }
        by_node
    };
    let regions = memory.regions().iter();
    regions
        .map(|region| of_region(region.pages.clone()))
        .collect()
}

#[test]
fn each_lower_tier_node_promotes_to_its_own_socket() {
    let all = 256 << 8;
    let pages = pages(&simulation(1024));
    assert_eq!(pages, [[all, 0, 0, 0], [0, all, 0, 0]]);
}

#[test]
fn what_a_full_socket_cannot_take_goes_to_the_other() {
    let pages = pages(&simulation(128));
    let all = 256 << 8;
    assert_eq!(pages[1], [0, all, 0, 0]);
    assert_eq!(pages[0][2], 0, "{pages:?}");
    assert!(pages[0][1] > all / 2, "{pages:?}");
}
