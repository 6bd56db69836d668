//! Source `app_hint`: applications say which of their memory they will use.
//!
//! See README.md in this folder for how it works, what it costs and when it is blind.

#[cfg(feature = "kernel")]
mod kernel;

use crate::fake::{Event, EventFake};
use crate::{Descriptor, Kind};

/// The entry of [`crate::SOURCES`].
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "app_hint",
    bit: 0x20,
    doc: "Hints of applications: a process says on a socket which of its memory it will use.",
    kind: Kind::Other,
    tunables: &[],
    fake: |table, config| {
        EventFake::boxed(
            &DESCRIPTOR,
            |event, config| (event == Event::Hint).then_some(config.rule),
            table,
            config,
        )
    },
    #[cfg(feature = "kernel")]
    on_kernel: kernel::ON_KERNEL,
};
