//! One workload under one system, in a guest: what is run, and what is kept of it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use pghot_testbed::{Kernel, Machine, Spec, Vm, Watch, guest_binary};
use pghot_witness::counts::NodeCounts;
use pghot_witness::report::Report;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tempfile::TempDir;

use crate::guest::{Growth, Snapshot, Watchers};
use crate::systems::{self, Home, Running};
use crate::workloads::{self, Job, Ran, Scope, Workload};

/// The machine of all cells: one node of each tier.
pub const MACHINE: &str = "bench";

/// Bytes of the modelled last-level cache: much less than what any workload has hot at a time, as on
/// machines, whose memory and caches are both some thousand times as large.
const CACHE_BYTES: u64 = 128 << 10;

/// How long a guest may live from the beginning of a workload on.
const GUEST_LIMIT: Duration = Duration::from_secs(600);

/// The witness's file.
const REPORT: &str = "witness.json";

/// What is kept free in the top tier when a workload is sized.
const RESERVE_MIB: u64 = 64;

/// What a cell runs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Setting {
    /// See [`workloads::all`].
    pub workload: String,
    /// See [`systems::SYSTEMS`].
    pub system: String,
    /// Of the accesses.
    pub seed: u64,
    /// Accesses of all threads.
    pub accesses: u64,
    /// Threads of the workload.
    pub threads: u32,
    /// Its kind of memory.
    pub backing: String,
    /// The kernel's name in kernels.toml.
    pub kernel: String,
    /// How many times slower than the host's the guest's clock runs.
    pub dilation: u32,
}

impl Setting {
    /// Its name, in files and messages.
    pub fn name(&self) -> String {
        let Setting {
            kernel,
            workload,
            backing,
            system,
            accesses,
            threads,
            seed,
            dilation,
        } = self;
        let slower = match dilation {
            1 => String::new(),
            by => format!("-slower{by}"),
        };
        format!("{kernel}-{workload}-{backing}-{system}-{accesses}x{threads}-{seed}{slower}")
    }
}

/// What came of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// What was run.
    pub setting: Setting,
    /// `uname -r` of the guest.
    pub release: String,
    /// Whether hot pages could pay for being moved.
    pub pays: bool,
    /// Pages that the top tier had room for.
    pub room_pages: u64,
    /// The workload's `ready`: sizes and what is hot.
    pub ready: Value,
    /// The workload's `done`: times in the guest, places of the pages.
    pub done: Value,
    /// What the witness saw.
    pub witness: Report,
    /// What the kernel counted.
    pub growth: Growth,
    /// Time on the host, boot included.
    pub wall_s: f64,
}

/// A guest with a system at work. It serves each workload of a seed once: booting, and in an emulator
/// starting pghot, takes longer than most workloads.
pub struct Guest {
    vm: Vm,
    running: Box<dyn Running>,
    watchers: Watchers,
    like: Setting,
    scope: Scope,
    /// Where the witness reports.
    dir: TempDir,
}

impl Guest {
    /// Boots one that can run this, and starts the system.
    pub fn boot(setting: &Setting) -> Result<Guest> {
        let system = systems::find(&setting.system).context("no such system")?;
        let scope = workload(setting)?.scope;
        let own = vec![guest_binary("pghot")?];
        let binaries = [own, system.binaries()?, binaries(scope)].concat();
        let (machine, kernel) = (Machine::load(MACHINE)?, Kernel::find(&setting.kernel)?);
        let dir = tempfile::tempdir()?;
        let spec = Spec {
            limit: GUEST_LIMIT,
            dilation: setting.dilation,
            watch: Some(Watch {
                cache_bytes: CACHE_BYTES,
                is_everywhere: scope == Scope::Everything,
                out: dir.path().join(REPORT),
                ..Watch::default()
            }),
            ..Spec::new(&machine, &kernel, &binaries)
        };
        let vm = Vm::boot(&spec)?;
        vm.set_limit(GUEST_LIMIT);
        vm.write("/proc/sys/kernel/numa_balancing", "0")?;
        systems::allow_demotion(&vm)?;
        let running = (system.start)(&vm)?;
        Ok(Guest {
            watchers: Watchers::find(&vm)?,
            vm,
            running,
            like: setting.clone(),
            scope,
            dir,
        })
    }

