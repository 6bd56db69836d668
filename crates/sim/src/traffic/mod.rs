//! Processes, and the accesses that they make in a slice of time: one by one, or whole parts at
//! once.

mod due;
pub mod exact;
pub mod statistical;
pub mod task;

use std::time::Duration;

use crate::machine::NODES_MAX;
use crate::machine::memory::{MARKED, Page};
use crate::machine::world::World;
use crate::systems::{Fault, System, Touch};
use crate::traffic::task::Task;

/// What an access takes by the node of its page, in ns.
fn access_ns(world: &World, task: &Task, crowd: &[f64]) -> [f64; NODES_MAX] {
    let costs = &world.spec.costs;
    let call_ns = match task.region.backing.is_mapped() {
        true => 0.0,
        false if world.reads_are_watched => costs.read_ns + costs.watched_read_ns,
        false => costs.read_ns,
    };
    let latencies = world.spec.node[task.node].latency_ns.iter().zip(crowd);
    let mut access_ns = [0.0; NODES_MAX];
    for (ns, (latency, crowd)) in access_ns.iter_mut().zip(latencies) {
        *ns = costs.compute_ns + call_ns + latency * crowd;
    }
    access_ns
}

/// Of how many accesses of a thread the system is told of one; none if of none. The kernel's own
/// copying is not sampled.
fn told_of(system: &dyn System, task: &Task) -> Option<u64> {
    match task.region.backing.is_mapped() {
        true => system.miss_period(),
        false => system.wants_reads().then_some(1),
    }
}

/// Tells the system of an access.
fn tell(world: &mut World, system: &mut dyn System, task: &Task, touch: &Touch) {
    match task.region.backing.is_mapped() {
        true => system.miss(world, touch),
        false => system.read(world, touch),
    }
}

/// A thread of a task meets a marked entry, `after_ns` after the slice began. Returns what that
/// takes it, in ns.
fn take_fault(
    world: &mut World,
    system: &mut dyn System,
    task: &mut Task,
    head: Page,
    after_ns: f64,
) -> f64 {
    world.memory.clear(head, MARKED);
    world.counters.hint_faults += 1;
    let now_ns = world.now_ns + after_ns as u64;
    let fault = Fault {
        head,
        pages: task.region.folio_pages,
        node: task.node,
        since_mark: Duration::from_nanos(now_ns.saturating_sub(world.memory.marked_ns(head))),
    };
    let before = world.counters.promoted_in_fault_pages;
    let paid_ns = world.spec.costs.hint_fault_ns + system.hint_fault(world, &fault);
    let promoted = world.counters.promoted_in_fault_pages - before;
    task.scan.note_promoted(promoted);
    world.counters.stolen_ns += paid_ns;
    paid_ns
}
