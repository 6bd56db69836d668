//! What the modelled kernel does by itself: which pages reclaim takes, how a node is emptied, and
//! how often the scanner comes.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use pghot_sim::machine::LruKind;
use pghot_sim::machine::memory::ABSENT;
use pghot_sim::run::Simulation;
use pghot_sim::scenario::{Mode, Scenario};

fn scenario(backing: &str, memory_mib: u32) -> Scenario {
    // All of it fits into the top tier, but for what the watermarks want free.
    let text = format!(
        "name = 'x'\nseconds = 30\n[[machine.node]]\nmemory_mib = 128\ncpus = 2\n\
         latency_ns = [100, 250]\n[[machine.node]]\nmemory_mib = 256\n\
         [machine.costs]\ncompute_ns = 1000\n[[process]]\nmemory_mib = {memory_mib}\n\
         near_share = 1.0\nbacking = '{backing}'\n[[process.phase]]\npattern = 'skewed'\n\
         hot = [0.3, 0.6]\nhot_percent = 100\naccesses = 1_000_000_000\n"
    );
    Scenario::parse(&text, Path::new("x")).unwrap()
}

/// Base pages on a node: of the first three tenths and the last four, and of the hot ones in
/// between.
fn cold_and_hot(simulation: &Simulation, nid: usize) -> (u32, u32) {
    let region = &simulation.tasks()[0].region;
    let memory = &simulation.world().memory;
    let pages = region.pages.len() as f64;
    let hot = (0.3 * pages) as u32..(0.6 * pages) as u32;
    let (mut cold_pages, mut hot_pages) = (0, 0);
    for head in region.pages.clone().step_by(region.folio_pages as usize) {
        if memory.state(head) & ABSENT == 0 && memory.node(head) == nid {
            match hot.contains(&(head - region.pages.start)) {
                true => hot_pages += region.folio_pages,
                false => cold_pages += region.folio_pages,
            }
        }
    }
    (cold_pages, hot_pages)
}

#[test]
fn reclaim_takes_what_is_cold_under_either_lru() {
    for lru in [LruKind::Generations, LruKind::Lists] {
        for mode in [Mode::Exact, Mode::Statistical] {
            for backing in ["anon", "thp", "page_cache"] {
                let mut scenario = scenario(backing, 126);
                scenario.mode = mode;
                scenario.machine.kernel.lru = lru;
                let mut simulation = Simulation::new(&scenario, "none", &[]).unwrap();
                for second in 1..=3 {
                    // Somebody else wants so much that kswapd must begin.
                    let top = &mut simulation.world_mut().nodes[0];
                    let taken = top.free.saturating_sub(top.watermarks.low - 64);
                    top.free -= taken;
                    top.pages -= taken;
                    for _ in 0..1000 {
                        simulation.step();
                    }
                    let (cold, hot) = cold_and_hot(&simulation, 1);
                    let top = &simulation.world().nodes[0];
                    let of = format!("{lru:?}, {mode:?}, {backing}, {second} s: {cold} {hot}");
                    assert!(cold > 0 && top.free >= top.watermarks.high, "{of}");
                    // Huge pages at the borders of the hot range are cold and hot.
                    let borders = if backing == "thp" { 1024 } else { 0 };
                    assert!(hot <= cold / 50 + borders, "{of}");
                }
            }
        }
    }
}

#[test]
fn a_node_is_emptied_before_it_goes_offline() {
    let mut simulation = Simulation::new(&scenario("anon", 64), "none", &[]).unwrap();
    let (below, above) = (cold_and_hot(&simulation, 1), cold_and_hot(&simulation, 0));
    assert!(simulation.world_mut().offline(0));
    assert_eq!(cold_and_hot(&simulation, 0), (0, 0));
    let (cold, hot) = cold_and_hot(&simulation, 1);
    assert_eq!((cold, hot), (below.0 + above.0, below.1 + above.1));
    let counters = simulation.world().counters;
    assert_eq!(
        (counters.promoted_pages, counters.demoted_pages),
        (0, 0),
        "nobody asked whether it is hot"
    );
    for _ in 0..10 {
        simulation.step();
    }
    assert_eq!(simulation.world().counters.near_accesses, 0);

    // Upwards there is not room enough for all.
    let mut simulation = Simulation::new(&scenario("anon", 200), "none", &[]).unwrap();
    assert!(!simulation.world_mut().offline(1));
    let lower = &simulation.world().nodes[1];
    assert!(lower.is_online && lower.free < lower.pages);
    let top = &simulation.world().nodes[0];
    assert!(top.free >= top.watermarks.min, "{top:?}");
}

/// A program whose memory lies in the lower tier, and how often the scanner has gone through it
/// after so many seconds.
fn scanner_passes(seconds: u32) -> u64 {
    let mut scenario = scenario("anon", 64);
    let process = &mut scenario.process[0];
    (process.near_share, process.mappings) = (Some(0.0), 17);
    let kernel = &mut scenario.machine.kernel;
    (kernel.scan_delay_ms, kernel.scan_size_mib) = (25, 64);
    (kernel.scan_period_min_ms, kernel.scan_period_max_ms) = (25, 25);
    let mut simulation = Simulation::new(&scenario, "numab2", &[]).unwrap();
    for _ in 0..1000 * seconds {
        simulation.step();
    }
    simulation.tasks()[0].scan.passes
}

/// In the first two passes a visit takes all of 64 MiB; a visit is due every 28 ms, and 6 ms late.
/// Then 17 other mappings take a visit each.
#[test]
fn other_mappings_delay_the_scanner() {
    assert_eq!(scanner_passes(1), 3);
    let (early, late) = (scanner_passes(2), scanner_passes(28));
    let of_each = 26.0 / (late - early) as f64;
    assert!(
        (18.0 * 0.034..18.0 * 0.037).contains(&of_each),
        "{of_each} s a pass"
    );
}
