//! A recorded profile as a scenario.
//!
//! A profile tells which pages were touched in each interval, not how often. How often is
//! estimated: a page whose accesses come at random, `a` per interval on average, is touched in a
//! share `f = 1 - exp(-a)` of the intervals, so `a = -ln(1 - f)`, and an interval in which it was
//! touched had `a / f` accesses of it on average. Pages that were touched in every interval all
//! look alike; they get the estimate for half an interval less. How many accesses a process makes
//! follows from its CPU time.

use std::ops::Range;
use std::sync::Arc;

use pghot_profile::{BLOCK_PAGES, Interval, Process, Profile, Touched};
use pghot_workloads::plan::{Pattern, Phase, Plan, Weighted};

use super::spec::{Mode, ProcessSpec, Recorded, Scenario};
use crate::Error;
use crate::copying::spec::MigrationSpec;
use crate::machine::memory::Backing;
use crate::machine::{Costs, KernelSpec, MachineSpec, NodeSpec, PAGES_PER_MIB};

/// Accesses that miss all caches in a second of CPU time, if nobody says otherwise: with 100 ns
/// each, a program waits for memory a fifth of the time.
pub const MISSES_PER_CPU_S: f64 = 2e6;

/// Weights that differ by less are taken for equal: neighbours become one part.
const WEIGHT_STEP: f64 = 0.25;

/// See [`ProcessSpec::mappings`]; a profile does not tell. A small program with a few threads has
/// 17, and servers have more.
const MAPPINGS: u32 = 20;

/// What is not in the profile.
#[derive(Debug, Clone, PartialEq)]
pub struct Assumed {
    /// The machine; see [`machine`].
    pub machine: MachineSpec,
    /// Accesses that miss all caches in a second of CPU time.
    pub misses_per_cpu_s: f64,
}

/// Memory of all processes of a profile, in MiB.
pub fn memory_mib(profile: &Profile) -> u64 {
    profile.processes.iter().map(process_mib).sum()
}

fn process_mib(process: &Process) -> u64 {
    u64::from(process.blocks) * u64::from(BLOCK_PAGES) / PAGES_PER_MIB
}

/// A machine with so much memory in the top tier, and a lower tier that takes all of the profile,
/// as far away as CXL memory is.
pub fn machine(profile: &Profile, top_mib: u64) -> MachineSpec {
    let all_mib = memory_mib(profile);
    // Free memory below the watermarks is nobody's.
    machine_of(top_mib, all_mib + all_mib / 8 + 64)
}

/// A machine of two nodes.
pub(crate) fn machine_of(top_mib: u64, lower_mib: u64) -> MachineSpec {
    let node = |memory_mib: u64, cpus, latency_ns| NodeSpec {
        memory_mib: memory_mib.max(1),
        cpus,
        latency_ns,
        bandwidth_mib_s: None,
        min_free_pages: None,
    };
    MachineSpec {
        // How many CPUs there are does not matter here: each thread has one.
        node: vec![
            node(top_mib, 1, vec![100.0, 250.0]),
            node(lower_mib, 0, Vec::new()),
        ],
        kernel: KernelSpec::default(),
        migration: MigrationSpec::default(),
        costs: Costs::default(),
        page_weight: 1,
    }
}

