//! How an attempt to move a page can end, and counting it by its reason.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! outcomes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $sentence:literal;)+) => {
        /// How an attempt to move one folio ended. A refusal is an outcome, never an error.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(Serialize, Deserialize, JsonSchema)]
        pub enum Outcome { $($(#[$doc])* #[serde(rename = $name)] $variant,)+ }

        impl Outcome {
            /// All outcomes, in the order of reports.
            pub const ALL: &[Outcome] = &[$(Outcome::$variant,)+];

            /// The name used in counters.
            pub fn name(self) -> &'static str {
                match self { $(Outcome::$variant => $name,)+ }
            }

            /// Why, as a sentence for an operator.
            pub fn sentence(self) -> &'static str {
                match self { $(Outcome::$variant => $sentence,)+ }
            }
        }
    };
}

outcomes! {
    /// It is in the top tier now.
    Moved = "moved", "it was promoted";
    /// A dry run: it would have been handed to the kernel.
    WouldMove = "would_move", "it would be promoted, but this is a dry run";
    /// It lies in another top-tier node already.
    MovedAlready = "moved_already", "it was not in the lower tier any more";
    /// The process or its mapping of the page is gone; the file is, or the page left its cache.
    Gone = "gone", "its process, mapping or file was gone before it could be moved";
    /// The kernel could not isolate or unmap it: pinned, locked, under writeback.
    Busy = "busy", "the kernel found it busy (pinned, locked or under writeback)";
    /// Mapped by several processes and the kernel would not move it for one.
    Shared = "shared", "several processes map it and the kernel would not move it";
    /// The target node had no free page.
    NoMemory = "no_memory", "the target node had no free page";
    /// pghot may not move this process's memory, or open this file.
    Denied = "denied", "pghot lacks the permission to move this process's memory or to open this \
              file";
    /// The target node is offline, or the process's cpuset does not allow it.
    TargetRefused = "target_refused", "the target node is offline or outside the process's cpuset";
    /// The kernel refused its owner all targets a moment ago, and was not asked again.
    NotAllowed = "not_allowed", "its process may not use any top-tier node";
    /// The operator keeps pghot away from its owner.
    Excluded = "excluded", "a [[policy]] in the config file excludes its process or cgroup";
    /// Another error of the kernel.
    Failed = "failed", "the kernel refused with an unexpected error";
    /// Unresolved: the page is free, or freed and in a per-CPU list.
    Free = "free", "the page was free by then";
    /// Unresolved: a KSM page belongs to no single mapping.
    Ksm = "ksm", "it is a KSM page, which pghot does not move";
    /// Unresolved: slab, page table, driver or other kernel memory.
    Kernel = "kernel", "it is the kernel's own memory, which cannot move";
    /// Page cache of something that pghot cannot open: a block device, a file system without file
    /// handles or with handles of a kind that pghot does not know, a file without a mount.
    Unopenable = "unopenable", "no process maps it, and pghot cannot open its file";
    /// Unresolved: no page-table entry was found within the bounded search.
    NotFound = "not_found", "no process was found to map it within the bounded search";
}

impl Outcome {
    /// The sentence with the name, by which metrics and documents have it.
    pub fn named(self) -> String {
        format!("{} ({})", self.sentence(), self.name())
    }

    /// The page is settled and its record is used up. Otherwise the page keeps its history and is
    /// tried again while it stays hot.
    pub fn settles(self) -> bool {
        use Outcome::*;
        match self {
            Moved | WouldMove | MovedAlready | Gone | Free | Ksm | Kernel | Unopenable
            | NotAllowed | Excluded => true,
            Busy | Shared | NoMemory | Denied | TargetRefused | Failed | NotFound => false,
        }
    }

    /// The kernel was asked to move the page and did not.
    pub fn is_refusal(self) -> bool {
        use Outcome::*;
        matches!(
            self,
            Busy | Shared | NoMemory | Denied | TargetRefused | Failed
        )
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How many base pages ended in each outcome.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "BTreeMap<Outcome, u64>", into = "BTreeMap<Outcome, u64>")]
#[schemars(with = "BTreeMap<Outcome, u64>")]
pub struct Tally([u64; Outcome::ALL.len()]);

impl Tally {
    /// Counts `pages` base pages.
    pub fn add(&mut self, outcome: Outcome, pages: u64) {
        self.0[outcome as usize] += pages;
    }

    /// Base pages that ended so.
    pub fn get(&self, outcome: Outcome) -> u64 {
        self.0[outcome as usize]
    }

    /// Adds another tally.
    pub fn merge(&mut self, other: &Tally) {
        self.0.iter_mut().zip(other.0).for_each(|(a, b)| *a += b);
    }

    /// Base pages that the kernel was asked to move and did not.
    pub fn refusals(&self) -> u64 {
        Outcome::ALL
            .iter()
            .filter(|o| o.is_refusal())
            .map(|&o| self.get(o))
            .sum()
    }

    /// All outcomes with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Outcome, u64)> + '_ {
        Outcome::ALL.iter().map(|&o| (o, self.get(o)))
    }
}

impl From<Tally> for BTreeMap<Outcome, u64> {
    fn from(tally: Tally) -> Self {
        tally.iter().collect()
    }
}

impl From<BTreeMap<Outcome, u64>> for Tally {
    fn from(pages: BTreeMap<Outcome, u64>) -> Self {
        let mut tally = Tally::default();
        pages
            .into_iter()
            .for_each(|(outcome, n)| tally.add(outcome, n));
        tally
    }
}
