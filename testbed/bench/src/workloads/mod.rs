//! The workloads that systems are compared by. Each makes its memory first, where it starts; then a
//! system can be at work, and the workload runs.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use pghot_testbed::{Status, Vm, guest_binary, program};
use pghot_workloads::plans::BENCHMARKS;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::setting::Setting;

mod fio;
mod ours;
mod redis;

/// A workload.
#[derive(Clone)]
pub struct Workload {
    /// Its name on the command line and in tables.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub doc: &'static str,
    /// Whether hot pages can pay for being moved; if not, no system should be slower than none.
    pub pays: bool,
    /// How much memory it has.
    pub size: Size,
    /// Whether its memory can be in the top tier from the start, as a bound.
    pub has_bound: bool,
    /// Its operations in a second of the host, of a guest with the witness under no balancing: of
    /// plans accesses, of `bfs` edges, else what it does. Two threads and two cores of 2026; as
    /// rough as the length of a run may be.
    pub per_host_s: u64,
    /// Kinds of memory that it can have; the first is what it has if none is asked for.
    pub backings: &'static [&'static str],
    /// What the witness watches.
    pub scope: Scope,
    /// Binaries of this build that it needs.
    own: &'static [&'static str],
    /// Binaries of the host that it needs.
    tools: &'static [&'static str],
    /// A program that has to be fetched for it; see `testbed/setup.sh --bench`.
    program: Option<&'static str>,
    prepare: fn(&Job<'_>) -> Result<Box<dyn Prepared>>,
}

/// How much memory a workload has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// In percent of what the top tier has room for.
    RoomPercent(u64),
    /// So many MiB.
    Mib(u64),
}

/// What the witness watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// The workload's own memory: each access is known to be one of its.
    Memory,
    /// All accesses of its CPUs, the kernel's included.
    Everything,
    /// Nothing: there is no witness, the workload itself says where its pages are.
    Nothing,
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
    pub home: usize,
    /// The nodes of the top tier.
    pub fast: &'a [usize],
}

/// A workload that can begin.
pub trait Prepared {
    /// Does all of it. Who listens hears each line that the workload says meanwhile.
    fn run(self: Box<Self>, listen: &mut dyn FnMut(&Value)) -> Result<Ran>;
}

/// What a workload said.
#[derive(Debug, Default)]
pub struct Ran {
    /// Before its accesses: sizes, and what is hot if it knows.
    pub ready: Value,
    /// When they began: where its pages were, if it looked.
    pub begin: Value,
    /// Meanwhile: where its pages were.
    pub samples: Vec<Value>,
    /// After them: times in the guest, places of the pages.
    pub done: Value,
}

/// All workloads.
pub fn all() -> impl Iterator<Item = Workload> {
    let plans = BENCHMARKS.iter().map(|benchmark| Workload {
        name: benchmark.name,
        doc: benchmark.doc,
        pays: benchmark.pays,
        size: Size::RoomPercent(benchmark.room_percent.into()),
        has_bound: benchmark.room_percent <= 100,
        per_host_s: accesses_per_host_s(benchmark.name),
        backings: match benchmark.name {
            // What it is about.
            "sparse" => &["thp"],
            _ => &["anon", "thp", "shared", "file"],
        },
        scope: Scope::Memory,
        own: &["load"],
        tools: DISK_TOOLS,
        program: None,
        prepare: ours::plan,
    });
    plans.chain(PROGRAMS.iter().cloned())
}

/// See [`Workload::per_host_s`]. What stays in the witness's cache costs the emulator least.
fn accesses_per_host_s(plan: &str) -> u64 {
    match plan {
        "chunks" => 11_000_000,
        "cached" => 9_000_000,
        "stream" => 7_000_000,
        "overcommit" => 6_000_000,
        "flutter" => 5_000_000,
        "promote" | "scan" | "sparse" => 4_000_000,
        "neighbour" => 2_200_000,
        _ => 3_000_000,
    }
}

/// What mounts a disk, and unmounts it.
const DISK_TOOLS: &[&str] = &["/bin/mount", "/bin/umount", "/sbin/mkfs.ext4"];

