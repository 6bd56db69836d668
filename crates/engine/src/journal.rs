//! The last decisions, page by page: what `pghot explain` tells.

use std::collections::VecDeque;

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

/// A ring of the last decisions.
#[derive(Debug, Default)]
pub struct Journal {
    ring: VecDeque<Decision>,
}

impl Journal {
    /// Adds a decision and drops the oldest if the ring is full.
    pub fn push(&mut self, decision: Decision) {
        if self.ring.len() == CAPACITY {
            self.ring.pop_front();
        }
        self.ring.push_back(decision);
    }

    /// The newest decisions first.
    pub fn newest(&self) -> impl Iterator<Item = &Decision> {
        self.ring.iter().rev()
    }

    /// The newest decision about a page, by its old PFN or by its place.
    pub fn about(&self, pfn: Option<Pfn>, place: Option<Place>) -> Option<&Decision> {
        self.newest().find(|d| {
            let inside = |asked: Place| {
                d.place.is_some_and(|place| {
                    let bytes = (d.pages as u64) << 12;
                    place.owner == asked.owner
                        && (place.address..place.address + bytes).contains(&asked.address)
                })
            };
            pfn == Some(d.pfn) || place.is_some_and(inside)
        })
    }
}
