//! Source `hint_fault`: the kernel's NUMA hint faults, seen where the kernel counts them.
//!
//! See README.md in this folder for how it works, what it costs and when it is blind.

mod bursts;
mod fake;
#[cfg(feature = "kernel")]
mod kernel;

use crate::{Descriptor, Kind};

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

#[cfg(test)]
mod tests {
    use pghot_engine::exchange::{FAULT_CLASSES, FaultTimes};

    /// A number of the program.
    pub(super) fn defined(name: &str) -> u64 {
        let program = include_str!("hint_fault.bpf.c");
        let mut lines = program.lines().map(str::split_whitespace);
        let line = lines.find_map(|mut words| {
            (words.next() == Some("#define") && words.next() == Some(name))
                .then(|| words.next().unwrap())
        });
        line.unwrap().parse().unwrap()
    }

    #[test]
    fn the_program_counts_in_the_classes_of_the_engine() {
        assert_eq!(defined("FAULT_CLASSES"), FAULT_CLASSES as u64);
        let mut faults = FaultTimes::default();
        faults.count((1 << defined("NARROWEST_SHIFT")) - 1);
        faults.count(1 << defined("NARROWEST_SHIFT"));
        assert_eq!(faults.0[..2], [1, 1]);
    }
}
