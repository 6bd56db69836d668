//! Patches 1-3: counters only. Pages stay where they were first touched.

use super::{Descriptor, Policy, Whole};
use crate::sockets::follow::Follow;
use crate::sockets::memory::Filter;

pub(super) const POLICY: Policy = Policy {
    is_marking: false,
    filter: Filter::Stay,
    whole: Whole::Clears,
    is_limited: false,
    period_factor: 2.0,
    is_backing_off: false,
    is_flushing: true,
    follow: Follow::Never,
};

pub(super) const DESCRIPTOR: Descriptor = Descriptor {
    name: "stats",
    doc: "No balancing.",
    policy: POLICY,
};
