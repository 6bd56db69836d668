//! kswapd with demotion: when a top-tier node runs low, folios that were not accessed for two rounds go
//! to the lower tier, in batches.
//!
//! The kernel's lists are approximated by a clock with two chances: a folio that was accessed since the
//! last look is made active, an active one that was not becomes inactive, and an inactive one goes.

use crate::memory::{ABSENT, ACTIVE, LISTED, MARKED, Page};
use crate::world::World;

/// Does what kswapd of node `nid` can do in `budget_ns`, and returns the CPU time that it took, in ns.
pub fn reclaim(world: &mut World, nid: usize, tiering_is_on: bool, budget_ns: f64) -> f64 {
    let node = &world.nodes[nid];
    if !node.is_top_tier || !world.spec.kernel.demotion_enabled {
        return 0.0;
    }
    let marks = node.watermarks;
    let goal = match tiering_is_on {
        true => marks.promo,
        false => marks.high,
    };
    if node.free < marks.low {
        world.nodes[nid].is_reclaiming = true;
    }
    let mut spent_ns = 0.0;
    // Two rounds find all that was not accessed; a third would only burn CPU.
    let mut looks = 2 * world.nodes[nid].listed.len();
    while world.nodes[nid].is_reclaiming && spent_ns < budget_ns {
        if world.nodes[nid].free >= goal || looks == 0 {
            world.nodes[nid].is_reclaiming = false;
            break;
        }
        looks -= 1;
        spent_ns += world.spec.costs.reclaim_ns;
        if let Some((head, pages)) = next_victim(world, nid) {
            spent_ns += demote(world, head, pages);
        }
    }
    world.counters.reclaim_ns += spent_ns;
    spent_ns
}

/// Looks at one folio of the list; it is returned if it has had its chances.
fn next_victim(world: &mut World, nid: usize) -> Option<(Page, u32)> {
    let node = &mut world.nodes[nid];
    if node.listed.is_empty() {
        return None;
    }
    if node.hand >= node.listed.len() {
        node.hand = 0;
    }
    let head = node.listed[node.hand];
    let state = world.memory.state(head);
    if state & ABSENT != 0 || world.memory.node(head) != nid {
        // It left. If it is on another top-tier node, it belongs on the list there.
        node.listed.swap_remove(node.hand);
        world.memory.clear(head, LISTED);
        let is_elsewhere = state & ABSENT == 0 && world.nodes[world.memory.node(head)].is_top_tier;
        if is_elsewhere {
            let there = world.memory.node(head);
            world.memory.set(head, LISTED);
            world.nodes[there].listed.push(head);
        }
        return None;
    }
    node.hand += 1;
    if world
        .heat
        .take_referenced(&mut world.memory, head, world.now_ns)
    {
        world.memory.set(head, ACTIVE);
        return None;
    }
    if state & ACTIVE != 0 {
        world.memory.clear(head, ACTIVE);
        return None;
    }
    let pages = world.memory.region_of(head)?.folio_pages;
    Some((head, pages))
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
    world.memory.clear(head, MARKED);
    let costs = &world.spec.costs;
    match pages {
        1 => costs.demote_ns,
        _ => costs.move_huge_ns,
    }
}
