//! Patches 1-35: hint faults flush no TLB. What migration flushes stays.

use super::{Descriptor, Policy, twostage};

pub(super) const POLICY: Policy = Policy {
    is_flushing: false,
    ..twostage::POLICY
};

pub(super) const DESCRIPTOR: Descriptor = Descriptor {
    name: "lessflush",
    doc: "The same with cheaper hint faults.",
    policy: POLICY,
};
