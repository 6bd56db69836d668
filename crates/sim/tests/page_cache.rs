//! Page cache that is read by system calls, with pghot's defaults: where hot and cold differ it
//! goes up, and where nothing can be gained reads are hardly watched.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use pghot_sim::run::Simulation;
use pghot_sim::scenario::Scenario;

/// By how many percent four threads that read a file of so many MiB, of which a share is near,
/// take longer than without balancing.
fn percent(pattern: &str, memory_mib: u64, near_share: f64) -> f64 {
    let text = format!(
        "name = 'x'\nseconds = 600\nmode = 'statistical'\nslice_us = 2000\n[[machine.node]]\n\
         memory_mib = 1024\ncpus = 8\nlatency_ns = [100, 250]\n[[machine.node]]\n\
         memory_mib = 2048\n[machine.costs]\ncompute_ns = 100\n[[process]]\n\
         memory_mib = {memory_mib}\nbacking = 'page_cache'\nnear_share = {near_share}\n\
         threads = 4\n[[process.phase]]\npattern = {pattern}\naccesses = 120_000_000\n"
    );
    let scenario = Scenario::parse(&text, Path::new("x")).unwrap();
    let busy_s = |system| {
        let simulation = Simulation::new(&scenario, system, &[]).unwrap();
        let run = simulation.finish(&mut |_, _| {});
        assert!(run.is_complete);
        run.busy_s
    };
    (busy_s("pghot") / busy_s("none") - 1.0) * 100.0
}

#[test]
fn hot_page_cache_goes_up() {
    let skewed = "'skewed'\nhot = [0.5, 0.7]\nhot_percent = 90";
    let far = percent(skewed, 1800, 0.4);
    assert!(far < -7.0, "{far:+.1} %");
    // Hot and cold alike, into free memory.
    let with_room = percent("'random'", 600, 0.0);
    assert!(with_room < -10.0, "{with_room:+.1} %");
}

#[test]
fn where_nothing_is_to_be_gained_reads_are_hardly_watched() {
    // What is hot is near already.
    let near = percent("'zipf'\ntheta = 0.99", 1800, 0.4);
    assert!(near < 1.0, "{near:+.1} %");
    // All are alike, and the top tier is full.
    let alike = percent("'random'", 2600, 0.3);
    assert!(alike < 1.0, "{alike:+.1} %");
}
