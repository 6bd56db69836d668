//! The systems that are compared: what moves pages while a workload runs.

use std::path::PathBuf;

use anyhow::{Context, Result};
use pghot_testbed::{Daemon, Vm, program};
use serde_json::Value;

mod damon;
mod memtierd;

/// A system under test.
pub struct System {
    /// Its name on the command line and in tables.
    pub name: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// How it is set up, in short.
    how: &'static str,
    /// What it is, in one sentence.
    pub doc: &'static str,
    /// Where the workload's memory starts.
    pub home: Home,
    /// A program that has to be fetched for it; see `testbed/setup.sh --bench`.
    pub program: Option<&'static str>,
    /// Of its command, if it is one.
    flags: &'static [&'static str],
    start: fn(&Vm, &System) -> Result<Box<dyn Running>>,
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
    /// What it says of itself, if it says anything.
    fn status(&self) -> Result<Option<Value>> {
        Ok(None)
    }

    /// Ends it; the guest is as before, but for pages that were moved.
    fn stop(self: Box<Self>) -> Result<()>;
}

/// All of them. The first is what the others are compared with.
pub static SYSTEMS: &[System] = &[
    System {
        name: "none",
        title: "no balancing",
        how: "numa_balancing=0",
        doc: "No balancing: pages stay where they are.",
        home: Home::Lower,
        program: None,
        flags: &[],
        start: nothing,
    },
    System {
        name: "numab2",
        title: "numa_balancing=2",
        how: "kernel defaults",
        doc: "The kernel's own tiering: numa_balancing=2, with demotion.",
        home: Home::Lower,
        program: None,
        flags: &[],
        start: numa_balancing,
    },
    System {
        name: "pghot",
        title: "pghot",
        how: "pghot run",
        doc: "pghot as it is installed.",
        home: Home::Lower,
        program: None,
        flags: &[],
        start: daemon,
    },
    System {
        name: "pghot-tuned",
        title: "pghot, tuned",
        how: "pghot run",
        doc: "pghot with freq_threshold 1, as in the kernel proposal's benchmarks.",
        home: Home::Lower,
        program: None,
        flags: &["--freq-threshold", "1"],
        start: daemon,
    },
    System {
        name: "damon",
        title: "DAMON",
        how: "its authors' sample",
        doc: "DAMON's migrate_hot in the lower tier and migrate_cold in the top tier, set up as \
              its authors do.",
        home: Home::Lower,
        program: None,
        flags: &[],
        start: |vm, _| damon::start(vm, &damon::SAMPLE),
    },
    System {
        name: "damon-quick",
        title: "DAMON, quick",
        how: "its authors' sample, every 100 ms",
        doc: "DAMON as its authors set it up, but it acts every 100 ms and not once a second.",
        home: Home::Lower,
        program: None,
        flags: &[],
        start: |vm, _| damon::start(vm, &damon::QUICK),
    },
    System {
        name: "damon-fine",
        title: "DAMON, fine",
        how: "its authors' sample, 2,000 to 10,000 regions",
        doc: "DAMON as its authors set it up, but with at least 2,000 regions in a node.",
        home: Home::Lower,
        program: None,
        flags: &[],
        start: |vm, _| damon::start(vm, &damon::FINE),
    },
    System {
        name: "damon-quick-fine",
        title: "DAMON, quick and fine",
        how: "its authors' sample, every 100 ms, 2,000 to 10,000 regions",
        doc: "DAMON with both changes.",
        home: Home::Lower,
        program: None,
        flags: &[],
        start: |vm, _| damon::start(vm, &damon::QUICK_FINE),
    },
    System {
        name: "memtierd",
        title: "memtierd",
        how: "its authors' test",
        doc: "memtierd with its heat policy and soft-dirty tracker, as in its authors' tests.",
        home: Home::Lower,
        program: Some("memtierd"),
        flags: &[],
        start: |vm, _| memtierd::start(vm),
    },
    System {
        name: "near",
        title: "all near",
        how: "a bound",
        doc: "All memory in the top tier from the start: a bound.",
        home: Home::Upper,
        program: None,
        flags: &[],
        start: nothing,
    },
];

impl System {
    /// What has to be in the guest's `/bin` besides what is always there. Fails with a sentence if
    /// it was not fetched.
    pub fn binaries(&self) -> Result<Vec<PathBuf>> {
        let programs = self.program.iter();
        Ok(programs
            .map(|name| program(name))
            .collect::<Result<_, _>>()?)
    }

    /// How it is set up, in short; of a command, with its flags.
    pub fn how(&self) -> String {
        [&[self.how], self.flags].concat().join(" ")
    }

    /// Starts it, in a guest in which no other is at work.
    pub fn start(&self, vm: &Vm) -> Result<Box<dyn Running>> {
        // Through 0: that makes the kernel forget the hot threshold that it adapted before.
        vm.write(NUMA_BALANCING, "0")?;
        (self.start)(vm, self)
    }
}

/// The system of that name.
pub fn find(name: &str) -> Option<&'static System> {
    SYSTEMS.iter().find(|system| system.name == name)
}

/// Whether it is a bound that no system can beat.
pub fn is_bound(name: &str) -> bool {
    find(name).is_some_and(|system| system.home == Home::Upper)
}

const NUMA_BALANCING: &str = "/proc/sys/kernel/numa_balancing";
const DEMOTION: &str = "/sys/kernel/mm/numa/demotion_enabled";

/// Has the kernel demote pages when the top tier is short of memory; every system may count on it.
pub fn allow_demotion(vm: &Vm) -> Result<()> {
    Ok(vm.write(DEMOTION, "1")?)
}

struct Nothing;

impl Running for Nothing {
    fn stop(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

fn nothing(_: &Vm, _: &System) -> Result<Box<dyn Running>> {
    Ok(Box::new(Nothing))
}

fn daemon(vm: &Vm, system: &System) -> Result<Box<dyn Running>> {
    Ok(Box::new(Daemon::start(vm, system.flags)?))
}

impl Running for Daemon {
    fn status(&self) -> Result<Option<Value>> {
        Ok(Some(Daemon::status(self)?))
    }

    fn stop(self: Box<Self>) -> Result<()> {
        let ended = Daemon::stop(*self);
        ended.context("pghot did not end well")?;
        Ok(())
    }
}

/// The kernel's tiering, which is on.
struct NumaBalancing(Vm);

fn numa_balancing(vm: &Vm, _: &System) -> Result<Box<dyn Running>> {
    vm.write(NUMA_BALANCING, "2")?;
    Ok(Box::new(NumaBalancing(vm.clone())))
}

impl Running for NumaBalancing {
    fn stop(self: Box<Self>) -> Result<()> {
        Ok(self.0.write(NUMA_BALANCING, "0")?)
    }
}
