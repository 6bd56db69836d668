//! Source `pgtscan`: accessed bits in the page tables of processes. Clear, wait, read.
//!
//! See README.md in this folder for how it works, what it costs and when it is blind.

mod adapt;
mod fake;
#[cfg(feature = "kernel")]
mod kernel;

use pghot_engine::{Kept, Kind as Values, Tunable};

use crate::budget::PERCENT;
use crate::{Descriptor, Kind};

/// The entry of [`crate::SOURCES`].
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "pgtscan",
    bit: 0x4,
    doc: "Accessed bits in page tables: cleared now and then for one process after another, and \
          read half a second later.",
    kind: Kind::PageTables,
    tunables: &[SCAN_STALL_MAX_MS, SCAN_CPU_MAX_PERCENT],
    fake: fake::fake,
    #[cfg(feature = "kernel")]
    on_kernel: kernel::ON_KERNEL,
};

/// A series that began is finished, so what may be under way at once is bounded: about 0.3 s of
/// work.
const UNDER_WAY_MAX_ENTRIES: u64 = 1 << 20;

/// How long clearing may hold a process's mmap lock; a recording keeps to it, too.
pub const SCAN_STALL_MAX_MS: Tunable = Tunable {
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

const SCAN_CPU_MAX_PERCENT: Tunable = Tunable {
    name: "scan_cpu_max_percent",
    unit: "percent",
    kind: Values::Number,
    doc: "The CPU time that pgtscan may take, in percent of one CPU; what it does not take is \
          saved up for 10 s. 5 covers about 2 GiB of base pages a second, 1 TiB in nine minutes. \
          More finds the hot pages of a large machine sooner, and disturbs its programs more.",
    default: |_| PERCENT.into(),
    range: |_| (1, 100),
    kept: Kept::ByName,
};
