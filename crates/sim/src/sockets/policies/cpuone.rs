//! Patches 1-42: threads have a home node, and those that are not where their memory is change
//! homes with others.

use super::{Descriptor, Policy, lessflush};
use crate::sockets::follow::Follow;

pub(super) const POLICY: Policy = Policy {
    follow: Follow::Memory,
    ..lessflush::POLICY
};

pub(super) const DESCRIPTOR: Descriptor = Descriptor {
    name: "cpuone",
    doc: "The same, and threads follow their memory.",
    policy: POLICY,
};
