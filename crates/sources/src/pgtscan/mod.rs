//! Source `pgtscan`: accessed bits in the page tables of processes. Clear, wait, read.
//!
//! See README.md in this folder for how it works, what it costs and when it is blind.

mod adapt;
mod fake;
#[cfg(feature = "kernel")]
mod kernel;

use crate::{Descriptor, Kind};

/// The entry of [`crate::SOURCES`].
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "pgtscan",
    bit: 0x4,
    doc: "Accessed bits in page tables: cleared now and then for one process after another, and \
          read half a second later.",
    kind: Kind::PageTables,
    fake: fake::fake,
    #[cfg(feature = "kernel")]
    on_kernel: kernel::ON_KERNEL,
};
