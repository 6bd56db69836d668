//! `numa_balancing=2` with the metric of the 2024 proposal: how many faults the process took since
//! the page was marked, instead of how many milliseconds.
//!
//! The proposal keeps the free-space shortcut and the rate limit, and drops the threshold that
//! adapts.

use crate::Error;
use crate::kernel::promotion::promote_in_fault;
use crate::machine::PAGES_PER_MIB;
use crate::machine::world::World;
use crate::systems::system::{Descriptor, Fault, Setting, System};
use crate::traffic::task::Task;

pub(in crate::systems) const DESCRIPTOR: Descriptor = Descriptor {
    name: "fault_count",
    doc: "numa_balancing=2 that counts faults, not time; the 2024 proposal.",
    make: |world, settings| Ok(Box::new(FaultCount::new(world, settings)?)),
};

/// `fault_count_threshold` as proposed.
const THRESHOLD: u64 = 1_000_000;
/// The counter is kept in what is left of a page's `last_cpupid`: without its lower 16 bits.
const GRAIN: u64 = 1 << 16;
const RATE_WINDOW_MS: u64 = 1000;

struct FaultCount {
    threshold: u64,
    /// Faults of each process so far.
    faults: Vec<u64>,
    /// The same at the end of each slice in which there were more: (ms, faults), by process. A
    /// page's mark is dated in ms, so this tells what the counter was then.
    history: Vec<Vec<(u64, u64)>>,
    /// The rate limit, over all nodes: when its window began, and the candidates since.
    window_ms: u64,
    window_pages: u64,
}

impl FaultCount {
    fn new(world: &World, settings: &[Setting]) -> Result<FaultCount, Error> {
        let mut threshold = THRESHOLD;
        for (name, value) in settings {
            let number = value.parse().ok().filter(|number| *number > 0);
            threshold = match (name.as_str(), number) {
                ("fault_count_threshold", Some(number)) => number,
                ("fault_count_threshold", None) => {
                    return Err(Error::field(
                        name,
                        format!("`{value}` is not a number above 0"),
                    ));
                }
                _ => return Err(Error::field(name, "this system has no such setting")),
            };
        }
        let processes = world.memory.regions().len();
        Ok(FaultCount {
            threshold,
            faults: vec![0; processes],
            history: vec![Vec::new(); processes],
            window_ms: 0,
            window_pages: 0,
        })
    }

    /// The process's counter when it was `ms` o'clock.
    fn faults_at(&self, process: usize, ms: u64) -> u64 {
        let history = &self.history[process];
        let after = history.partition_point(|(at_ms, _)| *at_ms <= ms);
        after.checked_sub(1).map_or(0, |last| history[last].1)
    }

    fn is_within_rate(&mut self, world: &mut World, pages: u64) -> bool {
        let now_ms = world.now_ms();
        if now_ms > self.window_ms + RATE_WINDOW_MS {
            (self.window_ms, self.window_pages) = (now_ms, 0);
        }
        self.window_pages += pages;
        world.counters.candidate_pages += pages;
        let is_within =
            self.window_pages < world.spec.kernel.promote_rate_limit_mbps * PAGES_PER_MIB;
        if !is_within {
            world.counters.refused_rate_pages += pages;
        }
        is_within
    }
}

impl System for FaultCount {
    fn is_tiering(&self) -> bool {
        true
    }

    fn hint_fault(&mut self, world: &mut World, fault: &Fault) -> f64 {
        let Fault {
            head, pages, node, ..
        } = *fault;
        let Some(process) = world.memory.region_of(head).map(|region| region.process) else {
            return 0.0;
        };
        self.faults[process] += 1;
        if !world.nodes[node].has_plenty() {
            let marked = self.faults_at(process, world.memory.marked_ns(head) / 1_000_000);
            let since = self.faults[process] / GRAIN * GRAIN - marked / GRAIN * GRAIN;
            if since >= self.threshold {
                world.counters.refused_cold_pages += u64::from(pages);
                return 0.0;
            }
            if !self.is_within_rate(world, u64::from(pages)) {
                return 0.0;
            }
        }
        promote_in_fault(world, head, pages, node).unwrap_or(0.0)
    }

    fn step(&mut self, world: &mut World, _tasks: &[Task]) {
        let now_ms = world.now_ms();
        for (faults, history) in self.faults.iter().zip(&mut self.history) {
            if history.last().is_none_or(|(_, last)| last != faults) {
                history.push((now_ms, *faults));
            }
        }
    }
}
