//! Source `hw_sample`: accesses that the CPUs sample, with their physical addresses.
//!
//! See README.md in this folder for how it works, what it costs and when it is blind.

mod fake;
#[cfg(feature = "kernel")]
mod kernel;
mod period;

use std::time::Duration;

use crate::{Descriptor, Kind};

/// The entry of [`crate::SOURCES`].
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "hw_sample",
    bit: 0x2,
    doc: "Samples of the CPU's own (AMD IBS, Intel PEBS): a small share of all accesses that \
          memory served, each with its physical address and its CPU.",
    kind: Kind::Other,
    tunables: &[],
    fake: fake::fake,
    #[cfg(feature = "kernel")]
    on_kernel: kernel::ON_KERNEL,
};

/// Between two looks. Short beside the 256 ms by which a report may be late, and long enough that
/// an idle daemon stays idle.
const DRAIN_EVERY: Duration = Duration::from_millis(50);

/// Between two looks at the cost. Long beside a drain, short beside the kernel's own second.
const ADAPT_EVERY: Duration = Duration::from_millis(500);
