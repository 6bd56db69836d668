//! Active and inactive lists, approximated by a clock with two chances: a folio that was accessed
//! since the last look is made active, an active one that was not becomes inactive, and an inactive
//! one goes.

use super::{Look, ask, is_here};
use crate::machine::heat::Heat;
use crate::machine::lru::Clock;
use crate::machine::memory::{ACTIVE, Page};
use crate::machine::world::World;

impl Clock {
    pub(super) fn look(&mut self, world: &mut World, nid: usize) -> Look {
        Look {
            spent_ns: world.spec.costs.reclaim_ns,
            victim: self.next_victim(world, nid),
        }
    }

    /// Looks at one folio; it is returned if it has had its chances.
    fn next_victim(&mut self, world: &mut World, nid: usize) -> Option<(Page, u32)> {
        if self.hand >= self.listed.len() {
            self.hand = 0;
        }
        let head = *self.listed.get(self.hand)?;
        if !is_here(world, head, nid) {
            self.listed.swap_remove(self.hand);
            return None;
        }
        self.hand += 1;
        if ask(world, head, Heat::take_referenced) {
            world.memory.set(head, ACTIVE);
            return None;
        }
        if world.memory.state(head) & ACTIVE != 0 {
            world.memory.clear(head, ACTIVE);
            return None;
        }
        Some((head, world.memory.region_of(head)?.folio_pages))
    }
}
