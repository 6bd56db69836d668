//! Whole parts at once: in a slice of time a process makes as many accesses as its threads have
//! time for, at the mean cost of where its pages are now; single accesses matter only where an
//! entry is marked.
//!
//! When an entry is marked, the time of its next access is drawn from the exponential distribution
//! of its part's rate. Rates change when pages move and phases end; since the distribution has no
//! memory, what has not come by the end of an epoch can be drawn anew.
//!
//! A system that samples accesses, or sees the reads of page cache, is told of as many as it wants,
//! each of a page that is drawn then.

use std::ops::Range;

use pghot_workloads::random::XorShift;

use super::due::Due;
use super::{access_ns, take_fault, tell, told_of};
use crate::machine::NODES_MAX as NODES;
use crate::machine::heat::Heat;
use crate::machine::memory::{HUGE_PAGES, MARKED, Memory, Page, node_of};
use crate::machine::rates::Part;
use crate::machine::world::{Moved, World};
use crate::systems::{System, Touch};
use crate::traffic::task::Task;

/// How long drawn times stay good.
const EPOCH_NS: u64 = 10_000_000_000;

/// What is known of a task's accesses.
pub struct Flow {
    parts: Vec<Part>,
    /// Base pages of each part by node.
    on_node: Vec<[u64; NODES]>,
    /// Of the process's accesses, the share that goes to each node.
    share_on: [f64; NODES],
    /// Accesses of the process per ns, in the last slice.
    rate: f64,
    /// Marked folios by the time of their next access, in ns.
    due: Due,
    epoch_end_ns: u64,
    /// Accesses are whole numbers; what is left over goes to the next slice.
    rest: f64,
    /// Accesses since the system was told of one.
    untold: u64,
    /// Whose turn it is to tell of the next.
    teller: usize,
    random: XorShift,
}

impl Flow {
    /// For a task that has just begun a phase.
    pub fn new(seed: u64) -> Flow {
        Flow {
            parts: Vec::new(),
            on_node: Vec::new(),
            share_on: [0.0; NODES],
            rate: 0.0,
            due: Due::default(),
            epoch_end_ns: 0,
            rest: 0.0,
            untold: 0,
            teller: 0,
            random: XorShift::new(seed),
        }
    }

    /// The task has begun a phase.
    pub fn begin_phase(&mut self, world: &mut World, task: &Task) {
        let Some(phase) = task.plan.phases.get(task.phase) else {
            return;
        };
        self.parts = Part::of(&phase.pattern);
        self.on_node = self
            .parts
            .iter()
            .map(|part| nodes_of(world, task, part))
            .collect();
        self.sum_shares();
        self.epoch_end_ns = 0;
        if let Heat::Drawn(drawn) = &mut world.heat {
            drawn
                .rates
                .begin(task.number, self.parts.clone(), world.now_ns);
        }
        self.learn_rate(world, task, &[1.0; NODES]);
    }

    /// Base pages moved.
    pub fn note(&mut self, task: &Task, moved: &Moved) {
        if !task.region.pages.contains(&moved.head) {
            return;
        }
        let page = moved.head - task.region.pages.start;
        if let Some(part) = self.part_of(page) {
            let all: u64 = self.on_node[part].iter().sum();
            let moves = self.parts[part].share * f64::from(moved.pages) / all.max(1) as f64;
            self.share_on[moved.from] -= moves;
            self.share_on[moved.to] += moves;
            self.on_node[part][moved.from] -= u64::from(moved.pages);
            self.on_node[part][moved.to] += u64::from(moved.pages);
        }
    }

    /// A folio was marked.
    pub fn note_marked(&mut self, task: &Task, head: Page, now_ns: u64) {
        let Some(part) = self.part_of(head - task.region.pages.start) else {
            return;
        };
        let Part { pages, share } = &self.parts[part];
        let of_page = self.rate * share / f64::from(pages.len() as u32);
        let rate = of_page * f64::from(task.region.folio_pages);
        if rate > 0.0 {
            let uniform = uniform(&mut self.random);
            // -ln(u) >= 1 - u: most cold pages are not accessed in this epoch, and need no
            // logarithm.
            let epoch_ns = self.epoch_end_ns as f64 - now_ns as f64;
            if 1.0 - uniform > rate * epoch_ns {
                return;
            }
            let at_ns = now_ns as f64 - uniform.ln() / rate;
            if at_ns < self.epoch_end_ns as f64 {
                self.due.push(at_ns as u64, head);
            }
        }
    }

    /// Makes a task's accesses of the next `slice_ns`.
    pub fn advance(
        &mut self,
        world: &mut World,
        system: &mut dyn System,
        task: &mut Task,
        slice_ns: u64,
        crowd: &[f64],
    ) {
        if world.now_ns >= self.epoch_end_ns {
            self.draw_anew(world, task);
        }
        let threads = task.threads.len() as f64;
        let ahead_ns: f64 = task.threads.iter().map(|thread| thread.ahead_ns).sum();
        let mean_ns = self.learn_rate(world, task, crowd);
        let time_ns = (threads * slice_ns as f64 - ahead_ns).max(0.0);
        let wanted = time_ns / mean_ns + self.rest;
        let made = (wanted as u64).min(task.left);
        self.rest = if made == task.left {
            0.0
        } else {
            wanted - made as f64
        };
        task.left -= made;
        self.count(world, task, made as f64);
        self.tell(world, system, task, made);
        let paid_ns = self.fault(world, system, task, slice_ns, time_ns);
        world.counters.busy_ns += made as f64 * mean_ns + paid_ns;
        let owed_ns = (ahead_ns - threads * slice_ns as f64).max(0.0) + paid_ns;
        for thread in &mut task.threads {
            thread.ahead_ns = owed_ns / threads;
        }
    }

