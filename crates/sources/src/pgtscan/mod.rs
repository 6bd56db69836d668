//! Source `pgtscan`: accessed bits in the page tables of processes. Clear, wait, read.
//!
//! See README.md in this folder for how it works, what it costs and when it is blind.

mod adapt;
mod fake;
#[cfg(feature = "kernel")]
mod kernel;

use pghot_engine::{Kept, Kind as Values, Tunable};

use crate::{Descriptor, Kind};

/// The entry of [`crate::SOURCES`].
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "pgtscan",
    bit: 0x4,
    doc: "Accessed bits in page tables: cleared now and then for one process after another, and \
          read half a second later.",
    kind: Kind::PageTables,
    tunables: &[SCAN_STALL_MAX_MS],
    fake: fake::fake,
    #[cfg(feature = "kernel")]
    on_kernel: kernel::ON_KERNEL,
};

const SCAN_STALL_MAX_MS: Tunable = Tunable {
    name: "scan_stall_max_ms",
    unit: "ms",
    kind: Values::Number,
    doc: "The longest that pgtscan may hold a process's mmap lock for writing, while which the \
          process can map nothing new. Where clearing all of its accessed bits at once would take \
          longer, they are cleared by another way, which does not see pages that several processes \
          map.",
    // 200,000 resident pages at 50 ns each. A page fault that reads from a disk takes as long.
    default: |_| 10,
    range: |_| (1, 1000),
    kept: Kept::ByName,
};
