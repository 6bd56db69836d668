//! The kernels that were compared, one file each; [`POLICIES`] lists them. Each is the one before
//! and something more.
//!
//! The two competitors, schednuma and autonuma, are not modelled: what exactly was measured of them
//! is not known well enough.

mod adaptscan;
mod cpuone;
mod lessflush;
mod moron;
mod stats;
mod twostage;

use super::follow::Follow;
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
    stats::DESCRIPTOR,
    moron::DESCRIPTOR,
    twostage::DESCRIPTOR,
    lessflush::DESCRIPTOR,
    cpuone::DESCRIPTOR,
    adaptscan::DESCRIPTOR,
];

/// The kernel of that name.
pub fn find(name: &str) -> Option<&'static Descriptor> {
    POLICIES.iter().find(|descriptor| descriptor.name == name)
}
