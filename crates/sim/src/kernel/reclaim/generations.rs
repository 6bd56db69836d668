//! The multi-generational LRU. Folios go from the oldest generation, and the kernel ages when there
//! are no more than two: it walks the page tables, takes every accessed folio to the youngest
//! generation, and opens a younger one.
//!
//! After `mm/vmscan.c` of 6.12 and 7.2. What the walk missed is found at the door: a folio of the
//! oldest generation that was accessed after all goes to the youngest; one of page cache that
//! nobody maps, of which no walk knows, to the next if it was read often.
//!
//! Approximated: a folio that comes to the node is of the youngest generation, also if it comes
//! back. Left out: tiers within a generation and their feedback from refaults, since nothing is
//! evicted here; the Bloom filters, which save walks and find the same.

use super::{Look, ask, is_here};
use crate::machine::heat::Heat;
use crate::machine::lru::Generations;
use crate::machine::memory::{ACTIVE, Page};
use crate::machine::world::World;

/// `MIN_NR_GENS`: as many are kept, so aging comes when one of them would be next.
const GENERATIONS_MIN: usize = 2;

/// `MAX_NR_GENS`: an aging that would make more puts the two oldest together.
const GENERATIONS_MAX: usize = 4;

impl Generations {
    pub(super) fn look(&mut self, world: &mut World, nid: usize) -> Look {
        let mut spent_ns = world.spec.costs.reclaim_ns;
        self.drop_empty();
        if self.of.len() == 1 {
            self.open(world.now_ns);
        }
        if self.of.len() <= GENERATIONS_MIN {
            spent_ns += self.age(world, nid);
        }
        Look {
            spent_ns,
            victim: self.next_victim(world, nid),
        }
    }

    /// Looks at the next folio of the generations up to `seq`; `None` if there is none, or only the
    /// youngest are left, which nobody may ask for.
    pub(super) fn look_up_to(&mut self, world: &mut World, nid: usize, seq: u64) -> Option<Look> {
        self.drop_empty();
        if self.oldest_seq > seq || self.of.len() <= GENERATIONS_MIN {
            return None;
        }
        Some(Look {
            spent_ns: world.spec.costs.reclaim_ns,
            victim: self.next_victim(world, nid),
        })
    }

    /// Takes what was accessed to the youngest generation and opens a younger one; what that took,
    /// in ns.
    pub(super) fn age(&mut self, world: &mut World, nid: usize) -> f64 {
        let mut young = std::mem::take(self.youngest());
        let mut walked = young.len();
        young.retain(|&head| is_here(world, head, nid));
        // Their bits are cleared too, and tell of the time from now on.
        for &head in &young {
            is_young(world, head);
        }
        let last = self.of.len() - 1;
        for generation in self.of.iter_mut().take(last) {
            walked += generation.heads.len();
            generation.heads.retain(|&head| {
                let is_young = is_young(world, head);
                if is_young {
                    young.push_back(head);
                }
                !is_young
            });
        }
        *self.youngest() = young;
        self.open(world.now_ns);
        if self.of.len() > GENERATIONS_MAX
            && let Some(mut oldest) = self.of.pop_front()
        {
            self.oldest_seq += 1;
            oldest.heads.append(&mut self.of[0].heads);
            self.of[0].heads = oldest.heads;
        }
        walked as f64 * world.spec.costs.accessed_bit_ns
    }

    /// Looks at the next folio of the oldest generation; it is returned if nobody wants it.
    fn next_victim(&mut self, world: &mut World, nid: usize) -> Option<(Page, u32)> {
        let head = self.of[0].heads.pop_front()?;
        if !is_here(world, head, nid) {
            return None;
        }
        if was_touched_since(world, head) {
            match world.memory.is_mapped(head) {
                true => self.youngest().push_back(head),
                false => self.of[1].heads.push_back(head),
            }
            return None;
        }
        let pages = world.memory.region_of(head)?.folio_pages;
        // If it cannot go, it is looked at again when its generation's turn comes.
        self.of[1].heads.push_back(head);
        Some((head, pages))
    }
}

/// Whether the walk finds a folio accessed since the last walk.
fn is_young(world: &mut World, head: Page) -> bool {
    world.memory.is_mapped(head) && ask(world, head, Heat::take_young)
}

/// Whether a folio was accessed since the last walk came by, when its turn has come to go.
fn was_touched_since(world: &mut World, head: Page) -> bool {
    // Whose bit DAMON cleared, it has marked.
    let was_seen = world.memory.state(head) & ACTIVE != 0;
    world.memory.clear(head, ACTIVE);
    let how = match world.memory.is_mapped(head) {
        true => Heat::take_touched,
        false => Heat::take_often_read,
    };
    ask(world, head, how) || was_seen
}
