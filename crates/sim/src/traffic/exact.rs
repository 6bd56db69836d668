//! Access by access: each thread goes on until the slice is over.

use super::{access_ns, take_fault, tell, told_of};
use crate::machine::NODES_MAX as NODES;
use crate::machine::memory::{ACCESSED, MARKED, Memory, node_of};
use crate::machine::world::World;
use crate::systems::{System, Touch};
use crate::traffic::task::Task;

/// Makes a task's accesses of the next `slice_ns`. Threads go one after the other; what one does is
/// seen by the next only, so a slice must be short against everything that matters.
pub fn advance(
    world: &mut World,
    system: &mut dyn System,
    task: &mut Task,
    slice_ns: u64,
    crowd: &[f64],
) {
    let access_ns = access_ns(world, task, crowd);
    let tells = told_of(system, task).is_some();
    for number in 0..task.threads.len() {
        let thread = &mut task.threads[number];
        let Some(mut pages) = thread.pages.take() else {
            continue;
        };
        let mut clock_ns = thread.ahead_ns;
        let mut made = [0u64; NODES];
        let (first, folio_pages) = (task.region.pages.start, task.region.folio_pages);
        while clock_ns < slice_ns as f64 && task.left > 0 {
            let Some(page) = pages.next() else {
                break;
            };
            let head = Memory::head(first + page, folio_pages);
            let state = world.memory.state(head);
            if state & (ACCESSED | MARKED) != ACCESSED {
                world.memory.set(head, ACCESSED);
                if state & MARKED != 0 {
                    clock_ns += take_fault(world, system, task, head, clock_ns);
                }
            }
            if tells {
                let touch = Touch {
                    head,
                    pages: folio_pages,
                    cpu: task.first_cpu + number as u32,
                    node: task.node,
                    count: 1,
                };
                tell(world, system, task, &touch);
            }
            let nid = node_of(world.memory.state(head));
            clock_ns += access_ns[nid];
            made[nid] += 1;
            task.left -= 1;
        }
        world.counters.busy_ns += clock_ns - task.threads[number].ahead_ns;
        task.threads[number].pages = Some(pages);
        // Who runs out of accesses waits for the others, as at a barrier.
        task.threads[number].ahead_ns = (clock_ns - slice_ns as f64).max(0.0);
        count(world, &made);
    }
}

fn count(world: &mut World, made: &[u64; NODES]) {
    for (made, node) in made.iter().zip(&world.nodes) {
        world.counters.accesses += made;
        if node.is_top_tier {
            world.counters.near_accesses += made;
        }
    }
}
