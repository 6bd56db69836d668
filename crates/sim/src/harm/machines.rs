//! Random machines with two tiers, and what runs on them.

use pghot_workloads::random::XorShift;

use crate::machine::memory::Backing;
use crate::machine::{MachineSpec, NodeSpec};
use crate::scenario::{Mode, PatternName, PhaseSpec, ProcessSpec, Scenario};

/// About how long each process works without balancing, in s.
const WORK_S: f64 = 30.0;

/// The end, whatever has ended by then, in simulated seconds: far beyond.
const END_S: f64 = 600.0;

/// Of so many processes one reads a file by system calls.
const FILES_ONE_IN: u32 = 6;

/// Latency of the top tier, in ns.
const NEAR_NS: f64 = 100.0;

/// One of these.
fn pick<T: Copy>(random: &mut XorShift, from: &[T]) -> T {
    from[random.below(from.len() as u32) as usize]
}

/// From `low` to `high`.
fn between(random: &mut XorShift, low: f64, high: f64) -> f64 {
    low + (high - low) * f64::from(random.below(1001)) / 1000.0
}

/// The scenario of a seed. Its name says what it is.
pub fn scenario(seed: u64) -> Scenario {
    let mut random = XorShift::new(seed);
    // Its own, so that what else there is does not hang on it.
    let mut files = XorShift::new(!seed);
    let cpus = pick(&mut random, &[2, 4, 8, 16, 64]);
    let top_mib = pick(&mut random, &[256, 512, 1024]);
    let lower_mib = top_mib * pick(&mut random, &[1, 2, 3, 4]);
    let far_ns = NEAR_NS * pick(&mut random, &[1.5, 2.0, 2.5, 4.0]);
    let compute_ns = pick(&mut random, &[10.0, 100.0, 1000.0]);
    let node = |memory_mib, cpus, latency_ns| NodeSpec {
        memory_mib,
        cpus,
        latency_ns,
        bandwidth_mib_s: None,
        min_free_pages: None,
    };
    let mut machine = MachineSpec {
        node: vec![
            node(top_mib, cpus, vec![NEAR_NS, far_ns]),
            node(lower_mib, 0, Vec::new()),
        ],
        kernel: Default::default(),
        migration: Default::default(),
        costs: Default::default(),
        page_weight: 1,
    };
    machine.costs.compute_ns = compute_ns;
    let mut room = Room {
        top_mib: top_mib as f64 * between(&mut random, 0.5, 0.95),
        all_mib: (top_mib + lower_mib) as f64 * between(&mut random, 0.3, 0.9),
    };
    let processes = pick(&mut random, &[1, 1, 2, 3]);
    let access_ns = compute_ns + (NEAR_NS + far_ns) / 2.0;
    let read_ns = machine.costs.read_ns;
    let process: Vec<ProcessSpec> = (0..processes)
        .map(|number| {
            let left = processes - number;
            match files.below(FILES_ONE_IN) {
                0 => ProcessSpec {
                    backing: Backing::PageCache,
                    ..process(&mut random, &mut room, left, cpus, access_ns + read_ns)
                },
                _ => process(&mut random, &mut room, left, cpus, access_ns),
            }
        })
        .collect();
    let words: Vec<String> = process.iter().map(words).collect();
    let far_times = far_ns / NEAR_NS;
    Scenario {
        name: format!(
            "{cpus} CPUs, {top_mib} + {lower_mib} MiB, {far_times} times as slow, {compute_ns} ns \
             between accesses: {}",
            words.join("; ")
        ),
        mode: Mode::Statistical,
        seed,
        seconds: END_S,
        slice_us: 2000,
        sample_ms: 10_000_000,
        machine,
        process,
    }
}

/// What is left for processes.
struct Room {
    top_mib: f64,
    all_mib: f64,
}

fn process(
    random: &mut XorShift,
    room: &mut Room,
    left: u32,
    cpus: u32,
    access_ns: f64,
) -> ProcessSpec {
    let share = if left == 1 {
        1.0
    } else {
        between(random, 0.2, 0.7)
    };
    // Whole huge pages.
    let memory_mib = (room.all_mib * share / 2.0).floor().max(8.0) * 2.0;
    let near_mib = match random.below(3) {
        0 => 0.0,
        1 => room.top_mib * share,
        _ => room.top_mib * share * between(random, 0.0, 1.0),
    };
    let near_mib = near_mib.min(memory_mib);
    room.all_mib -= memory_mib;
    room.top_mib = (room.top_mib - near_mib).max(0.0);
    let threads = 1 + random.below(cpus.min(8));
    let phases = pick(random, &[1, 1, 1, 2, 3]);
    let accesses = WORK_S * 1e9 / access_ns * f64::from(threads);
    let phase = (0..phases)
        .map(|_| phase(random, accesses / f64::from(phases)))
        .collect();
    ProcessSpec {
        memory_mib: memory_mib as u64,
        threads,
        backing: pick(
            random,
            &[Backing::Anon, Backing::Anon, Backing::Anon, Backing::Thp],
        ),
        near_share: Some(near_mib / memory_mib),
        phase,
        ..ProcessSpec::default()
    }
}

fn phase(random: &mut XorShift, accesses: f64) -> PhaseSpec {
    let pattern = pick(
        random,
        &[
            PatternName::Random,
            PatternName::Stream,
            PatternName::Skewed,
            PatternName::Skewed,
            PatternName::Zipf,
        ],
    );
    let repeat = match pattern {
        PatternName::Zipf => pick(random, &[1, 3, 10]),
        _ => 1,
    };
    let start = between(random, 0.0, 0.6);
    PhaseSpec {
        pattern,
        accesses: (accesses / f64::from(repeat)) as u64,
        repeat,
        drift: if repeat > 1 {
            between(random, 0.0, 0.3)
        } else {
            0.0
        },
        theta: between(random, 0.6, 1.2),
        hot: [start, start + between(random, 0.01, 0.4)],
        hot_percent: 50 + random.below(50),
        ..PhaseSpec::default()
    }
}

/// What a process is, in a few words.
fn words(process: &ProcessSpec) -> String {
    let phase = |phase: &PhaseSpec| match phase.pattern {
        PatternName::Random => "random".to_owned(),
        PatternName::Stream => "stream".to_owned(),
        PatternName::Skewed => {
            let hot = (phase.hot[1] - phase.hot[0]) * 100.0;
            format!("{hot:.0} % with {} % of accesses", phase.hot_percent)
        }
        PatternName::Zipf => format!("zipf {:.2} moving {} times", phase.theta, phase.repeat - 1),
    };
    let phases: Vec<String> = process.phase.iter().map(phase).collect();
    let backing = match process.backing {
        Backing::Thp => ", huge pages",
        Backing::PageCache => " of page cache",
        _ => "",
    };
    let threads = match process.threads {
        1 => "1 thread".to_owned(),
        threads => format!("{threads} threads"),
    };
    format!(
        "{} MiB{backing}, {:.0} % near, {threads}, {}",
        process.memory_mib,
        process.near_share.unwrap_or(0.0) * 100.0,
        phases.join(" then ")
    )
}