/// The scenario that a profile makes on a machine. Each process has all of its memory from the
/// beginning, in the top tier as far as it fits; what an interval's work leaves of the interval is
/// waited for.
pub fn scenario(name: &str, profile: &Profile, assumed: &Assumed) -> Result<Scenario, Error> {
    let misses = assumed.misses_per_cpu_s;
    if !(misses.is_finite() && (1.0..=1e9).contains(&misses)) {
        return Err(Error::field(
            "misses",
            format!("{misses} a second are not from 1 to 10^9"),
        ));
    }
    let mut machine = assumed.machine.clone();
    // Before anything is made of so much memory.
    machine.check()?;
    let has: u64 = machine.node.iter().map(|node| node.memory_mib).sum();
    let wanted = memory_mib(profile);
    if wanted > has {
        return Err(Error::field(
            "profile",
            format!("its {wanted} MiB are more than the {has} MiB of the machine"),
        ));
    }
    let top = machine.node.iter().position(NodeSpec::is_top_tier);
    let top = top.ok_or_else(|| Error::field("machine.node", "none has CPUs"))?;
    let near_ns = machine.node[top].latency_ns.get(top).copied();
    machine.costs.compute_ns = (1e9 / misses - near_ns.unwrap_or(0.0)).max(0.0);
    let process = |process: &Process| ProcessSpec {
        memory_mib: process_mib(process),
        threads: threads(profile, process),
        node: top as u32,
        backing: match process.huge_blocks > process.blocks / 2 {
            true => Backing::Thp,
            false => Backing::Anon,
        },
        near_share: Some(1.0),
        mappings: MAPPINGS,
        recorded: Some(Arc::new(recorded(profile, process, misses))),
        ..ProcessSpec::default()
    };
    let recorded_s = f64::from(profile.intervals) * interval_s(profile);
    let scenario = Scenario {
        name: name.to_owned(),
        mode: Mode::Exact,
        seed: 1,
        // Where all memory is far, and the far tier at its end.
        seconds: recorded_s * 10.0 + 60.0,
        slice_us: 1000,
        sample_ms: u64::from(profile.interval_ms).min(10_000_000),
        machine,
        process: profile.processes.iter().map(process).collect(),
    };
    scenario.check()?;
    Ok(scenario)
}

fn interval_s(profile: &Profile) -> f64 {
    f64::from(profile.interval_ms) / 1000.0
}

/// As many as used CPUs at the same time.
fn threads(profile: &Profile, process: &Process) -> u32 {
    let most_us = process
        .intervals
        .iter()
        .map(|interval| interval.cpu_us)
        .max();
    let cpus = most_us.unwrap_or(0) as f64 * 1e-6 / interval_s(profile);
    // Clocks are not exact: a thread that never waits may seem to use a little more than one.
    (cpus - 0.05).ceil().clamp(1.0, 4096.0) as u32
}

/// A phase for each interval of the recording, also for those before and after the process was
/// there.
fn recorded(profile: &Profile, process: &Process, misses_per_cpu_s: f64) -> Recorded {
    let weights = Weights::of(process);
    let idle = Phase {
        pattern: Pattern::Weighted(Arc::default()),
        accesses: 0,
    };
    let last = process
        .intervals
        .last()
        .map_or(0, |interval| interval.number);
    let mut phases = vec![idle; last as usize + 1];
    for interval in &process.intervals {
        phases[interval.number as usize] = phase(interval, &weights, misses_per_cpu_s);
    }
    let least_ns = vec![u64::from(profile.interval_ms) * 1_000_000; phases.len()];
    Recorded {
        plan: Plan {
            near_pages: 0,
            phases,
        },
        least_ns,
    }
}

/// Accesses of each page in an interval in which it is touched.
struct Weights {
    /// In how many intervals each page was touched. Two bytes a page: there may be hundreds of
    /// millions.
    times: Vec<u16>,
    /// By that number.
    accesses: Vec<f64>,
}

impl Weights {
    fn of(process: &Process) -> Weights {
        let mut times = vec![0u16; process.pages() as usize];
        let touched = process.intervals.iter().map(|interval| &interval.touched);
        for run in touched.flat_map(Touched::runs) {
            for times in &mut times[run.start as usize..run.end as usize] {
                *times = times.saturating_add(1);
            }
        }
        let seen = process.intervals.len() as f64;
        let accesses = |times: usize| {
            let share = ((times as f64 - 0.5).max(0.5) / seen).min(1.0 - 0.5 / seen);
            let accesses = -(1.0 - share).ln() / share;
            (accesses / WEIGHT_STEP).round() * WEIGHT_STEP
        };
        let most = times.iter().max().copied().unwrap_or(0);
        Weights {
            times,
            accesses: (0..=usize::from(most)).map(accesses).collect(),
        }
    }

    fn of_page(&self, page: u32) -> f64 {
        self.accesses[usize::from(self.times[page as usize])]
    }
}

