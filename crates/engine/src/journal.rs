//! The last decisions, page by page: what `pghot explain` tells.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pghot_hotness::{Nid, Pfn};
use serde::Serialize;

use crate::{Outcome, Place};

/// Decisions kept per migrator: the last seconds of a busy host, hours of a quiet one, 4 MiB.
const CAPACITY: usize = 1 << 16;

/// What was decided about one folio, and on what grounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// When, `CLOCK_MONOTONIC` ms.
    pub when_ms: u64,
    /// The folio's head page in the lower tier.
    pub pfn: Pfn,
    /// The lower-tier node it was in.
    pub nid: Nid,
    /// Where it was to go.
    pub target: Nid,
    /// Where it was found, if it was.
    pub place: Option<Place>,
    /// Base pages.
    pub pages: u32,
    /// The frequency of its record.
    pub freq: u32,
    /// Time since its last access, in ms.
    pub age_ms: u32,
    /// How it ended.
    pub outcome: Outcome,
}

/// A ring of the last decisions. Clones are the same journal: who asks it need not wait for the end
/// of a pass.
#[derive(Debug, Clone, Default)]
pub struct Journal(Arc<Mutex<VecDeque<Decision>>>);

impl Journal {
    /// Adds a decision and drops the oldest if the ring is full.
    pub fn push(&self, decision: Decision) {
        let mut ring = self.ring();
        if ring.len() == CAPACITY {
            ring.pop_front();
        }
        ring.push_back(decision);
    }

    /// The newest decisions, as many as `count`, the newest first.
    pub fn newest(&self, count: usize) -> Vec<Decision> {
        self.ring().iter().rev().take(count).copied().collect()
    }

    /// The newest decision about a page, by its old PFN or by its place.
    pub fn about(&self, pfn: Option<Pfn>, place: Option<Place>) -> Option<Decision> {
        let is_meant = |d: &&Decision| {
            let inside = |asked: Place| {
                d.place.is_some_and(|place| {
                    let bytes = (d.pages as u64) << 12;
                    place.owner == asked.owner
                        && (place.address..place.address + bytes).contains(&asked.address)
                })
            };
            pfn == Some(d.pfn) || place.is_some_and(inside)
        };
        self.ring().iter().rev().find(is_meant).copied()
    }

    fn ring(&self) -> MutexGuard<'_, VecDeque<Decision>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
