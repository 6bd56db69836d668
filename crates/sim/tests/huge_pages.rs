//! Huge pages, with pghot's defaults: all of them are touched within milliseconds, and where there
//! is not room for all, the hot ones go up.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use pghot_sim::run::Simulation;
use pghot_sim::scenario::Scenario;

/// Nine accesses of ten go to a fifth of the huge pages, which lies in the lower tier; for that
/// there is room in the top tier, and for little more.
const SCENARIO: &str = "\
    name = 'x'\nseconds = 600\nmode = 'statistical'\nslice_us = 2000\n\
    [[machine.node]]\nmemory_mib = 256\ncpus = 2\nlatency_ns = [100, 200]\n\
    [[machine.node]]\nmemory_mib = 256\n[machine.costs]\ncompute_ns = 10\n\
    [[process]]\nmemory_mib = 386\nbacking = 'thp'\nnear_share = 0\nthreads = 2\n\
    [[process.phase]]\npattern = 'skewed'\nhot = [0.3, 0.5]\nhot_percent = 90\n\
    accesses = 200_000_000\n";

#[test]
fn the_hottest_huge_pages_go_up_first() {
    let scenario = Scenario::parse(SCENARIO, Path::new("x")).unwrap();
    let simulation = Simulation::new(&scenario, "pghot", &[]).unwrap();
    let counters = simulation.finish(&mut |_, _| {}).counters;
    let near = counters.near_accesses as f64 / counters.accesses as f64;
    assert!(near > 0.85, "{near:.2} of the accesses were near");
}
