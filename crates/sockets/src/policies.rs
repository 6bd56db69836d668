//! The kernels that were compared, each the one before and something more; [`POLICIES`] lists them.
//!
//! The two competitors, schednuma and autonuma, are not modelled: what exactly was measured of them
//! is not known well enough.

use super::memory::Filter;

/// What a kernel does about pages and threads.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Whether entries are marked at all.
    pub is_marking: bool,
    /// What happens to a page in a hint fault of its own.
    pub filter: Filter,
    /// What happens to the pages below an entry one level up, and when such an entry is marked.
    pub whole: Whole,
    /// Whether a node takes, and has marked, only so many pages in a window.
    pub is_limited: bool,
    /// The next scan is after so many periods.
    pub period_factor: f64,
    /// Whether every hint fault makes the period longer.
    pub is_backing_off: bool,
    /// Whether hint faults flush TLBs.
    pub is_flushing: bool,
    /// Whether threads go where their memory is.
    pub follow: Follow,
}

/// Hint faults on an entry one level up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whole {
    /// It is always marked with the entries below, and a fault just clears the marks.
    Clears,
    /// It is marked if all pages below are on one node, and a fault handles each of them.
    Handles,
}

/// Whether threads go where their memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    /// No.
    Never,
    /// Yes.
    Memory,
    /// Yes, and scans become rarer or more frequent by that.
    MemoryAndAdapt,
}

/// A kernel by its name.
pub struct Descriptor {
    /// As in the published tables.
    pub name: &'static str,
    /// What it is, in one sentence.
    pub doc: &'static str,
    /// What it does.
    pub policy: Policy,
}

/// All of them.
pub const POLICIES: &[Descriptor] = &[
    Descriptor {
        name: "stats",
        doc: "No balancing.",
        policy: STATS,
    },
    Descriptor {
        name: "moron",
        doc: "Migrates a page on reference, which is once per page.",
        policy: MORON,
    },
    Descriptor {
        name: "twostage",
        doc: "Migrates a page that the same node accessed twice, within limits, and scans ever \
              less.",
        policy: TWO_STAGE,
    },
    Descriptor {
        name: "lessflush",
        doc: "The same with cheaper hint faults.",
        policy: LESS_FLUSH,
    },
    Descriptor {
        name: "cpuone",
        doc: "The same, and threads follow their memory.",
        policy: CPU_ONE,
    },
    Descriptor {
        name: "adaptscan",
        doc: "The same, and scans more often while threads are not where their memory is.",
        policy: ADAPT_SCAN,
    },
];

/// Patches 1-3: counters only. Pages stay where they were first touched.
const STATS: Policy = Policy {
    is_marking: false,
    filter: Filter::Stay,
    whole: Whole::Clears,
    is_limited: false,
    period_factor: 2.0,
    is_backing_off: false,
    is_flushing: true,
    follow: Follow::Never,
};

/// Patches 1-24: migrate on reference. A page that faults goes to where it was accessed.
///
/// That happens about once per page: a hint fault from another node splits its huge page, and its
/// entry, still marked, faults by itself. Later its entry is marked together with the one a level
/// up, and the fault on that one clears the marks without a look at the pages, as the patch that
/// changes it says. The published counts agree: 3.37 million pages migrated, 7568 huge pages of 512
/// split, 574 million faults.
const MORON: Policy = Policy {
    is_marking: true,
    filter: Filter::Move,
    ..STATS
};

/// Patches 1-32: faults one level up are handled, marking and migration have limits, scans become
/// rarer with every fault, and a page moves only if the same node accessed it twice in a row.
const TWO_STAGE: Policy = Policy {
    filter: Filter::MoveIfSeenTwice,
    whole: Whole::Handles,
    is_limited: true,
    period_factor: 1.0,
    is_backing_off: true,
    ..MORON
};

/// Patches 1-35: hint faults flush no TLB. What migration flushes stays.
const LESS_FLUSH: Policy = Policy {
    is_flushing: false,
    ..TWO_STAGE
};

/// Patches 1-42: threads have a home node, and those that are not where their memory is change
/// homes with others.
const CPU_ONE: Policy = Policy {
    follow: Follow::Memory,
    ..LESS_FLUSH
};

/// Patches 1-43: the period depends on whether a thread is where its memory is, and no more on how
/// many faults it had.
const ADAPT_SCAN: Policy = Policy {
    is_backing_off: false,
    follow: Follow::MemoryAndAdapt,
    ..CPU_ONE
};

/// The kernel of that name.
pub fn find(name: &str) -> Option<&'static Descriptor> {
    POLICIES.iter().find(|descriptor| descriptor.name == name)
}
