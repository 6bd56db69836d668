//! Patches 1-43: the period depends on whether a thread is where its memory is, and no more on how
//! many faults it had.

use super::{Descriptor, Policy, cpuone};
use crate::sockets::follow::Follow;

pub(super) const POLICY: Policy = Policy {
    is_backing_off: false,
    follow: Follow::MemoryAndAdapt,
    ..cpuone::POLICY
};

pub(super) const DESCRIPTOR: Descriptor = Descriptor {
    name: "adaptscan",
    doc: "The same, and scans more often while threads are not where their memory is.",
    policy: POLICY,
};
