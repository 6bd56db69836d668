//! Patches 1-32: faults one level up are handled, marking and migration have limits, scans become
//! rarer with every fault, and a page moves only if the same node accessed it twice in a row.

use super::{Descriptor, Policy, Whole, moron};
use crate::sockets::memory::Filter;

pub(super) const POLICY: Policy = Policy {
    filter: Filter::MoveIfSeenTwice,
    whole: Whole::Handles,
    is_limited: true,
    period_factor: 1.0,
    is_backing_off: true,
    ..moron::POLICY
};

pub(super) const DESCRIPTOR: Descriptor = Descriptor {
    name: "twostage",
    doc: "Migrates a page that the same node accessed twice, within limits, and scans ever less.",
    policy: POLICY,
};
