//! The workloads that systems are compared by.

use std::path::PathBuf;

use anyhow::{Context, Result};
use pghot_testbed::{Vm, guest_binary};
use pghot_workloads::plans::BENCHMARKS;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cell::Setting;

mod ours;
mod theirs;

/// A workload.
#[derive(Clone)]
pub struct Workload {
    /// Its name on the command line and in tables.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub doc: &'static str,
    /// Whether hot pages can pay for being moved; if not, no system should be slower than none.
    pub pays: bool,
    /// Its memory, in percent of what the top tier has room for.
    pub room_percent: u32,
    /// Whether its memory can be in the top tier from the start, as a bound.
    pub has_bound: bool,
    /// How many accesses of the others take as long as one of its operations.
    pub weight: u64,
    /// Kinds of memory that it can have; the first is what it has if none is asked for.
    pub backings: &'static [&'static str],
    /// What the witness watches.
    pub scope: Scope,
    /// What has to be in the guest's `/bin`; fails with a sentence if something is missing.
    pub binaries: fn() -> Result<Vec<PathBuf>>,
    /// Makes its memory where it starts, as far as that must be done before a system is at work.
    pub prepare: fn(&Job<'_>) -> Result<Box<dyn Prepared>>,
}

/// What the witness watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// The workload's own memory: each access is known to be one of its.
    Memory,
    /// All accesses of all programs and of the kernel.
    Everything,
}

/// What a workload is to do.
pub struct Job<'a> {
    /// The guest.
    pub vm: &'a Vm,
    /// Seed, accesses, threads, kind of memory.
    pub setting: &'a Setting,
    /// How much memory.
    pub size_mib: u64,
    /// What the top tier has room for.
    pub room_mib: u64,
    /// The node where the memory starts.
    pub home: u32,
}

/// A workload that can begin.
pub trait Prepared {
    /// Does all of it.
    fn run(self: Box<Self>) -> Result<Ran>;
}

/// What a workload said.
pub struct Ran {
    /// Before its accesses: sizes, and what is hot if it knows.
    pub ready: Value,
    /// After them: times in the guest, places of the pages.
    pub done: Value,
}

/// All workloads.
pub fn all() -> impl Iterator<Item = Workload> {
    let ours = BENCHMARKS.iter().map(|benchmark| Workload {
        name: benchmark.name,
        doc: benchmark.doc,
        pays: benchmark.pays,
        room_percent: benchmark.room_percent,
        has_bound: benchmark.room_percent <= 100,
        weight: 1,
        backings: &["anon", "thp", "shared"],
        scope: Scope::Memory,
        binaries: || Ok(vec![guest_binary("load")?]),
        prepare: ours::load,
    });
    ours.chain(PROGRAMS.iter().cloned())
}

/// Those that are no plans of `load`, or that go about it in another way.
static PROGRAMS: &[Workload] = &[
    Workload {
        name: "pagecache",
        doc: "Random preads of a file whose page cache lies in the lower tier.",
        pays: true,
        room_percent: 25,
        has_bound: true,
        weight: 100,
        backings: &["file"],
        scope: Scope::Everything,
        binaries: ours::pagecache_binaries,
        prepare: ours::pagecache,
    },
    Workload {
        name: "bfs",
        doc: "Breadth-first searches of a graph with skewed degrees.",
        pays: true,
        room_percent: 8,
        has_bound: true,
        weight: 40,
        backings: &["anon", "thp", "shared"],
        scope: Scope::Memory,
        binaries: || Ok(vec![guest_binary("bfs")?]),
        prepare: ours::bfs,
    },
    Workload {
        name: "redis",
        doc: "Redis, asked for keys of which some are much more popular than others.",
        pays: true,
        room_percent: 25,
        has_bound: false,
        weight: 400,
        backings: &["anon"],
        scope: Scope::Everything,
        binaries: theirs::redis_binaries,
        prepare: theirs::redis,
    },
    Workload {
        name: "fio",
        doc: "fio, reading blocks of a cached file of which some are much more popular than others.",
        pays: true,
        room_percent: 25,
        has_bound: false,
        weight: 300,
        backings: &["file"],
        scope: Scope::Everything,
        binaries: theirs::fio_binaries,
        prepare: theirs::fio,
    },
];

/// The workload of that name.
pub fn find(name: &str) -> Option<Workload> {
    all().find(|workload| workload.name == name)
}

/// The first event of that name among lines of JSON.
fn event(lines: &str, name: &str) -> Result<Value> {
    let mut events = lines.lines().flat_map(serde_json::from_str::<Value>);
    let event = events.find(|event| event["event"] == name);
    event.with_context(|| format!("the workload did not say `{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_each_has_a_kind_of_memory() {
        let mut names: Vec<_> = all().map(|workload| workload.name).collect();
        assert!(all().all(|workload| !workload.backings.is_empty()));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all().count());
        assert!(find("promote").is_some() && find("promot").is_none());
    }

    #[test]
    fn events_are_found_among_other_lines() {
        let lines = "x\n{\"event\":\"ready\",\"pages\":7}\n{\"event\":\"done\"}\n";
        assert_eq!(event(lines, "ready").unwrap()["pages"], 7);
        assert!(event(lines, "sample").is_err());
    }
}
