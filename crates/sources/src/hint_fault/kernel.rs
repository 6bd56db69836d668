//! The source on a kernel: a program where hint faults are counted, and the settings that make the
//! kernel produce them.

use std::collections::BTreeMap;

use pghot_engine::demoter::HugeFault;
use pghot_engine::exchange::{FAULT_CLASSES, FaultTimes};
use pghot_engine::marking::{HintFaults, Visits};
use pghot_hotness::mirror;
use pghot_linux::SysRoot;
use pghot_linux::bpf::has_function;
use pghot_linux::hint_fault_knobs::tiering_is_on;
use pghot_linux::keeper::Keeper;
use pghot_linux::probe;

use super::huge::HugeFaults;
use super::{DESCRIPTOR, counting, quick_faults};
use crate::kernel::attach::{Reporter, choose};
use crate::kernel::{Availability, Error, OnKernel, Source, SourceCost, Start};
use crate::{Config, Descriptor, ReadySample, SourceStats};

/// The entry's half that needs a kernel.
pub(super) const ON_KERNEL: OnKernel = OnKernel {
    check,
    start,
    object: Some(OBJECT),
};

/// What it needs of the kernel, by `doctor`'s names.
const NEEDS: &[&str] = &["btf", "numa_balancing", "promote_rate_limit"];

pub(crate) static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/hint_fault.bpf.o"));

mirror! {
    /// What the program counts.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct HintFaultStats = "source_stats" {
        common: SourceStats,
        quick_faults: u64,
        burst_faults: u64,
        left_faults: u64,
        seldom_visited_faults: u64,
        above_faults: u64,
        fault_times: [u64; FAULT_CLASSES],
    }
}

struct HintFault {
    reporter: Reporter,
    huge: HugeFaults,
    _links: Vec<libbpf_rs::Link>,
    /// A dry run on a host whose kernel promotes must not stop it; the source only observes.
    only_observes: bool,
}

/// Where the kernel counts hint faults, with the page at hand.
const HOOK: &str = "numa_migrate_check";

/// Where the kernel's scan marks a part of a mapping; not every kernel need have it.
const MARK_HOOK: &str = "change_prot_numa";

fn check(root: &SysRoot) -> Availability {
    let needed = probe::FEATURES.iter().filter(|f| NEEDS.contains(&f.id));
    let missing = needed
        .map(|f| (f.ask)(root))
        .find(|a| *a != Availability::Available);
    match missing {
        Some(missing) => missing,
        None if has_function(root, HOOK) == Some(false) => Availability::Unavailable(format!(
            "the kernel has no function {HOOK}, which tells the page of a hint fault: use Linux \
             6.12 or later, or another hotness source"
        )),
        None => Availability::Available,
    }
}

fn start(start: &mut Start<'_>) -> Result<Box<dyn Source>, Error> {
    let at_marks = match has_function(start.root, MARK_HOOK) {
        Some(true) => vec!["marking", "marked"],
        _ => Vec::new(),
    };
    let rule = counting(&start.config);
    let mut reporter = Reporter::load_with(OBJECT, start.maps, &rule, |object| {
        for program in &at_marks {
            choose(object, program);
        }
        Ok(())
    })?;
    reporter.set_data(".data.hz", &kernel_hz().unwrap_or(0).to_ne_bytes())?;
    set_quick_faults(&mut reporter, &start.config)?;
    let mut links = Vec::new();
    for program in at_marks.iter().chain(&["hint_fault"]) {
        links.push(reporter.attach(program)?);
    }
    Ok(Box::new(HintFault {
        huge: HugeFaults::new(reporter.map_array("huge_faults")?),
        reporter,
        _links: links,
        only_observes: start.dry_run && tiering_is_on(start.root)?,
    }))
}

/// Jiffies per second (`CONFIG_HZ`), which kernels tell nobody: but the coarse clocks go by one
/// jiffy, and say so. `None` if this one does not; then no fault counts as quick.
fn kernel_hz() -> Option<u32> {
    let mut jiffy = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `jiffy` is a valid place for the result.
    let failed = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &mut jiffy) } != 0;
    // At HZ=300 a jiffy is 3,333,333 ns: rounded, the quotient is exact for every choice of HZ.
    let hz = (1_000_000_000 + jiffy.tv_nsec / 2).checked_div(jiffy.tv_nsec)?;
    u32::try_from(hz)
        .ok()
        .filter(|_| !failed && jiffy.tv_sec == 0)
}

fn set_quick_faults(reporter: &mut Reporter, config: &Config) -> Result<(), Error> {
    reporter.set_data(".data.quick", quick_faults(config).bytes())
}

impl Source for HintFault {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn configure(&mut self, config: &Config) -> Result<(), Error> {
        self.reporter.set_rule(&counting(config))?;
        set_quick_faults(&mut self.reporter, config)
    }

    fn stats(&self) -> Result<SourceStats, Error> {
        self.reporter.stats()
    }

    fn drain_ready(&mut self, sink: &mut dyn FnMut(ReadySample)) {
        self.reporter.drain_ready(sink);
    }

    fn cost(&self) -> SourceCost {
        self.reporter.cost()
    }

    fn details(&self) -> BTreeMap<String, u64> {
        self.reporter.details::<HintFaultStats>()
    }

    fn hint_faults(&self) -> Option<HintFaults> {
        let stats: HintFaultStats = self.reporter.stats_as().ok()?;
        Some(HintFaults {
            times: FaultTimes(stats.fault_times),
            seldom: stats.seldom_visited_faults,
            above: stats.above_faults,
        })
    }

    fn take_huge_faults(&mut self) -> Vec<HugeFault> {
        self.huge.take()
    }

    fn stand_by(&mut self, keeper: &Keeper, standing_by: bool) -> Result<(), Error> {
        if self.only_observes {
            return Ok(());
        }
        if standing_by {
            keeper.stand_by()?;
        } else {
            keeper.take_faults()?;
        }
        Ok(())
    }

    fn mark(&mut self, keeper: &Keeper, visits: Visits) -> Result<bool, Error> {
        Ok(!self.only_observes && keeper.mark(visits)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_jiffy_is_known_at_once() {
        let hz = kernel_hz().unwrap();
        // The kernel's choices (kernel/Kconfig.hz).
        assert!([100, 250, 300, 1000].contains(&hz), "{hz}");
    }
}
