//! A scenario with fewer pages that behaves as the whole: each page stands for so many of the
//! machine's.
//!
//! Memory, accesses, and what may be marked or moved in a second become fewer, and all that an
//! access, a fault or a page costs becomes more, by the same weight. So every page is accessed as
//! often as before, and each part of the time goes where it went before. Of a recording, one block
//! in so many is taken, all of its pages; of a described workload, ranges become shorter.
//!
//! What is lost: whatever the kernel or the engine does by fixed numbers of pages for the sake of
//! bounded work, such as how many pages a migrator picks in a pass; and small processes, of which
//! a block is left. `tests/thin.rs` compares.

use std::ops::Range;
use std::sync::Arc;

use pghot_profile::{BLOCK_PAGES, Interval, Process, Profile, Touched};
use pghot_workloads::plan::{Pattern, Phase, Plan, Weighted};
use pghot_workloads::random::mix;

use super::spec::{ProcessSpec, Recorded, Scenario};
use crate::machine::MachineSpec;
use crate::machine::memory::Backing;

/// A page may stand for so many: the least that the scanner marks in a visit is then a block in
/// less than a second.
pub const WEIGHT_MAX: u64 = 32;

/// Memory that a process keeps: one block.
const MIB_MIN: u64 = 2;

/// A machine whose pages stand for `weight` of this one's.
pub fn machine(machine: &MachineSpec, weight: u64) -> MachineSpec {
    let mut thin = machine.clone();
    let more = weight as f64;
    thin.page_weight = weight;
    for node in &mut thin.node {
        node.resize((node.memory_mib / weight).max(1));
        node.latency_ns.iter_mut().for_each(|ns| *ns *= more);
        if let Some(mib_s) = &mut node.bandwidth_mib_s {
            *mib_s = (*mib_s / weight).max(1);
        }
    }
    let costs = &mut thin.costs;
    let prices = &mut thin.migration.kernel;
    for ns in [
        &mut costs.compute_ns,
        &mut costs.read_ns,
        &mut costs.watched_read_ns,
        &mut costs.hint_fault_ns,
        &mut costs.mark_ns,
        &mut costs.move_alone_ns,
        &mut costs.move_huge_ns,
        &mut costs.demote_ns,
        &mut costs.reclaim_ns,
        &mut costs.accessed_bit_ns,
        &mut prices.call_ns,
        &mut prices.cold_ns,
        &mut prices.cold_unmap_ns,
        &mut prices.cold_move_ns,
        &mut prices.flush_ns,
        &mut prices.unmap_ns,
        &mut prices.move_ns,
        &mut prices.entry_ns,
        &mut prices.huge_ns,
        &mut prices.batch_end_ns,
    ] {
        *ns *= more;
    }
    prices.copy_bytes_per_ns /= more;
    thin
}

/// One block in `weight` of each process of a profile, in every so many another one.
pub fn profile(profile: &Profile, weight: u32) -> Profile {
    Profile {
        kernel: profile.kernel.clone(),
        disturbed_by: profile.disturbed_by.clone(),
        processes: (profile.processes.iter())
            .map(|whole| process(whole, weight))
            .collect(),
        ..*profile
    }
}

fn process(whole: &Process, weight: u32) -> Process {
    let interval = |interval: &Interval| Interval {
        touched: thin_set(&interval.touched, whole.blocks, weight),
        lower: thin_set(&interval.lower, whole.blocks, weight),
        ..*interval
    };
    Process {
        name: whole.name.clone(),
        cgroup: whole.cgroup.clone(),
        blocks: whole.blocks.div_ceil(weight),
        huge_blocks: whole.huge_blocks.div_ceil(weight),
        intervals: whole.intervals.iter().map(interval).collect(),
    }
}

/// Which block of a group of `weight` is taken.
fn taken(group: u32, blocks: u32, weight: u32) -> u32 {
    let first = group * weight;
    let length = weight.min(blocks - first);
    first + (mix(u64::from(group) + 1) % u64::from(length)) as u32
}

fn thin_set(touched: &Touched, blocks: u32, weight: u32) -> Touched {
    let mut runs: Vec<Range<u32>> = Vec::new();
    for run in touched.runs() {
        let first = run.start / BLOCK_PAGES / weight;
        let last = (run.end - 1) / BLOCK_PAGES / weight;
        for group in first..=last {
            let block = taken(group, blocks, weight) * BLOCK_PAGES;
            let (start, end) = (run.start.max(block), run.end.min(block + BLOCK_PAGES));
            if start >= end {
                continue;
            }
            let at = |page: u32| group * BLOCK_PAGES + page - block;
            match runs.last_mut() {
                Some(before) if before.end == at(start) => before.end = at(end),
                _ => runs.push(at(start)..at(end)),
            }
        }
    }
    Touched::of(runs)
}

