//! Making a process's accesses for a slice of time: one by one, or whole parts at once.

mod due;
pub mod exact;
pub mod statistical;

use crate::memory::{MARKED, Page};
use crate::systems::{Fault, System};
use crate::task::Task;
use crate::world::World;

/// A thread of a task meets a marked entry. Returns what that takes it, in ns.
fn take_fault(world: &mut World, system: &mut dyn System, task: &mut Task, head: Page) -> f64 {
    world.memory.clear(head, MARKED);
    world.counters.hint_faults += 1;
    let fault = Fault {
        head,
        pages: task.region.folio_pages,
        node: task.node,
        latency_ms: world.now_ms().saturating_sub(world.memory.marked_ms(head)),
    };
    let before = world.counters.promoted_in_fault_pages;
    let paid_ns = world.spec.costs.hint_fault_ns + system.hint_fault(world, &fault);
    let promoted = world.counters.promoted_in_fault_pages - before;
    task.scan.note_promoted(promoted);
    world.counters.stolen_ns += paid_ns;
    paid_ns
}
