//! For unit tests: a daemon without a kernel below it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pghot_engine::fake::FakeMachine;
use pghot_engine::marking::Visits;
use pghot_engine::{Gates, History, Migrator, Policies, Program, Settings};
use pghot_hotness::{Format, PfnRange, SECTION_PAGES, Span, Table};
use pghot_linux::SysRoot;
use pghot_linux::host::monotonic;
use pghot_linux::knobs::Foreign;
use pghot_sources::{
    Availability, Config, Descriptor, Error, Kind, OnKernel, ReadySample, Source, SourceCost,
    SourceStats, tunables,
};

use crate::lock;
use crate::shared::Shared;
use crate::sources::{Launcher, Sources};
use crate::stop::Stop;

/// The first page of node 2, the lower tier.
pub const LOWER_PFN: u64 = 8 * SECTION_PAGES;

/// Why [`FakeLauncher`] refuses.
pub const REFUSAL: &str = "it is too dark";

static DESCRIPTORS: [Descriptor; 4] = [
    fake("faults", 0x1, Kind::HintFaults),
    fake("tables", 0x4, Kind::PageTables),
    fake("other tables", 0x10, Kind::PageTables),
    fake("reads", 0x8, Kind::CacheReads),
];

const fn fake(name: &'static str, bit: u32, kind: Kind) -> Descriptor {
    Descriptor {
        name,
        bit,
        doc: "Nothing.",
        kind,
        tunables: &[],
        fake: |_, _| unreachable!("no model is here"),
        on_kernel: OnKernel {
            check: |_| Availability::Available,
            start: |_| unreachable!("the launcher starts it"),
            object: None,
        },
    }
}

/// What a test sees of its sources, and how it makes them fail.
#[derive(Debug, Default)]
pub struct Watched {
    /// Sources running now.
    pub running: AtomicU32,
    /// Times that the kernel settings were put back.
    pub cleared: AtomicU32,
    /// Sources that stand by.
    pub standing_by: AtomicU32,
    /// What the sources were told last: that hint faults run.
    pub told_of_faults: AtomicBool,
    /// Whether standing by, or coming back, fails.
    pub refuses_stand_by: AtomicBool,
    /// Whether starting fails.
    pub refuses_start: AtomicBool,
    /// Whether a new rule is refused.
    pub refuses_rule: AtomicBool,
    /// Settings that somebody else has changed.
    pub foreign: Mutex<Vec<Foreign>>,
    /// Whether the threads of all sources are gone.
    pub are_dead: AtomicBool,
    /// What the kernel's scanner was told to mark at a visit, in MB.
    pub marked: Mutex<Vec<Visits>>,
    /// Pages that each source says it recorded.
    pub recorded_pages: AtomicU64,
    /// Times that samples were taken over from a source.
    pub drains: AtomicU64,
}

struct FakeLauncher(Arc<Watched>);

impl Launcher for FakeLauncher {
    fn start(
        &mut self,
        descriptor: &'static Descriptor,
        _: Config,
        standing_by: bool,
    ) -> Result<Box<dyn Source>, String> {
        if self.0.refuses_start.load(Ordering::Relaxed) {
            return Err(REFUSAL.into());
        }
        self.0.running.fetch_add(1, Ordering::Relaxed);
        if standing_by {
            self.0.standing_by.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Box::new(FakeSource(Arc::clone(&self.0), descriptor)))
    }

    fn clear(&mut self, _: &'static Descriptor) {
        self.0.cleared.fetch_add(1, Ordering::Relaxed);
    }

    fn stand_by(&mut self, source: &mut dyn Source, standing_by: bool) -> Result<(), Error> {
        assert!(source.descriptor().kind.stands_by());
        if self.0.refuses_stand_by.load(Ordering::Relaxed) {
            return Err(Error::Setup(REFUSAL.into()));
        }
        match standing_by {
            true => self.0.standing_by.fetch_add(1, Ordering::Relaxed),
            false => self.0.standing_by.fetch_sub(1, Ordering::Relaxed),
        };
        Ok(())
    }

    fn foreign(&mut self) -> Vec<Foreign> {
        std::mem::take(&mut *lock(&self.0.foreign))
    }

    fn mark(&mut self, _: &mut dyn Source, visits: Visits) -> Result<bool, Error> {
        lock(&self.0.marked).push(visits);
        Ok(true)
    }
}

