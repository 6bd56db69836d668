//! kswapd with demotion: when a top-tier node runs low, the coldest folios go to the lower tier.
//!
//! Which are the coldest is the kernel's LRU's business, of which there are two: `generations`, the
//! multi-generational LRU that distributions switch on, and `clock`, an approximation of the active
//! and the inactive list.

mod aged;
mod clock;
mod generations;

pub use aged::Aged;

use crate::machine::heat::Heat;
use crate::machine::lru::{Generations, Lru};
use crate::machine::memory::{ABSENT, LISTED, Memory, Page};
use crate::machine::world::World;

/// What came of looking at one folio.
struct Look {
    /// What it took, in ns.
    spent_ns: f64,
    /// The folio and its base pages, if it is cold.
    victim: Option<(Page, u32)>,
}

impl Lru {
    fn look(&mut self, world: &mut World, nid: usize) -> Look {
        match self {
            Lru::Lists(clock) => clock.look(world, nid),
            Lru::Generations(generations) => generations.look(world, nid),
        }
    }
}

/// Does what kswapd of node `nid` can do in `budget_ns`, and returns the CPU time that it took, in
/// ns.
pub fn reclaim(world: &mut World, nid: usize, tiering_is_on: bool, budget_ns: f64) -> f64 {
    let node = &mut world.nodes[nid];
    if !node.is_top_tier || !world.spec.kernel.demotion_enabled {
        return 0.0;
    }
    let marks = node.watermarks;
    let goal = match tiering_is_on {
        true => marks.promo,
        false => marks.high,
    };
    if node.free < marks.low {
        node.is_reclaiming = true;
    }
    // A walk over page tables takes longer than there is time for.
    let ahead_ns = std::mem::take(&mut node.reclaim_ahead_ns);
    if ahead_ns > budget_ns {
        node.reclaim_ahead_ns = ahead_ns - budget_ns;
        return 0.0;
    }
    if !node.is_reclaiming {
        return 0.0;
    }
    let left_ns = budget_ns - ahead_ns;
    // Nothing is added to it meanwhile: what kswapd moves goes down.
    let empty = Lru::new(world.spec.kernel.lru);
    let mut lru = std::mem::replace(&mut node.lru, empty);
    let mut spent_ns = 0.0;
    // Two rounds find all that was not accessed; a third would only burn CPU.
    let mut looks = 2 * lru.len();
    while world.nodes[nid].is_reclaiming && spent_ns < left_ns {
        if world.nodes[nid].free >= goal || looks == 0 {
            world.nodes[nid].is_reclaiming = false;
            break;
        }
        looks -= 1;
        let look = lru.look(world, nid);
        spent_ns += look.spent_ns;
        if let Some((head, pages)) = look.victim {
            spent_ns += demote(world, head, pages);
        }
    }
    let node = &mut world.nodes[nid];
    node.lru = lru;
    node.reclaim_ahead_ns = (spent_ns - left_ns).max(0.0);
    world.counters.reclaim_ns += spent_ns;
    spent_ns
}

/// Ages a node by request; what it took, in ns. Nothing happens where there are no generations.
pub fn age(world: &mut World, nid: usize) -> f64 {
    if !world.nodes[nid].is_top_tier {
        return aged::age(world, nid);
    }
    with_generations(world, nid, |generations, world| generations.age(world, nid)).unwrap_or(0.0)
}

/// Demotes so many pages of the generations up to `seq` by request; returns how many went, and what
/// it took, in ns.
pub fn demote_oldest(world: &mut World, nid: usize, seq: u64, pages: u64) -> (u64, f64) {
    let demoted = with_generations(world, nid, |generations, world| {
        let (mut went, mut spent_ns) = (0, 0.0);
        // As kswapd, it would find the same folios again.
        for _ in 0..generations.len() {
            if went >= pages {
                break;
            }
            let Some(look) = generations.look_up_to(world, nid, seq) else {
                break;
            };
            spent_ns += look.spent_ns;
            if let Some((head, pages)) = look.victim {
                let took_ns = demote(world, head, pages);
                spent_ns += took_ns;
                went += if took_ns > 0.0 { u64::from(pages) } else { 0 };
            }
        }
        (went, spent_ns)
    });
    demoted.unwrap_or_default()
}

/// Nothing is added to the node's generations meanwhile.
fn with_generations<R>(
    world: &mut World,
    nid: usize,
    work: impl FnOnce(&mut Generations, &mut World) -> R,
) -> Option<R> {
    let empty = Lru::new(world.spec.kernel.lru);
    let mut lru = std::mem::replace(&mut world.nodes[nid].lru, empty);
    let result = match &mut lru {
        Lru::Generations(generations) => Some(work(generations, world)),
        Lru::Lists(_) => None,
    };
    world.nodes[nid].lru = lru;
    result
}

/// Asks whether a folio was accessed; how, is for who asks.
fn ask(world: &mut World, head: Page, how: fn(&mut Heat, &mut Memory, Page, u64) -> bool) -> bool {
    how(&mut world.heat, &mut world.memory, head, world.now_ns)
}

/// A folio of a list is still on node `nid`. If it is on another top-tier node, it belongs on the
/// list there.
fn is_here(world: &mut World, head: Page, nid: usize) -> bool {
    let is_present = world.memory.state(head) & ABSENT == 0;
    let there = world.memory.node(head);
    if is_present && there == nid {
        return true;
    }
    world.memory.clear(head, LISTED);
    if is_present {
        world.list(head, there);
    }
    false
}

/// To its home, or wherever there is room below; what it took, in ns.
fn demote(world: &mut World, head: Page, pages: u32) -> f64 {
    let home = world
        .memory
        .region_of(head)
        .map_or(0, |region| region.home as usize);
    if world.nodes[home].is_top_tier || !world.move_folio(head, pages, home) {
        return 0.0;
    }
    let costs = &world.spec.costs;
    match pages {
        1 => costs.demote_ns,
        _ => costs.move_huge_ns,
    }
}
