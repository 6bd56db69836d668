//! One workload under one system, in a guest: what is run, and what is kept of it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use pghot_testbed::{Kernel, Machine, Process, Spec, Vm, Watch, guest_binary};
use pghot_witness::counts::NodeCounts;
use pghot_witness::report::Report;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tempfile::TempDir;

use crate::commit::commit;
use crate::guest::{Growth, Snapshot, Watchers};
use crate::room;
use crate::setting::Setting;
use crate::systems::{self, Home, Running};
use crate::workloads::{self, Job, Ran, Scope, Size, Workload};

/// Bytes of the modelled last-level cache: much less than what any workload has hot at a time, as
/// on machines, whose memory and caches are both some thousand times as large.
const CACHE_BYTES: u64 = 128 << 10;

/// How long a guest may live from the beginning of a workload on.
const GUEST_LIMIT: Duration = Duration::from_secs(600);

/// In seconds: longer than any guest lives.
const A_DAY: &str = "86400";

/// Where all accesses count, only the workload runs on so many CPUs, from the first on: what a
/// daemon reads is not charged to it.
const PROGRAM_CPUS: usize = 2;

/// Everybody else's cgroup, and its CPUs.
const OTHERS: &str = "/sys/fs/cgroup/others";
const OTHER_CPUS: &str = "2-3";

/// The witness's file.
const REPORT: &str = "witness.json";

/// What came of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// What was run.
    pub setting: Setting,
    /// `uname -r` of the guest.
    pub release: String,
    /// See [`crate::commit::commit`]; empty where there is no repository.
    #[serde(default)]
    pub commit: String,
    /// The emulator.
    #[serde(default)]
    pub emulator: String,
    /// Whether hot pages could pay for being moved.
    pub pays: bool,
    /// Pages that the top tier had room for.
    pub room_pages: u64,
    /// The workload's `ready`: sizes and what is hot.
    pub ready: Value,
    /// The workload's samples: where its pages were, from time to time.
    pub samples: Vec<Value>,
    /// The workload's `done`: times in the guest, places of the pages.
    pub done: Value,
    /// What the system said of itself at the end.
    pub status: Option<Value>,
    /// What the witness saw.
    pub witness: Report,
    /// What the kernel counted.
    pub growth: Growth,
    /// Time on the host, boot included.
    pub wall_s: f64,
}

/// A guest. With a witness it serves one cell: what ran before decides which idle pages are left in
/// the top tier. Without, it serves all systems in turn. The system is started for each cell, when
/// the workload's memory is in place, so that nobody sees how that was made.
pub struct Guest {
    vm: Vm,
    machine: Machine,
    /// Keeps the emulator's TLBs small.
    flusher: Option<Process>,
    /// The system at work.
    running: Option<Box<dyn Running>>,
    watchers: Watchers,
    like: Setting,
    scope: Scope,
    /// Where the witness reports.
    dir: TempDir,
}

