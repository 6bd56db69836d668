//! Which pages of a node are idle, and how they are demoted.

use std::sync::Arc;

use pghot_hotness::Nid;

use super::reclaim::{Lruvec, Reclaim};

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
            pages: 0,
            is_known: false,
        };
        for lruvec in lruvecs {
            let generations = &lruvec.generations[..];
            survey.pages += generations.iter().map(|g| g.pages).sum::<u64>();
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

    /// Demotes the longest idle of them; returns how many pages went, by cgroup.
    pub fn demote(
        mut self,
        nid: Nid,
        wanted: u64,
        machine: &mut dyn Reclaim,
    ) -> Vec<(Arc<str>, u64)> {
        self.cold
            .sort_by_key(|cold| std::cmp::Reverse(cold.idle_ms));
        let (mut by_cgroup, mut went) = (Vec::new(), 0);
        for cold in self.cold {
            let pages = cold.pages.min(wanted - went);
            if pages > 0 {
                let demoted = machine
                    .demote(nid, cold.memcg_id, cold.seq, pages)
                    .min(pages);
                went += demoted;
                by_cgroup.push((cold.cgroup, demoted));
            }
        }
        by_cgroup
    }
}
