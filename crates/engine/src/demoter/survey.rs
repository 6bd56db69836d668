//! Which pages of a node are idle, and how they are demoted.

use std::collections::HashMap;
use std::sync::Arc;

use pghot_hotness::Nid;

use super::reclaim::{Generation, Lruvec, Reclaim};
use super::shares::{self, Holder};
use crate::Policies;

/// Generations that never go.
const YOUNG_GENERATIONS: usize = 2;

/// Pages that may go together.
struct Cold {
    memcg_id: u64,
    cgroup: Arc<str>,
    seq: u64,
    idle_ms: u64,
    pages: u64,
}

/// What of a node is idle.
pub struct Survey {
    cold: Vec<Cold>,
    holders: Vec<Holder>,
    pages: u64,
    /// Some generation that may go is followed by one that is old enough.
    pub is_known: bool,
}

impl Survey {
    /// Base pages in them.
    pub fn cold_pages(&self) -> u64 {
        self.cold.iter().map(|cold| cold.pages).sum()
    }

    /// Their share of the node's pages in use.
    pub fn idle_share(&self) -> f64 {
        self.cold_pages() as f64 / self.pages.max(1) as f64
    }

    /// The generations that have been idle for so long.
    pub fn new(lruvecs: &[Lruvec], idle_ms: u64) -> Survey {
        let mut survey = Survey {
            cold: Vec::new(),
            holders: Vec::new(),
            pages: 0,
            is_known: false,
        };
        for lruvec in lruvecs {
            let generations = &lruvec.generations[..];
            let pages = lruvec.pages();
            survey.pages += pages;
            survey.holders.push(Holder {
                memcg_id: lruvec.memcg_id,
                cgroup: Arc::clone(&lruvec.cgroup),
                pages,
            });
            let may_go = generations.len().saturating_sub(YOUNG_GENERATIONS);
            let younger = generations.iter().skip(1);
            for (older, younger) in generations.iter().zip(younger).take(may_go) {
                if younger.age_ms < idle_ms {
                    continue;
                }
                survey.is_known = true;
                survey.cold.push(Cold {
                    memcg_id: lruvec.memcg_id,
                    cgroup: Arc::clone(&lruvec.cgroup),
                    seq: older.seq,
                    idle_ms: younger.age_ms,
                    pages: older.pages,
                });
            }
        }
        survey.cold.retain(|cold| cold.pages > 0);
        survey
    }

    /// Demotes so many of them: first what each is to give by its weight, and then the longest
    /// idle. Returns how many pages went, by cgroup. They are more than wanted by less than the
    /// last folio, for a huge page goes whole.
    pub fn demote(
        mut self,
        nid: Nid,
        wanted: u64,
        policies: &Policies,
        machine: &mut dyn Reclaim,
    ) -> Vec<(Arc<str>, u64)> {
        self.cold
            .sort_by_key(|cold| std::cmp::Reverse(cold.idle_ms));
        let (mut by_cgroup, mut left) = (Vec::new(), wanted);
        // Returns how many were asked for, and how many went.
        let mut take = |cold: &mut Cold, most: u64| {
            let asked = cold.pages.min(most);
            if asked == 0 {
                return (0, 0);
            }
            let went = machine.demote(nid, cold.memcg_id, cold.seq, asked);
            cold.pages -= asked;
            by_cgroup.push((Arc::clone(&cold.cgroup), went));
            (asked, went)
        };
        for (memcg_id, mut most) in shares::givers(&self.holders, wanted, policies) {
            let of_it = |cold: &&mut Cold| cold.memcg_id == memcg_id;
            for cold in self.cold.iter_mut().filter(of_it) {
                let (asked, went) = take(cold, most.min(left));
                most -= asked;
                // Pages touched by then are asked of it in the next round, not of others in this.
                left = left.saturating_sub(asked.max(went));
            }
        }
        for cold in &mut self.cold {
            let (_, went) = take(cold, left);
            left = left.saturating_sub(went);
        }
        by_cgroup
    }
}

/// How many pages were idle between two agings, and how many of those were touched between the
/// second and a third: by the lists before the third and after it.
pub fn no_more_idle([before, after]: [&[Lruvec]; 2]) -> (u64, u64) {
    let by_memcg = after.iter().map(|lruvec| (lruvec.memcg_id, lruvec));
    let after: HashMap<u64, &Lruvec> = by_memcg.collect();
    let (mut idle, mut stayed) = (0, 0);
    for lruvec in before {
        let Some(youngest) = lruvec.generations.last() else {
            continue;
        };
        // The second of the three opened the youngest, the first the one before.
        let was_idle = |generation: &&Generation| generation.seq + 2 <= youngest.seq;
        let pages = |of: &Lruvec| -> u64 {
            let were_idle = of.generations.iter().filter(was_idle);
            were_idle.map(|generation| generation.pages).sum()
        };
        let had = pages(lruvec);
        idle += had;
        let has = after.get(&lruvec.memcg_id).map_or(0, |same| pages(same));
        stayed += has.min(had);
    }
    (idle, idle - stayed)
}

#[cfg(test)]
mod tests;