impl Guest {
    /// Boots one that can run this.
    pub fn boot(setting: &Setting) -> Result<Guest> {
        let system = systems::find(&setting.system).context("no such system")?;
        let workload = workload(setting)?;
        let scope = workload.scope;
        let own = vec![guest_binary("pghot")?, guest_binary("flushtlb")?];
        let binaries = [own, system.binaries()?, workload.binaries()?].concat();
        let (machine, kernel) = (
            Machine::load(&setting.machine)?,
            Kernel::find(&setting.kernel)?,
        );
        let dir = tempfile::tempdir()?;
        let watch = Watch {
            cache_bytes: CACHE_BYTES,
            program_cpus: match scope {
                Scope::Everything => PROGRAM_CPUS,
                Scope::Memory | Scope::Nothing => 0,
            },
            out: dir.path().join(REPORT),
            ..Watch::default()
        };
        let vm = Vm::boot(&Spec {
            limit: GUEST_LIMIT,
            dilation: setting.dilation,
            watch: (scope != Scope::Nothing).then_some(watch),
            ..Spec::new(&machine, &kernel, &binaries)
        })?;
        vm.set_limit(GUEST_LIMIT);
        systems::allow_demotion(&vm)?;
        if scope == Scope::Everything {
            vm.write("/sys/fs/cgroup/cgroup.subtree_control", "+cpuset")?;
            vm.mkdir(OTHERS)?;
            vm.write(&format!("{OTHERS}/cpuset.cpus"), OTHER_CPUS)?;
        }
        let flusher = || vm.spawn(&["flushtlb", "--seconds", A_DAY]);
        Ok(Guest {
            flusher: (scope == Scope::Memory).then(flusher).transpose()?,
            vm,
            machine,
            running: None,
            watchers: Watchers::default(),
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
        self.scope == Scope::Nothing
            && (&own.kernel, &own.machine, own.dilation)
                == (&other.kernel, &other.machine, other.dilation)
            && workload(setting).is_ok_and(|workload| workload.scope == self.scope)
    }

    /// Runs a workload; who listens hears what it says meanwhile.
    pub fn run(&mut self, setting: &Setting, listen: &mut dyn FnMut(&Value)) -> Result<Outcome> {
        let started = Instant::now();
        let workload = workload(setting)?;
        let system = systems::find(&setting.system).context("no such system")?;
        self.vm.set_limit(GUEST_LIMIT);
        let vm = &self.vm;
        // Page cache of the boot, or of the cell before.
        self.vm.write("/proc/sys/vm/drop_caches", "3")?;
        let tiers = self.machine.tiers();
        let (fast, slow) = (&tiers[0], &tiers[tiers.len() - 1]);
        let room_mib = self.make_room(fast[0], setting.room_percent)?;
        let prepared = workload.prepare(&Job {
            vm,
            setting,
            size_mib: match workload.size {
                Size::RoomPercent(percent) => room_mib * percent / u64::from(setting.room_percent),
                Size::Mib(mib) => mib,
            },
            room_mib,
            home: match system.home {
                Home::Lower => slow[0],
                Home::Upper => fast[0],
            },
            fast,
        })?;
        let running = self.running.insert(system.start(vm)?);
        self.watchers.look(vm)?;
        if self.scope == Scope::Everything {
            for pid in self.watchers.pids() {
                // Threads of the kernel may refuse: what they copy when they move pages is little.
                let _ = vm.write(&format!("{OTHERS}/cgroup.procs"), pid);
            }
        }
        if self.scope != Scope::Nothing {
            room::fill(vm, fast[0])?;
        }
        let before = Snapshot::take(vm, &self.watchers)?;
        let look = || Ok(Snapshot::take(vm, &self.watchers)?.since(&before));
        let mut at_end: Option<Result<Growth>> = None;
        let ran = prepared.run(&mut |event: &Value| {
            // Afterwards it only looks whether its memory is whole.
            if event["event"] == "end" {
                at_end = Some(look());
            }
            listen(event);
        })?;
        let growth = at_end.unwrap_or_else(look)?;
        check_flusher(self.flusher.as_ref())?;
        let status = running.status()?;
        let witness = self.witness()?;
        check(&witness, &ran, workload.scope)?;
        check_start(&ran)?;
        let outcome = Outcome {
            setting: setting.clone(),
            release: vm.read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            commit: commit().unwrap_or_default(),
            emulator: pghot_testbed::emulator_version()?,
            pays: workload.pays,
            room_pages: room_mib << 8,
            ready: ran.ready,
            samples: ran.samples,
            done: ran.done,
            status,
            witness,
            growth,
            wall_s: started.elapsed().as_secs_f64(),
        };
        self.stop()?;
        Ok(outcome)
    }

    /// What a node has for the workload, in MiB.
    fn make_room(&self, nid: usize, percent: u32) -> Result<u64> {
        match self.scope {
            Scope::Nothing => room::as_it_is(&self.vm, nid),
            _ => room::level(&self.vm, nid, self.machine.nodes[nid].memory_mib, percent),
        }
    }

    /// What the witness saw; nothing if there is none.
    fn witness(&self) -> Result<Report> {
        if self.scope == Scope::Nothing {
            return Ok(Report::default());
        }
        let out = self.dir.path().join(REPORT);
        let witness = serde_json::from_slice(&std::fs::read(&out)?)?;
        // The next one must not be taken for this one.
        std::fs::remove_file(&out)?;
        Ok(witness)
    }

    /// Ends the system.
    pub fn stop(&mut self) -> Result<()> {
        self.running.take().map_or(Ok(()), |running| running.stop())
    }
}

fn workload(setting: &Setting) -> Result<Workload> {
    workloads::find(&setting.workload).context("no such workload")
}

/// Of so many pages one may be elsewhere when a workload begins than where they were made: what is
/// compared had started by then.
const PAGES_A_MOVED: u64 = 50;

/// A cell whose TLBs did not forget is none.
fn check_flusher(flusher: Option<&Process>) -> Result<()> {
    match flusher.map(Process::try_wait).transpose()? {
        Some(Some(_)) => bail!("`flushtlb` has ended"),
        _ => Ok(()),
    }
}

/// Fails if a system was quicker than the workload, so that this is not the start that the others
/// had.
fn check_start(ran: &Ran) -> Result<()> {
    let of = |event: &Value| serde_json::from_value(event["nodes"].clone()).unwrap_or_default();
    let (made, begun): (BTreeMap<u32, u64>, BTreeMap<u32, u64>) = (of(&ran.ready), of(&ran.begin));
    if begun.is_empty() {
        return Ok(());
    }
    let left =
        |(nid, pages): (&u32, &u64)| pages.saturating_sub(begun.get(nid).copied().unwrap_or(0));
    let moved: u64 = made.iter().map(left).sum();
    ensure!(
        moved * PAGES_A_MOVED <= made.values().sum(),
        "{moved} pages had moved before it began: {made:?}, then {begun:?}"
    );
    Ok(())
}

/// Fails unless the witness saw what the workload made.
fn check(witness: &Report, ran: &Ran, scope: Scope) -> Result<()> {
    if scope == Scope::Nothing {
        return Ok(());
    }
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