fn phase(interval: &Interval, weights: &Weights, misses_per_cpu_s: f64) -> Phase {
    let mut parts: Vec<(Range<u32>, f64)> = Vec::new();
    for run in interval.touched.runs() {
        let mut start = run.start;
        for page in run.clone() {
            let weight = weights.of_page(page);
            if page + 1 == run.end || weights.of_page(page + 1) != weight {
                parts.push((start..page + 1, weight * f64::from(page + 1 - start)));
                start = page + 1;
            }
        }
    }
    let by_cpu = interval.cpu_us as f64 * 1e-6 * misses_per_cpu_s;
    Phase {
        pattern: Pattern::Weighted(Arc::new(Weighted::new(parts))),
        // What was touched was accessed, whatever the CPU clock says, which ticks in 10 ms.
        accesses: (by_cpu as u64).max(interval.touched.pages()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Simulation;

    /// Page 0 to 511 always, a moving window of 100 pages of the rest, on one busy CPU; nothing in
    /// interval 3.
    fn profile() -> Profile {
        let interval = |number: u32| Interval {
            number,
            cpu_us: 1_000_000,
            lower: Touched::default(),
            touched: Touched::of(vec![0..512, 1000 + 100 * number..1100 + 100 * number]),
        };
        Profile {
            kernel: String::new(),
            interval_ms: 1000,
            intervals: 10,
            elapsed_ms: 0,
            disturbed_by: Vec::new(),
            processes: vec![Process {
                name: "x".into(),
                cgroup: String::new(),
                blocks: 8,
                huge_blocks: 0,
                intervals: (0..10).filter(|n| *n != 3).map(interval).collect(),
            }],
        }
    }

    fn run(top_mib: u64, system: &str) -> crate::run::Run {
        let profile = profile();
        let assumed = Assumed {
            machine: machine(&profile, top_mib),
            misses_per_cpu_s: MISSES_PER_CPU_S,
        };
        let scenario = scenario("x", &profile, &assumed).unwrap();
        Simulation::new(&scenario, system, &[])
            .unwrap()
            .finish(&mut |_, _| {})
    }

    #[test]
    fn pages_that_are_always_touched_weigh_more() {
        let profile = profile();
        let weights = Weights::of(&profile.processes[0]);
        let of = |page| weights.of_page(page);
        assert_eq!((of(0), of(1000), of(4000)), (3.0, 1.0, 1.0));
        let plan = recorded(&profile, &profile.processes[0], 1e6).plan;
        assert_eq!(plan.phases.len(), 10);
        assert_eq!(
            (plan.phases[3].accesses, plan.phases[4].accesses),
            (0, 1_000_000)
        );
        assert_eq!(plan.phases[4].pattern.hot(), 0..512);
    }

    #[test]
    fn a_replay_takes_the_time_of_the_recording() {
        let near = run(64, "none");
        // At the pace of the recording: nine seconds of work in ten.
        assert!((near.elapsed_s - 10.0).abs() < 0.02, "{}", near.elapsed_s);
        assert!((near.busy_s - 9.0).abs() < 0.02, "{}", near.busy_s);
        assert_eq!(near.counters.near_accesses, near.counters.accesses);
        // A fifth of the time was waiting for memory, which is two and a half times as far now.
        let far = run(1, "none");
        let slowdown = far.work_s() / near.work_s();
        assert!(
            far.is_complete && (1.15..1.31).contains(&slowdown),
            "{slowdown}"
        );
        let better = run(3, "pghot");
        assert!(better.work_s() < far.work_s(), "{better:?}");
    }

    #[test]
    fn what_cannot_be_is_named() {
        let profile = profile();
        let mut assumed = Assumed {
            machine: machine(&profile, 8),
            misses_per_cpu_s: f64::NAN,
        };
        let refused = |assumed: &Assumed| scenario("x", &profile, assumed).unwrap_err().to_string();
        assert!(refused(&assumed).starts_with("misses"));
        assumed.misses_per_cpu_s = 1e6;
        assumed.machine.node[1].memory_mib = 1;
        assert!(
            refused(&assumed).starts_with("profile"),
            "{}",
            refused(&assumed)
        );
        // 16 TiB, of which a table would be made.
        let mut vast = profile.clone();
        vast.processes[0].blocks = pghot_profile::BLOCKS_MAX;
        let error = scenario("x", &vast, &assumed).unwrap_err().to_string();
        assert!(error.starts_with("profile"), "{error}");
        assumed.machine.node.remove(0);
        assert!(refused(&assumed).starts_with("machine.node"));
    }
}
