//! Source `page_cache`: files in the page cache that are read and written by system calls.
//!
//! See README.md in this folder for how it works, what it costs and when it is blind.

#[cfg(feature = "kernel")]
pub(crate) mod kernel;

use crate::fake::{Event, EventFake};
use crate::{Descriptor, Kind};

/// The entry of [`crate::SOURCES`].
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "page_cache",
    bit: 0x8,
    doc: "Page cache that no process maps: read(2), write(2) and their relatives on files whose \
          pages are in the lower tier.",
    kind: Kind::CacheReads,
    tunables: &[],
    fake: |table, config| {
        EventFake::boxed(
            &DESCRIPTOR,
            |event, config| (event == Event::CacheRead).then_some(config.rule),
            table,
            config,
        )
    },
    #[cfg(feature = "kernel")]
    on_kernel: kernel::ON_KERNEL,
};