/// Those that are no plans of `load`, or that go about it in another way.
static PROGRAMS: &[Workload] = &[
    Workload {
        name: "pagecache",
        doc: "Random preads of a file whose page cache lies in the lower tier.",
        pays: true,
        size: Size::RoomPercent(25),
        has_bound: true,
        per_host_s: 33_000,
        backings: &["file"],
        scope: Scope::Everything,
        own: &["load"],
        tools: DISK_TOOLS,
        program: None,
        prepare: ours::pagecache,
    },
    Workload {
        name: "bfs",
        doc: "Breadth-first searches of a graph with skewed degrees.",
        pays: true,
        size: Size::RoomPercent(8),
        has_bound: true,
        per_host_s: 7_000_000,
        backings: &["anon", "thp", "shared"],
        scope: Scope::Memory,
        own: &["bfs"],
        tools: &[],
        program: None,
        prepare: ours::bfs,
    },
    Workload {
        name: "redis",
        doc: "Redis, asked for keys of which some are much more popular than others.",
        pays: true,
        size: Size::RoomPercent(25),
        has_bound: false,
        per_host_s: 8000,
        backings: &["anon"],
        scope: Scope::Everything,
        own: &["kv", "mark"],
        tools: &[],
        program: Some("redis-server"),
        prepare: redis::prepare,
    },
    Workload {
        name: "fio",
        doc: "fio, reading blocks of a cached file of which some are much more popular than \
              others.",
        pays: true,
        size: Size::RoomPercent(25),
        has_bound: false,
        per_host_s: 9000,
        backings: &["file"],
        scope: Scope::Everything,
        own: &["mark"],
        tools: DISK_TOOLS,
        program: Some("fio"),
        prepare: fio::prepare,
    },
    Workload {
        name: "hotset",
        doc: "256 MiB, all of it hot, until all of it is promoted.",
        pays: true,
        size: Size::Mib(256),
        has_bound: false,
        per_host_s: 1,
        backings: &["anon"],
        scope: Scope::Nothing,
        own: &["hotset"],
        tools: &[],
        program: None,
        prepare: ours::hotset,
    },
];

/// The workload of that name.
pub fn find(name: &str) -> Option<Workload> {
    all().find(|workload| workload.name == name)
}

/// A workload in a table: its name, and its kind of memory unless that is its first.
pub fn shown(name: &str, backing: &str) -> String {
    match find(name).and_then(|workload| workload.backings.first()) {
        Some(first) if *first != backing => format!("{name}, {backing}"),
        _ => name.to_owned(),
    }
}

impl Workload {
    /// What has to be in the guest's `/bin`; fails with a sentence if something is missing.
    pub fn binaries(&self) -> Result<Vec<PathBuf>> {
        let mut binaries: Vec<PathBuf> = self.tools.iter().map(PathBuf::from).collect();
        for name in self.own {
            binaries.push(guest_binary(name)?);
        }
        binaries.extend(self.program.map(program).transpose()?);
        Ok(binaries)
    }

    /// Makes its memory where it starts, as far as that must be done before a system is at work.
    pub fn prepare(&self, job: &Job<'_>) -> Result<Box<dyn Prepared>> {
        (self.prepare)(job)
    }
}

/// The guest's disk.
const DISK: &str = "/dev/nvme0n1";

/// Makes a file system on the guest's disk. Sources find a file by its handle, for which it must
/// lie in a real file system.
fn mount(vm: &Vm, folder: &str) -> Result<()> {
    vm.mkdir(folder)?;
    vm.exec(&["mkfs.ext4", "-q", "-F", DISK])?
        .success()
        .context("give the guest's machine a disk (`disk_mib`)")?;
    vm.exec(&["mount", "-t", "ext4", DISK, folder])?.success()?;
    Ok(())
}

/// Unmounts as soon as nobody is in there: who promotes files has them open for a moment.
fn unmount(vm: &Vm, folder: &str) -> Result<()> {
    const LIMIT: Duration = Duration::from_secs(30);
    let done = || Ok(vm.exec(&["umount", folder])?.status == Status::Code(0));
    Ok(vm.wait_until("the file system can be unmounted", LIMIT, done)?)
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
}
