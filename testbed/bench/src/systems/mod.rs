//! The systems that are compared.

use std::path::PathBuf;

use anyhow::Result;
use pghot_testbed::{Vm, program};

mod damon;
mod memtierd;
mod numab2;
mod pghot;

/// A system under test.
pub struct System {
    /// Its name on the command line and in tables.
    pub name: &'static str,
    /// What it is, in one sentence.
    pub doc: &'static str,
    /// Where the workload's memory starts.
    pub home: Home,
    /// A program that has to be fetched for it; see `testbed/setup.sh --bench`.
    pub program: Option<&'static str>,
    /// Starts it in a guest whose balancing is off.
    pub start: fn(&Vm) -> Result<Box<dyn Running>>,
}

/// Where a workload's memory starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// In the lower tier, but for what the workload wants elsewhere.
    Lower,
    /// In the top tier: a bound that no system can beat.
    Upper,
}

/// A system at work.
pub trait Running {
    /// Ends it; the guest is as before, but for pages that were moved.
    fn stop(self: Box<Self>) -> Result<()>;
}

struct Nothing;

impl Running for Nothing {
    fn stop(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

fn nothing(_: &Vm) -> Result<Box<dyn Running>> {
    Ok(Box::new(Nothing))
}

/// All of them. The first is what the others are compared with.
pub static SYSTEMS: &[System] = &[
    System {
        name: "none",
        doc: "No balancing: pages stay where they are.",
        home: Home::Lower,
        program: None,
        start: nothing,
    },
    System {
        name: "pghot",
        doc: "pghot with freq_threshold 1, as in the kernel proposal's benchmarks, and with the source page_cache.",
        home: Home::Lower,
        program: None,
        start: pghot::start,
    },
    System {
        name: "numab2",
        doc: "The kernel's own tiering: numa_balancing=2, with demotion.",
        home: Home::Lower,
        program: None,
        start: numab2::start,
    },
    System {
        name: "damon",
        doc: "DAMON's migrate_hot in the lower tier and migrate_cold in the top tier, set up as its authors do.",
        home: Home::Lower,
        program: None,
        start: damon::start,
    },
    System {
        name: "memtierd",
        doc: "memtierd with its heat policy and soft-dirty tracker, as in its authors' tests.",
        home: Home::Lower,
        program: Some("memtierd"),
        start: memtierd::start,
    },
    System {
        name: "near",
        doc: "All memory in the top tier from the start: a bound.",
        home: Home::Upper,
        program: None,
        start: nothing,
    },
];

impl System {
    /// What has to be in the guest's `/bin` besides what is always there. Fails with a sentence if it
    /// was not fetched.
    pub fn binaries(&self) -> Result<Vec<PathBuf>> {
        let programs = self.program.iter();
        Ok(programs
            .map(|name| program(name))
            .collect::<Result<_, _>>()?)
    }
}

/// The system of that name.
pub fn find(name: &str) -> Option<&'static System> {
    SYSTEMS.iter().find(|system| system.name == name)
}

const DEMOTION: &str = "/sys/kernel/mm/numa/demotion_enabled";

/// Has the kernel demote pages when the top tier is short of memory; every system may count on it.
pub fn allow_demotion(vm: &Vm) -> Result<()> {
    Ok(vm.write(DEMOTION, "1")?)
}