    /// The system's name.
    pub fn system(&self) -> &str {
        &self.like.system
    }

    /// Whether it can run this too.
    pub fn serves(&self, setting: &Setting) -> bool {
        let (own, other) = (&self.like, setting);
        let is_alike = own.kernel == other.kernel && own.system == other.system;
        is_alike
            && own.seed == other.seed
            && workload(setting).is_ok_and(|workload| workload.scope == self.scope)
    }

    /// Runs a workload.
    pub fn run(&self, setting: &Setting) -> Result<Outcome> {
        let started = Instant::now();
        let (vm, workload) = (&self.vm, workload(setting)?);
        vm.set_limit(GUEST_LIMIT);
        // What the workload before has left behind.
        vm.write("/proc/sys/vm/drop_caches", "3")?;
        if setting.backing == "thp" {
            vm.write("/proc/sys/vm/compact_memory", "1")?;
        }
        let home = systems::find(&setting.system).map_or(Home::Lower, |system| system.home);
        let room_mib = free_mib(vm, 0)?.saturating_sub(RESERVE_MIB);
        let size_mib = room_mib * u64::from(workload.room_percent) / 100;
        let prepared = (workload.prepare)(&Job {
            vm,
            setting,
            size_mib,
            room_mib,
            home: match home {
                Home::Lower => 1,
                Home::Upper => 0,
            },
        })?;
        let before = Snapshot::take(vm, &self.watchers)?;
        let ran = prepared.run()?;
        let growth = Snapshot::take(vm, &self.watchers)?.since(&before);
        let out = self.dir.path().join(REPORT);
        let witness: Report = serde_json::from_slice(&std::fs::read(&out)?)?;
        // The next one must not be taken for this one.
        std::fs::remove_file(&out)?;
        check(&witness, &ran, workload.scope)?;
        Ok(Outcome {
            setting: setting.clone(),
            release: vm.read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            pays: workload.pays,
            room_pages: room_mib << 8,
            ready: ran.ready,
            done: ran.done,
            witness,
            growth,
            wall_s: started.elapsed().as_secs_f64(),
        })
    }

    /// Ends the system, then the guest.
    pub fn stop(self) -> Result<()> {
        self.running.stop()
    }
}

fn workload(setting: &Setting) -> Result<Workload> {
    workloads::find(&setting.workload).context("no such workload")
}

/// Of all workloads of a scope, as far as this host has them: who lacks something fails when it is run.
fn binaries(scope: Scope) -> Vec<PathBuf> {
    let workloads = workloads::all().filter(|workload| workload.scope == scope);
    let of_workload = |workload: Workload| (workload.binaries)().unwrap_or_default();
    let mut binaries: Vec<PathBuf> = workloads.flat_map(of_workload).collect();
    binaries.sort();
    binaries.dedup();
    binaries
}

/// Fails unless the witness saw what the workload made.
fn check(witness: &Report, ran: &Ran, scope: Scope) -> Result<()> {
    ensure!(witness.is_complete, "the phase was not ended");
    if scope == Scope::Everything {
        return Ok(());
    }
    let seen: u64 = witness.nodes.iter().map(NodeCounts::accesses).sum();
    // A workload that does not know what it makes is not asked.
    let made = ran.done["accesses"].as_u64().unwrap_or(seen);
    ensure!(
        seen == made && witness.unknown == 0,
        "the witness saw {seen} of {made} accesses, and {} elsewhere",
        witness.unknown
    );
    Ok(())
}

/// Free memory of a node, in MiB.
fn free_mib(vm: &Vm, nid: u32) -> Result<u64> {
    let meminfo = vm.read(&format!("/sys/devices/system/node/node{nid}/meminfo"))?;
    let line = meminfo.lines().find(|line| line.contains("MemFree:"));
    let number = line.and_then(|line| line.split_ascii_whitespace().nth(3));
    let kib: u64 = number.context("meminfo has no MemFree")?.parse()?;
    Ok(kib >> 10)
}
