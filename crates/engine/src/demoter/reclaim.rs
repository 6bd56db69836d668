//! A machine that demotes on demand, as the demoter sees it.

use std::sync::Arc;

use pghot_hotness::Nid;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::exchange::Fates;
use crate::{Pid, Place, Program};

/// One generation of a lruvec.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Generation {
    /// Its number; younger ones have higher numbers.
    pub seq: u64,
    /// How long ago it was opened, in ms.
    pub age_ms: u64,
    /// Base pages in it.
    pub pages: u64,
}

/// The pages of a control group on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lruvec {
    /// The control group's number.
    pub memcg_id: u64,
    /// Its path; empty where there is only one, or it is not known.
    pub cgroup: Arc<str>,
    /// Its generations, the oldest first.
    pub generations: Vec<Generation>,
}

impl Lruvec {
    /// Base pages in all of its generations.
    pub fn pages(&self) -> u64 {
        let pages = self.generations.iter().map(|generation| generation.pages);
        pages.fold(0, u64::saturating_add)
    }
}

/// Why nothing can be demoted on demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unable {
    /// The multi-generational LRU is off, or its files are not there.
    NoGenerations,
    /// Reclaim does not demote.
    DemotionOff,
    /// Nothing is moved.
    DryRun,
    /// `demote_rate_limit_MBps` is 0.
    SwitchedOff,
}

impl Unable {
    /// Why, as a sentence for an operator.
    pub fn sentence(self) -> &'static str {
        match self {
            Unable::NoGenerations => {
                "pghot makes no room in the top tier itself: the multi-generational LRU is off, or \
                 /sys/kernel/debug/lru_gen cannot be read and written"
            }
            Unable::DemotionOff => {
                "nothing is demoted, so a full top tier stays as it is: \
                 /sys/kernel/mm/numa/demotion_enabled is false"
            }
            Unable::DryRun => "a dry run demotes nothing",
            Unable::SwitchedOff => "demotion is left to the kernel: demote_rate_limit_MBps is 0",
        }
    }
}

/// Base pages of huge pages that changed places.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exchanged {
    /// To the lower tier.
    pub down_pages: u64,
    /// To the top tier.
    pub up_pages: u64,
}

/// A machine that demotes on demand.
pub trait Reclaim {
    /// `CLOCK_MONOTONIC`, in ms.
    fn now_ms(&self) -> u64;

    /// Base pages that the node can take and stay above its high watermark.
    fn room_pages(&mut self, nid: Nid) -> u64;

    /// The same of all of the lower tier together, for pages from a node: beyond it, reclaim would
    /// swap.
    fn lower_room_pages(&mut self, from: Nid) -> u64;

    /// The lruvecs of a node.
    fn lruvecs(&mut self, nid: Nid) -> Result<Vec<Lruvec>, Unable>;

    /// Opens a younger generation than `seq`, if that is the youngest.
    fn age(&mut self, nid: Nid, memcg_id: u64, seq: u64);

    /// How many of these pages, each mapped at its place by a process, have their accessed bits
    /// set, of those that can be looked at.
    fn look_at(&mut self, places: &[Place]) -> Fates;

    /// The share of a node's pages in use that are parts of huge ones, 0 to 1; 0 where those of the
    /// top tier cannot be marked without being moved.
    fn huge_share(&mut self, nid: Nid) -> f64;

    /// Who a process is; `None` if it is gone, or where nobody can tell.
    fn program(&mut self, pid: Pid) -> Option<Program>;

    /// Moves huge pages of a node to the lower tier and others to the node, both as long as they
    /// fit there whole.
    fn exchange_huge(&mut self, nid: Nid, down: &[Place], up: &[Place]) -> Exchanged;

    /// Demotes about so many pages of the generations up to `seq`, oldest first, those accessed
    /// meanwhile left out; returns how many went.
    fn demote(&mut self, nid: Nid, memcg_id: u64, seq: u64, pages: u64) -> u64;
}
