//! Agings of lower-tier nodes. Nothing is reclaimed there, so all that is kept of the generations
//! is how many pages the last aging found accessed since the one before.

use pghot_engine::demoter;

use super::ask;
use crate::machine::heat::Heat;
use crate::machine::memory::{ABSENT, Page};
use crate::machine::world::World;

/// What the last agings of a node found.
#[derive(Debug, Clone, Copy, Default)]
pub struct Aged {
    /// How many there were.
    agings: u64,
    last_ns: u64,
    /// Base pages found accessed by the last one.
    young_pages: u64,
}

impl Aged {
    /// As the kernel lists generations, of a node with so many pages in use.
    pub fn list(&self, in_use: u64, now_ns: u64) -> Vec<demoter::Generation> {
        let age_ms = now_ns.saturating_sub(self.last_ns) / 1_000_000;
        let young = self.young_pages.min(in_use);
        let by_age = [in_use - young, young, 0].into_iter();
        let generation = |(pages, seq)| demoter::Generation { seq, age_ms, pages };
        by_age.zip(self.agings..).map(generation).collect()
    }
}

/// Ages a node; what it took, in ns.
pub fn age(world: &mut World, nid: usize) -> f64 {
    let regions = world.memory.regions().to_vec();
    let last_ns = world.nodes[nid].aged.last_ns;
    let (mut walked, mut young_pages) = (0_u64, 0);
    for region in regions.iter().filter(|region| region.backing.is_mapped()) {
        let heads = region.pages.clone().step_by(region.folio_pages as usize);
        for head in heads {
            let is_present = world.memory.state(head) & ABSENT == 0;
            if !is_present || world.memory.node(head) != nid {
                continue;
            }
            walked += 1;
            young_pages +=
                u64::from(region.folio_pages) * u64::from(is_young(world, head, last_ns));
        }
    }
    let aged = &mut world.nodes[nid].aged;
    *aged = Aged {
        agings: aged.agings + 1,
        last_ns: world.now_ns,
        young_pages,
    };
    walked as f64 * world.spec.costs.accessed_bit_ns
}

/// Whether it was accessed since this node was last aged: bits that are drawn know of agings by
/// block, and a block may have pages on several nodes.
fn is_young(world: &mut World, head: Page, last_ns: u64) -> bool {
    match world.heat {
        Heat::Bits => ask(world, head, Heat::take_young),
        Heat::Drawn(_) => {
            let (heat, memory) = (&world.heat, &world.memory);
            heat.is_accessed_since(memory, head, last_ns, world.now_ns)
        }
    }
}
