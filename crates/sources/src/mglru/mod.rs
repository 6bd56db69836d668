//! Source `mglru`: makes the kernel's multi-generational LRU age the lower tier, and sees which
//! pages it finds young.
//!
//! See README.md in this folder for how it works, what it costs and when it is blind.

mod fake;
#[cfg(feature = "kernel")]
pub(crate) mod kernel;
mod schedule;

use crate::{Descriptor, Kind};

/// The entry of [`crate::SOURCES`].
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "mglru",
    bit: 0x10,
    doc: "Accessed bits by MGLRU: the kernel ages the lower tier on demand, control group by \
          control group, and each page that it finds accessed since the last time is seen.",
    kind: Kind::PageTables,
    tunables: &[],
    fake: fake::fake,
    #[cfg(feature = "kernel")]
    on_kernel: kernel::ON_KERNEL,
};
