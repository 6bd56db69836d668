//! What a scenario says: the machine, the processes, and the phases of each.

use std::sync::Arc;

use pghot_workloads::plan::Plan;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::memory::Backing;
use crate::machine::{MachineSpec, PAGES_PER_MIB};

/// A scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Shown in reports.
    pub name: String,
    /// How accesses are made.
    #[serde(default)]
    pub mode: Mode,
    /// Decides everything that is random.
    #[serde(default = "one")]
    pub seed: u64,
    /// The end, if the processes have not ended by then, in simulated seconds.
    #[serde(default = "ten_minutes")]
    pub seconds: f64,
    /// Simulated time between two looks of the machine at its processes, in µs.
    #[serde(default = "a_millisecond")]
    pub slice_us: u64,
    /// Between two samples of the series in the result, in ms.
    #[serde(default = "a_second")]
    pub sample_ms: u64,
    /// The machine.
    pub machine: MachineSpec,
    /// What runs on it.
    pub process: Vec<ProcessSpec>,
}

/// How accesses are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// One by one.
    #[default]
    Exact,
    /// Many at once; see `traffic::statistical`.
    Statistical,
}

/// A process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessSpec {
    /// One of the benchmarks of `crates/workloads`; else there are phases.
    #[serde(default)]
    pub workload: Option<String>,
    /// Its memory, in MiB.
    pub memory_mib: u64,
    /// Threads.
    #[serde(default = "one_thread")]
    pub threads: u32,
    /// The node on whose CPUs they run.
    #[serde(default)]
    pub node: u32,
    /// What its memory is made of.
    #[serde(default)]
    pub backing: Backing,
    /// The lower-tier node that its pages are in at first; the first one if left out.
    #[serde(default)]
    pub home: Option<u32>,
    /// Accesses of all threads, for a benchmark.
    #[serde(default)]
    pub accesses: u64,
    /// Share of its memory, from the beginning, that is in the top tier at first.
    #[serde(default)]
    pub near_share: Option<f64>,
    /// Writable mappings behind its memory, each of which costs the scanner a visit.
    #[serde(default = "mappings")]
    pub mappings: u32,
    /// So many of its kind.
    #[serde(default = "one_thread")]
    pub count: u32,
    /// Each of them begins so many seconds after the one before it.
    #[serde(default)]
    pub stagger_s: f64,
    /// What it does, if that was recorded.
    #[serde(skip)]
    pub recorded: Option<Arc<Recorded>>,
    /// What it does, one after the other.
    #[serde(default)]
    pub phase: Vec<PhaseSpec>,
}

/// What a process was seen to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// A phase for each interval.
    pub plan: Plan,
    /// How long each lasts at least, in ns.
    pub least_ns: Vec<u64>,
}

/// A phase of a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseSpec {
    /// How pages are chosen.
    pub pattern: PatternName,
    /// Accesses of all threads; for a phase that waits there may be none.
    #[serde(default)]
    pub accesses: u64,
    /// It lasts at least so long, in seconds.
    #[serde(default)]
    pub at_least_s: f64,
    /// So many times, one after the other.
    #[serde(default = "one_thread")]
    pub repeat: u32,
    /// By how much the pages move from one time to the next, as a share of the range; what leaves
    /// it at the end comes in at the beginning. For `zipf`.
    #[serde(default)]
    pub drift: f64,
    /// How skewed `zipf` is: the page of rank n has 1/n^theta of the accesses of the first.
    #[serde(default = "ycsb_theta")]
    pub theta: f64,
    /// Where the pages lie, as shares of the memory.
    #[serde(default = "whole")]
    pub range: [f64; 2],
    /// Of these, the hot ones, for a skewed pattern.
    #[serde(default = "whole")]
    pub hot: [f64; 2],
    /// Of 100 accesses, how many go to the hot ones alone.
    #[serde(default)]
    pub hot_percent: u32,
}

/// How a phase chooses pages; see `pghot_workloads::plan::Pattern`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PatternName {
    /// Any page, each time anew.
    Random,
    /// One line after the other.
    Stream,
    /// So many of 100 go to the hot range.
    Skewed,
    /// The first page has the most accesses, the second fewer, and so on.
    Zipf,
}

fn one() -> u64 {
    1
}
fn one_thread() -> u32 {
    1
}
fn ten_minutes() -> f64 {
    600.0
}
fn a_millisecond() -> u64 {
    1000
}
fn a_second() -> u64 {
    1000
}
fn ycsb_theta() -> f64 {
    0.99
}
fn whole() -> [f64; 2] {
    [0.0, 1.0]
}

/// Of a program in C without threads: data of the C library and of the loader, and the stack.
fn mappings() -> u32 {
    4
}

impl Default for ProcessSpec {
    /// As a scenario file leaves it out; without memory and anything to do.
    fn default() -> ProcessSpec {
        ProcessSpec {
            workload: None,
            memory_mib: 0,
            threads: 1,
            node: 0,
            backing: Backing::default(),
            home: None,
            accesses: 0,
            near_share: None,
            mappings: mappings(),
            count: 1,
            stagger_s: 0.0,
            recorded: None,
            phase: Vec::new(),
        }
    }
}

impl Default for PhaseSpec {
    /// As a scenario file leaves it out; random, and without accesses.
    fn default() -> PhaseSpec {
        PhaseSpec {
            pattern: PatternName::Random,
            accesses: 0,
            at_least_s: 0.0,
            repeat: 1,
            drift: 0.0,
            theta: ycsb_theta(),
            range: whole(),
            hot: whole(),
            hot_percent: 0,
        }
    }
}

impl ProcessSpec {
    /// Base pages of its memory.
    pub fn pages(&self) -> u32 {
        (self.memory_mib * PAGES_PER_MIB) as u32
    }
}