/// The first process with huge pages, if there is one: there are few of those, and each is one
/// record, so such a scenario is left as it is.
pub fn first_huge(scenario: &Scenario) -> Option<usize> {
    let mut processes = scenario.process.iter();
    processes.position(|process| process.backing == Backing::Thp)
}

/// The whole scenario, of described workloads; its processes are [`frozen`].
pub fn scenario(scenario: &Scenario, weight: u64) -> Scenario {
    let process = |spec: &ProcessSpec| {
        let mut thin = frozen(spec, &scenario.machine);
        thin.memory_mib = thin_mib(spec, weight);
        if let Some(recorded) = &thin.recorded {
            let shorter = |phase: &Phase| shorter(phase, weight, thin.pages());
            let plan = Plan {
                near_pages: recorded.plan.near_pages / weight as u32,
                phases: recorded.plan.phases.iter().map(shorter).collect(),
            };
            thin.recorded = Some(Arc::new(Recorded {
                plan,
                least_ns: recorded.least_ns.clone(),
            }));
        }
        thin
    };
    Scenario {
        name: scenario.name.clone(),
        machine: machine(&scenario.machine, weight),
        process: scenario.process.iter().map(process).collect(),
        ..*scenario
    }
}

/// A process that does the same on whatever machine: what a benchmark does depends on how large the
/// top tier is.
pub fn frozen(spec: &ProcessSpec, machine: &MachineSpec) -> ProcessSpec {
    let (plan, least_ns) = spec.plan(machine);
    ProcessSpec {
        workload: None,
        phase: Vec::new(),
        accesses: 0,
        stagger_s: 0.0,
        recorded: Some(Arc::new(Recorded { plan, least_ns })),
        ..spec.clone()
    }
}

/// Memory of a process whose pages stand for `weight`, in MiB; whole huge pages, if it has such.
pub fn thin_mib(spec: &ProcessSpec, weight: u64) -> u64 {
    if weight == 1 {
        return spec.memory_mib;
    }
    let mib = (spec.memory_mib + weight / 2) / weight;
    match spec.backing {
        Backing::Thp => mib.next_multiple_of(2).max(MIB_MIN),
        _ => mib.max(MIB_MIN),
    }
}

fn shorter(phase: &Phase, weight: u64, pages: u32) -> Phase {
    let at = |page: u32| ((u64::from(page) + weight / 2) / weight).min(u64::from(pages)) as u32;
    let range = |whole: &Range<u32>| {
        let start = at(whole.start).min(pages - 1);
        start..at(whole.end).max(start + 1)
    };
    let pattern = match &phase.pattern {
        Pattern::Random(pages) => Pattern::Random(range(pages)),
        Pattern::Stream(pages) => Pattern::Stream(range(pages)),
        Pattern::Repeated { pages, length } => Pattern::Repeated {
            pages: range(pages),
            length: (length / weight).max(1),
        },
        Pattern::Skewed {
            hot,
            hot_percent,
            all,
        } => Pattern::Skewed {
            hot: range(hot),
            hot_percent: *hot_percent,
            all: range(all),
        },
        Pattern::Weighted(weighted) => Pattern::Weighted(Arc::new(joined(weighted, at))),
        Pattern::Beside {
            hot,
            hot_percent,
            scanned,
        } => Pattern::Beside {
            hot: range(hot),
            hot_percent: *hot_percent,
            scanned: range(scanned),
        },
        Pattern::Sparse { pages, stride } => Pattern::Sparse {
            pages: range(pages),
            stride: *stride,
        },
    };
    Phase {
        pattern,
        accesses: phase.accesses.div_ceil(weight),
    }
}

/// Parts at their new places; those of less than a page are one with the next.
fn joined(weighted: &Weighted, at: impl Fn(u32) -> u32) -> Weighted {
    let mut parts: Vec<(Range<u32>, f64)> = Vec::new();
    let (mut waiting, mut start) = (0.0, None);
    for (pages, share) in weighted.shares() {
        let first = *start.get_or_insert(at(pages.start));
        waiting += share;
        if at(pages.end) > first {
            parts.push((first..at(pages.end), waiting));
            (waiting, start) = (0.0, None);
        }
    }
    if let Some((_, share)) = parts.last_mut() {
        *share += waiting;
    }
    Weighted::new(parts)
}
