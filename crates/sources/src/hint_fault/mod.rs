//! Source `hint_fault`: the kernel's NUMA hint faults, seen where the kernel counts them.
//!
//! See README.md in this folder for how it works, what it costs and when it is blind.

mod fake;
#[cfg(feature = "kernel")]
pub(crate) mod huge;
#[cfg(feature = "kernel")]
pub(crate) mod kernel;

use pghot_hotness::{QuickFaults, Rule};

use crate::{Config, Descriptor, Kind};

/// The entry of [`crate::SOURCES`].
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "hint_fault",
    bit: 0x1,
    doc: "NUMA hint faults: the kernel unmaps pages of the lower tier now and then, and the next \
          access of each is seen exactly, with its CPU.",
    kind: Kind::HintFaults,
    tunables: &[],
    fake: fake::fake,
    #[cfg(feature = "kernel")]
    on_kernel: kernel::ON_KERNEL,
};

/// By what faults count that are not quick. A fault that comes late takes back what a quick one
/// gave: the limit may have been wider then.
fn counting(config: &Config) -> Rule {
    config.rule.counting()
}

/// Which faults are quick, by the configuration.
fn quick_faults(config: &Config) -> QuickFaults {
    let quick = config.quick_fault;
    let only_quick = !config.leave_hinted;
    let times_ms = (quick.soon_ms, quick.within_ms);
    QuickFaults::new(&config.rule, times_ms, quick.in_bursts, only_quick)
}
