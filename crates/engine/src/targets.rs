//! Where hot pages go: to the nearest top-tier node with room, and for owners that may not use it
//! to the next one.
//!
//! The kernel refuses a node that is outside a process's cpuset, and before it says so it drains
//! the LRU caches of all CPUs. So who was refused is not asked again for a while, each time for
//! longer, and another node is tried. If there is none the page is settled: it must become hot
//! anew, and does not stand in the way of others meanwhile.

use pghot_hotness::Nid;

use crate::retry::Retries;
use crate::{Machine, NodeRole, Outcome, Owner, Settings};

/// See the head of this file. For one lower-tier node.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    /// As set, or all top-tier nodes, the nearest first.
    nearest: Vec<Nid>,
    /// Where pages go whose record does not know better.
    chosen: Option<Nid>,
    refused: Retries<(Owner, Nid)>,
}

impl Targets {
    /// Chooses where pages of node `from` go whose record does not know better: as set, or to the
    /// nearest node with room for so many pages, or else to the one with most room. Returns its
    /// room, unless no page waits: an idle machine is not asked at every pass.
    pub fn choose(
        &mut self,
        from: Nid,
        pages: u64,
        settings: &Settings,
        machine: &mut dyn Machine,
    ) -> Option<u64> {
        self.refused.expire(machine.now_ms());
        self.nearest = match settings.target_nid {
            Some(nid) => vec![nid],
            None => machine.top_tier_from(from),
        };
        self.chosen = self.nearest.first().copied();
        if pages == 0 {
            return None;
        }
        if settings.target_nid.is_none() {
            // One may have gone offline.
            (self.nearest).retain(|nid| machine.role(*nid) == NodeRole::TopTier);
        }
        let mut most = None;
        for &nid in &self.nearest {
            let room = machine.room_pages(nid);
            if most.is_none_or(|most| room > most) {
                (self.chosen, most) = (Some(nid), Some(room));
            }
            if room >= pages {
                break;
            }
        }
        most
    }

    /// See [`Targets::choose`].
    pub fn chosen(&self) -> Option<Nid> {
        self.chosen
    }

    /// The target for a page of this owner: the one meant, or the nearest that did not refuse it;
    /// none if all did.
    pub fn for_owner(&self, owner: Owner, meant: Nid, now_ms: u64) -> Option<Nid> {
        let others = self.nearest.iter().copied();
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
