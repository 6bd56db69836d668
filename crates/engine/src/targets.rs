//! Where hot pages go: to the nearest top-tier node with room, and for owners that may not use it
//! to the next one.
//!
//! The kernel refuses a node that is outside a process's cpuset, and before it says so it drains
//! the LRU caches of all CPUs. So who was refused is not asked again for a while, each time for
//! longer, and another node is tried. If there is none the page is settled: it must become hot
//! anew, and does not stand in the way of others meanwhile.

use pghot_hotness::Nid;

use crate::retry::Retries;
use crate::{Machine, Outcome, Owner};

/// See the head of this file. For one lower-tier node.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    /// The node that is set, or those of the top tier, the nearest first.
    allowed: Vec<Nid>,
    refused: Retries<(Owner, Nid)>,
}

impl Targets {
    /// Chooses where pages go whose record does not know better, of these nodes: to the first with
    /// room for so many pages, or else to the one with most room. Also returns its room, unless no
    /// page waits: an idle machine is not asked at every pass.
    pub fn choose(
        &mut self,
        allowed: Vec<Nid>,
        pages: u64,
        machine: &mut dyn Machine,
    ) -> (Option<Nid>, Option<u64>) {
        self.refused.drop_old(machine.now_ms());
        self.allowed = allowed;
        let mut chosen = (self.allowed.first().copied(), None);
        if pages == 0 {
            return chosen;
        }
        for &nid in &self.allowed {
            let room = machine.room_pages(nid);
            if chosen.1.is_none_or(|most| room > most) {
                chosen = (Some(nid), Some(room));
            }
            if room >= pages {
                break;
            }
        }
        chosen
    }

    /// The target for a page of this owner: the one meant, or the nearest that did not refuse it;
    /// none if all did.
    pub fn for_owner(&self, owner: Owner, meant: Nid, now_ms: u64) -> Option<Nid> {
        let others = self.allowed.iter().copied();
        let mut all = std::iter::once(meant).chain(others);
        all.find(|nid| !self.refused.is_waiting((owner, *nid), now_ms))
    }

    /// What came of a batch.
    pub fn note(&mut self, owner: Owner, target: Nid, outcomes: &[Outcome], now_ms: u64) {
        let is_refused = |outcome: &Outcome| *outcome == Outcome::TargetRefused;
        match outcomes.iter().all(is_refused) {
            true => self.refused.refuse((owner, target), now_ms),
            false => self.refused.forget((owner, target)),
        }
    }
}
