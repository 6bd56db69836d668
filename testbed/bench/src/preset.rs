//! What is compared if nothing else is said.

use clap::ValueEnum;

use crate::systems::{SYSTEMS, System};
use crate::workloads::{self, Scope, Workload};

/// A comparison by its name. What a command line says goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// All workloads under all systems, three runs of each
    Full,
    /// One run of a workload that gains by moving and one that does not, in ten minutes
    Quick,
    /// One workload under the kernel's tiering and pghot, in one guest: what `make demo` shows
    Demo,
}

/// Workloads of `quick`: a hot set among cold pages, and one pass after the other over everything.
const QUICK_WORKLOADS: [&str; 2] = ["skewed", "stream"];

/// Those of `quick` and of the demo: what a user would choose from, with default settings.
const DEFAULTS: [&str; 3] = ["none", "numab2", "pghot"];

/// Points of DAMON's sweep that `full` leaves out.
pub const SWEPT: [&str; 3] = ["damon-quick", "damon-fine", "damon-quick-fine"];

impl Preset {
    /// The machine of all cells: one node of each tier; in the demo 1 GiB a node, so that the
    /// kernel's free-space shortcut stays out of the picture.
    pub fn machine(self) -> &'static str {
        match self {
            Preset::Full | Preset::Quick => "bench",
            Preset::Demo => "tiered3",
        }
    }

    /// The kernel, if not the newest.
    pub fn kernel(self) -> Option<&'static str> {
        (self == Preset::Demo).then_some("6.12")
    }

    /// Its workloads.
    pub fn workloads(self) -> impl Iterator<Item = Workload> {
        workloads::all().filter(move |workload| match self {
            Preset::Full => workload.scope != Scope::Nothing,
            Preset::Quick => QUICK_WORKLOADS.contains(&workload.name),
            Preset::Demo => workload.name == "hotset",
        })
    }

    /// Its systems.
    pub fn systems(self) -> impl Iterator<Item = &'static System> {
        SYSTEMS.iter().filter(move |system| match self {
            Preset::Full => !SWEPT.contains(&system.name),
            Preset::Quick | Preset::Demo => DEFAULTS.contains(&system.name),
        })
    }

    /// Runs of each.
    pub fn seeds(self) -> u64 {
        match self {
            Preset::Full | Preset::Demo => 3,
            Preset::Quick => 1,
        }
    }

    /// How many times slower than the host's the guests' clocks run. By ten, an emulated kernel's
    /// work and a program's accesses are in the proportion of a machine's; the demo has no witness
    /// and is watched by somebody.
    pub fn dilation(self) -> u32 {
        match self {
            Preset::Full | Preset::Quick => 10,
            Preset::Demo => 1,
        }
    }

    /// How long each run takes by the guest's clock, in s: in the whole matrix so long that who
    /// acts once a second has acted twenty times; in `quick` a third of that.
    pub fn guest_s(self) -> u64 {
        match self {
            Preset::Full | Preset::Demo => 20,
            Preset::Quick => 6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_is_three_systems_at_one_workload() {
        let systems: Vec<_> = Preset::Demo.systems().map(|system| system.name).collect();
        assert_eq!(systems, DEFAULTS);
        assert_eq!(Preset::Demo.workloads().count(), 1);
        assert!(Preset::Quick.workloads().count() < Preset::Full.workloads().count());
        assert!(Preset::Full.systems().any(|system| system.name == "near"));
    }

    #[test]
    fn the_sweep_is_of_systems_that_full_leaves_out() {
        let left_out = SYSTEMS.len() - Preset::Full.systems().count();
        assert_eq!(left_out, SWEPT.len());
    }
}
