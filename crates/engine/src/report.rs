//! What a migrator has done, in all and in its last pass: for `status`, and for the demoter.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use pghot_hotness::{Nid, Pfn};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::sizes::Sizes;
use crate::{Held, Tally};

/// Waiting pages by reason.
pub type HeldPages = BTreeMap<Held, u64>;

/// What a migrator has done since it started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Totals {
    /// Passes over the node.
    pub passes: u64,
    /// Hot sections that passes have read.
    pub hot_sections: u64,
    /// Base pages by outcome.
    pub outcomes: Tally,
    /// Large folios among the moved, each counted once.
    pub large_folios_moved: u64,
    /// Batches handed to the machine, and the base pages of the largest.
    pub batches: u64,
    /// Base pages of the largest batch.
    pub batch_pages_max: u32,
    /// The longest that one batch took in the kernel, in ms.
    pub batch_ms_max: u64,
    /// The longest that one pass took, in ms.
    pub pass_ms_max: u64,
    /// Records that left the window.
    pub expired: u64,
    /// Of those, ready pages that went cold before they could move.
    pub expired_ready: u64,
    /// Pages that had been promoted a moment ago and were to be promoted again.
    pub returned_pages: u64,
    /// Base pages of page cache that no process maps, among those that moved or would have.
    pub cache_pages_moved: u64,
}

/// Base pages that are ready, for one target: the number of records times the mean size of the
/// folios that were resolved last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Waiting {
    /// Their last hint fault was quick, or other sources saw as many accesses as a record counts.
    pub quick_pages: u64,
    /// The others.
    pub counted_pages: u64,
}

impl Waiting {
    /// All of them.
    pub fn pages(&self) -> u64 {
        self.quick_pages + self.counted_pages
    }

    /// In base pages, if it was in records.
    pub(crate) fn scaled(self, sizes: &Sizes) -> Waiting {
        Waiting {
            quick_pages: sizes.pages(self.quick_pages),
            counted_pages: sizes.pages(self.counted_pages),
        }
    }

    /// Those that a quick fault told of, or the others.
    pub(crate) fn of(&mut self, is_quick: bool) -> &mut u64 {
        match is_quick {
            true => &mut self.quick_pages,
            false => &mut self.counted_pages,
        }
    }
}

impl AddAssign for Waiting {
    fn add_assign(&mut self, more: Waiting) {
        self.quick_pages += more.quick_pages;
        self.counted_pages += more.counted_pages;
    }
}

/// A folio that went up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// The page in the lower tier whose record made it a candidate.
    pub pfn: Pfn,
    /// When it had arrived, `CLOCK_MONOTONIC` ns.
    pub when_ns: u64,
}

/// What one pass did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PassReport {
    /// When it began, `CLOCK_MONOTONIC` ms.
    pub started_ms: u64,
    /// When it ended.
    pub ended_ms: u64,
    /// Ready pages it saw.
    pub ready: u64,
    /// Of those, the hottest that it went on with.
    pub picked: u64,
    /// Base pages that moved.
    pub moved_pages: u64,
    /// Ready pages that wait, by reason.
    pub held: HeldPages,
    /// Base pages by target that could not go yet.
    pub waiting: BTreeMap<Nid, Waiting>,
    /// The node is offline or not a lower tier any more: nothing was looked at.
    pub node_absent: bool,
}

impl PassReport {
    /// What waits is what another pass saw.
    pub(crate) fn repeat(&mut self, other: &PassReport) {
        self.ready = other.ready;
        self.held.clone_from(&other.held);
        self.waiting.clone_from(&other.waiting);
    }

    /// Whether pages found no room.
    pub fn wants_room(&self) -> bool {
        self.held.contains_key(&Held::NoRoom)
    }
}