    /// Faults of the next `slice_ns`, for which the threads have `time_ns`; returns what they cost.
    /// Those that they have no time for come later: while they wait for a fault they make no
    /// other.
    fn fault(
        &mut self,
        world: &mut World,
        system: &mut dyn System,
        task: &mut Task,
        slice_ns: u64,
        time_ns: f64,
    ) -> f64 {
        let end_ns = world.now_ns + slice_ns;
        let threads = task.threads.len() as f64;
        let mut paid_ns = 0.0;
        while paid_ns < time_ns
            && let Some((due_ns, head)) = self.due.pop(end_ns)
        {
            let after_ns = due_ns.saturating_sub(world.now_ns) as f64;
            // While all threads wait for faults, nobody touches anything.
            let after_ns = after_ns.max(paid_ns / threads);
            // It may have been moved, and marked again, since.
            if world.memory.state(head) & MARKED != 0 {
                paid_ns += take_fault(world, system, task, head, after_ns);
            }
        }
        paid_ns
    }

    /// Tells the system of the accesses that it wants to know of, thread by thread in turn.
    fn tell(&mut self, world: &mut World, system: &mut dyn System, task: &Task, made: u64) {
        if told_of(system, task).is_none() {
            return;
        }
        self.untold += made;
        // It may want to know of fewer once it has been told of some.
        while let Some(period) = told_of(system, task)
            && self.untold >= period
            && let Some(page) = self.draw_page()
        {
            self.untold -= period;
            self.teller = (self.teller + 1) % task.threads.len();
            let touch = Touch {
                head: Memory::head(task.region.pages.start + page, task.region.folio_pages),
                pages: task.region.folio_pages,
                cpu: task.first_cpu + self.teller as u32,
                node: task.node,
                count: period,
            };
            tell(world, system, task, &touch);
        }
    }

    /// The page of an access, by the shares of the parts.
    fn draw_page(&mut self) -> Option<u32> {
        let mut at = uniform(&mut self.random);
        let mut parts = self.parts.iter();
        let part = parts.find(|part| {
            at -= part.share;
            at < 0.0
        });
        // Rounding may leave a little behind the last share.
        let part = part.or(self.parts.last())?;
        Some(part.pages.start + self.random.below(part.pages.len() as u32))
    }

    fn count(&mut self, world: &mut World, task: &Task, made: f64) {
        let nodes = self.share_on.iter().zip(&world.nodes);
        let top = nodes.filter(|(_, node)| node.is_top_tier);
        let near: f64 = top.map(|(share, _)| share).sum();
        world.counters.accesses += made as u64;
        world.counters.near_accesses += (made * near) as u64;
        if let Heat::Drawn(drawn) = &mut world.heat {
            drawn.rates.add(task.number, made);
        }
    }

    /// Adds up where the accesses go; [`Flow::note`] keeps it true.
    fn sum_shares(&mut self) {
        self.share_on = [0.0; NODES];
        for (part, on_node) in self.parts.iter().zip(&self.on_node) {
            let all: u64 = on_node.iter().sum();
            for (share, pages) in self.share_on.iter_mut().zip(on_node) {
                *share += part.share * *pages as f64 / all.max(1) as f64;
            }
        }
    }

    /// Learns how often the process accesses memory, and returns the mean cost of an access, in ns.
    fn learn_rate(&mut self, world: &World, task: &Task, crowd: &[f64]) -> f64 {
        let access_ns = access_ns(world, task, crowd);
        // While it waits it makes none.
        let mean_ns = match self.parts.is_empty() {
            true => access_ns[task.node],
            false => (self.share_on.iter().zip(access_ns))
                .map(|(share, ns)| share * ns)
                .sum(),
        };
        self.rate = task.threads.len() as f64 / mean_ns;
        mean_ns
    }

    fn draw_anew(&mut self, world: &World, task: &Task) {
        // What many moves left of rounding goes.
        self.sum_shares();
        self.due.clear(world.now_ns);
        self.epoch_end_ns = world.now_ns + EPOCH_NS;
        let step = task.region.folio_pages as usize;
        let Range { start, end } = task.region.pages;
        for first in (start..end).step_by(HUGE_PAGES as usize) {
            let states = world.memory.states(first..end.min(first + HUGE_PAGES));
            // Without a branch per page: most blocks have none that is marked.
            if states.iter().fold(0, |all, state| all | state) & MARKED == 0 {
                continue;
            }
            for (state, head) in states.iter().zip(first..).step_by(step) {
                if state & MARKED != 0 {
                    self.note_marked(task, head, world.now_ns);
                }
            }
        }
    }

    fn part_of(&self, page: u32) -> Option<usize> {
        let at = self.parts.partition_point(|part| part.pages.end <= page);
        (self.parts.get(at)?.pages.start <= page).then_some(at)
    }
}

/// Between 0 and 1, and neither of them.
fn uniform(random: &mut XorShift) -> f64 {
    ((random.next_bits() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
}

/// Base pages of a part by node.
fn nodes_of(world: &World, task: &Task, part: &Part) -> [u64; NODES] {
    let first = task.region.pages.start;
    let step = task.region.folio_pages;
    let start = part.pages.start / step * step;
    let mut on_node = [0; NODES];
    let states = world.memory.states(first + start..first + part.pages.end);
    for state in states.iter().step_by(step as usize) {
        on_node[node_of(*state)] += u64::from(step);
    }
    on_node
}
