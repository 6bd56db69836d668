//! What waits for room, and what else the migrators know.

use std::collections::BTreeMap;

use pghot_hotness::Nid;

use super::HugeFault;
use crate::exchange::{FaultTimes, Outcomes};
use crate::{Outcome, Totals, Waiting};

/// What the migrators know.
#[derive(Debug, Clone, Default)]
pub struct Demand {
    /// By target, of all migrators together.
    pub waiting: BTreeMap<Nid, Waiting>,
    /// Hint faults since the start.
    pub faults: FaultTimes,
    /// What came of promotion since the start.
    pub outcomes: Outcomes,
    /// The nodes of the lower tier.
    pub lower_tier: Vec<Nid>,
    /// Whether more pages are marked than it takes to notice that something has changed.
    pub marks_enough: bool,
    /// Whether the scanner rests, so that no hint faults come whatever is touched.
    pub scanner_rests: bool,
    /// Hint faults of huge pages since the last pass.
    pub huge_faults: Vec<HugeFault>,
}

impl Demand {
    /// Adds what one migrator knows: what waited in its last pass, and what it has done.
    pub fn add(&mut self, waiting: &BTreeMap<Nid, Waiting>, totals: &Totals) {
        for (&nid, here) in waiting {
            *self.waiting.entry(nid).or_default() += *here;
        }
        self.outcomes.promoted += totals.outcomes.get(Outcome::Moved);
        self.outcomes.returned += totals.returned_pages;
    }
}