struct FakeSource(Arc<Watched>, &'static Descriptor);

impl Drop for FakeSource {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Source for FakeSource {
    fn descriptor(&self) -> &'static Descriptor {
        self.1
    }

    fn configure(&mut self, config: &Config) -> Result<(), Error> {
        let told = &self.0.told_of_faults;
        told.store(config.leave_hinted, Ordering::Relaxed);
        match self.0.refuses_rule.load(Ordering::Relaxed) {
            true => Err(Error::TooManyRanges { got: 2, max: 1 }),
            false => Ok(()),
        }
    }

    fn stats(&self) -> Result<SourceStats, Error> {
        Ok(SourceStats {
            recorded_pages: self.0.recorded_pages.load(Ordering::Relaxed),
            ..SourceStats::default()
        })
    }

    fn drain_ready(&mut self, sink: &mut dyn FnMut(ReadySample)) {
        self.0.drains.fetch_add(1, Ordering::Relaxed);
        sink(ReadySample {
            pfn: LOWER_PFN,
            when_ns: 0,
        });
    }

    fn is_dead(&self) -> bool {
        self.0.are_dead.load(Ordering::Relaxed)
    }

    fn cost(&self) -> SourceCost {
        SourceCost::default()
    }
}

/// A daemon that serves node 2 and runs one source; `dir` becomes its `/proc` and `/sys`.
pub fn daemon(dir: &Path) -> (Arc<Shared>, Arc<Watched>) {
    daemon_of(dir, 1)
}

/// The same with policies.
pub fn daemon_with(dir: &Path, policies: Policies) -> Arc<Shared> {
    build(dir, 1, policies).0
}

/// The same with so many sections in node 2.
pub fn daemon_of(dir: &Path, sections: u64) -> (Arc<Shared>, Arc<Watched>) {
    build(dir, sections, Policies::default())
}

fn build(dir: &Path, sections: u64, policies: Policies) -> (Arc<Shared>, Arc<Watched>) {
    let root = SysRoot::under(dir);
    write_topology(&root);
    let range = PfnRange {
        start: LOWER_PFN,
        end: LOWER_PFN + sections * SECTION_PAGES,
        nid: 2,
    };
    let table = Arc::new(Table::in_memory(
        Format::Default,
        Span::new(&[range]).unwrap(),
    ));
    let mut settings = Settings::new(Format::Default);
    settings.policies = policies;
    tunables::set(&mut settings, "enabled_sources", "0x1").unwrap();
    let watched = Arc::new(Watched::default());
    let launcher = Box::new(FakeLauncher(Arc::clone(&watched)));
    let config = tunables::config(&settings, settings.rule().unwrap());
    let mut sources = Sources::new(&DESCRIPTORS, launcher, &config);
    sources.enable(0x1);
    let stop = Arc::new(Stop::default());
    let shared = Shared::new(root, table, settings, &[2], sources, false, stop).unwrap();
    (Arc::new(shared), watched)
}

/// Has the daemon promote one page of process 4242.
pub fn decide(shared: &Shared) {
    let mut machine = FakeMachine::tiered3();
    machine.now_ms = monotonic().as_millis() as u64;
    machine.map(4242, LOWER_PFN);
    let program = Program {
        pid: 4242,
        name: "busy".into(),
        cgroup: "/g".into(),
    };
    machine.programs.insert(4242, program);
    let (settings, rule) = shared.settings_and_rule();
    for _ in 0..settings.freq_threshold {
        shared.table.report(LOWER_PFN, 0, machine.now_ms, &rule);
    }
    let journal = shared.migrators[0].journal.clone();
    let mut migrator = Migrator::new(2, History::default(), Gates::default(), journal);
    migrator.count_owners(shared.owners.clone());
    migrator.pass(&shared.table, &settings, &rule, &mut machine);
}

/// Writes a file of a fake tree.
pub fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Nodes 0 and 1 with CPUs in the top tier, node 2 below.
fn write_topology(root: &SysRoot) {
    let nodes = root.sys.join("devices/system/node");
    let tiers = root.sys.join("devices/virtual/memory_tiering");
    write(&nodes.join("online"), "0-2\n");
    write(&tiers.join("memory_tier4/nodelist"), "0-1\n");
    write(&tiers.join("memory_tier22/nodelist"), "2\n");
    for (nid, cpus, distances) in [
        (0, "0", "10 20 30"),
        (1, "1", "20 10 17"),
        (2, "", "30 17 10"),
    ] {
        let node = nodes.join(format!("node{nid}"));
        write(&node.join("cpulist"), cpus);
        write(&node.join("distance"), distances);
        write(
            &node.join("meminfo"),
            &format!("Node {nid} MemTotal: 131072 kB\n"),
        );
    }
}
