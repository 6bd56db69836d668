//! pghot: the real engine, records and sources' decisions, on the model instead of a kernel.

mod bits;
mod host;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use bits::Bits;
use host::Host;
use pghot_engine::{Migrator, Settings, TUNABLES, Totals, next_pass_ms};
use pghot_hotness::{Format, Nid, Pfn, Rule, Span, Table};
use pghot_sources::fake::{Access, Event, Fake};
use pghot_sources::{Config, Kind, SOURCES, hw_sample, page_cache};
use serde_json::{Value, json};

use super::gate::promote_in_fault;
use super::{Descriptor, Fault, Setting, System, Touch};
use crate::Error;
use crate::memory::pfn_of;
use crate::task::Task;
use crate::world::World;

pub(super) const DESCRIPTOR: Descriptor = Descriptor {
    name: "pghot",
    doc: "pghot with its tunables; the engine of the daemon.",
    make: |world, settings| Ok(Box::new(Pghot::new(world, settings)?)),
};

/// The simulation begins at this time of the daemon's clock: 0 is special in records.
const EPOCH_MS: u64 = 1_000_000;
/// How often the daemon looks whether the kernel's free-space shortcut is open.
const LOOK_MS: u64 = 1000;
/// A page without a record, as those of the top tier are.
const UNTRACKED: Pfn = Pfn::MAX >> 1;
/// Looking at the records of one hot section, in ns: 32 KiB at memory speed.
const SECTION_NS: f64 = 4000.0;

struct Pghot {
    settings: Settings,
    rule: Rule,
    table: Arc<Table>,
    fakes: Vec<Box<dyn Fake>>,
    /// When each source wants to be asked next, in ns.
    due_ns: Vec<Option<u64>>,
    lanes: Vec<Lane>,
    /// The kernel would promote in faults, so they are off and page tables tell.
    is_standing_by: bool,
    looked_ms: Option<u64>,
}

/// One lower-tier node's migrator.
struct Lane {
    migrator: Migrator,
    due_ms: u64,
}

fn daemon_ms(world: &World) -> u64 {
    EPOCH_MS + world.trouble.clock_ahead_ms + world.now_ms()
}

impl Pghot {
    fn new(world: &World, changes: &[Setting]) -> Result<Pghot, Error> {
        let (settings, rule) = settings_of(world, changes)?;
        let ranges = world.memory.ranges();
        let span = Span::new(ranges).map_err(|error| Error::field("machine", error.to_string()))?;
        let table = Arc::new(Table::in_memory(settings.mode, span));
        let config = Config {
            rule,
            scan_stall_max: Duration::from_millis(u64::from(settings.scan_stall_max_ms)),
            quick_fault: Duration::from_millis(u64::from(settings.quick_fault_ms)),
            hint_faults_run: settings.enabled_sources & 1 != 0,
        };
        let enabled = SOURCES
            .iter()
            .filter(|source| source.bit & settings.enabled_sources != 0);
        let fakes: Vec<_> = enabled
            .map(|source| (source.fake)(&table, &config))
            .collect();
        let lane = |nid| Lane {
            migrator: Migrator::new(nid),
            due_ms: EPOCH_MS,
        };
        Ok(Pghot {
            due_ns: vec![Some(0); fakes.len()],
            lanes: world.spec.lower_tier().map(lane).collect(),
            settings,
            rule,
            table,
            fakes,
            is_standing_by: false,
            looked_ms: None,
        })
    }

    fn has_source(&self, kind: Kind) -> bool {
        self.fakes.iter().any(|fake| fake.descriptor().kind == kind)
    }

    /// As the daemon does: while the kernel would promote in the fault, page tables stand in for faults.
    fn look_at_free_space(&mut self, world: &World) {
        let now_ms = world.now_ms();
        if self
            .looked_ms
            .is_some_and(|looked| now_ms < looked + LOOK_MS)
        {
            return;
        }
        self.looked_ms = Some(now_ms);
        let is_open = world
            .nodes
            .iter()
            .any(|node| node.is_top_tier && node.has_plenty());
        let stands_by =
            is_open && self.has_source(Kind::HintFaults) && self.has_source(Kind::PageTables);
        if stands_by != self.is_standing_by {
            self.is_standing_by = stands_by;
            self.configure();
        }
    }

    /// Tells the sources how to work from now on.
    fn configure(&mut self) {
        let config = Config {
            rule: self.rule,
            scan_stall_max: Duration::from_millis(u64::from(self.settings.scan_stall_max_ms)),
            quick_fault: Duration::from_millis(u64::from(self.settings.quick_fault_ms)),
            hint_faults_run: self.has_source(Kind::HintFaults) && !self.is_standing_by,
        };
        self.fakes
            .iter_mut()
            .for_each(|fake| fake.configure(&config));
    }

    fn tell(&mut self, event: Event, access: &Access, world: &mut World) {
        let now = daemon_time(world);
        for _ in 0..world.trouble.reports() {
            for fake in &mut self.fakes {
                fake.event(event, access, now);
            }
        }
    }

    fn step_sources(&mut self, world: &mut World, tasks: &[Task]) {
        let now = daemon_time(world);
        for (fake, due_ns) in self.fakes.iter_mut().zip(&mut self.due_ns) {
            if due_ns.is_none_or(|due| world.now_ns < due) {
                continue;
            }
            let now_ns = world.now_ns;
            let mut bits = Bits {
                world,
                tasks,
                entries: Cell::new(0),
            };
            let next = fake.step(&mut bits, now);
            let spent_ns = bits.spent_ns();
            *due_ns = next.map(|wait| now_ns + wait.as_nanos() as u64);
            world.counters.daemon_ns += spent_ns;
        }
    }

    fn pass(&mut self, world: &mut World) {
        let sleep_ms = u64::from(self.settings.kmigrated_sleep_ms);
        for lane in &mut self.lanes {
            if daemon_ms(world) < lane.due_ms {
                continue;
            }
            let sections = lane.migrator.totals().hot_sections;
            let mut host = Host {
                world,
                spent_ns: 0.0,
            };
            let report = lane
                .migrator
                .pass(&self.table, &self.settings, &self.rule, &mut host);
            let spent_ns = host.spent_ns;
            let read = lane.migrator.totals().hot_sections - sections;
            world.counters.daemon_ns += spent_ns + read as f64 * SECTION_NS;
            lane.due_ms = next_pass_ms(report.started_ms, report.ended_ms, sleep_ms);
        }
    }
}

fn mode_name(mode: Format) -> &'static str {
    match mode {
        Format::Default => "default",
        Format::Precision => "precision",
    }
}

/// The settings of a mode, with the changes that a scenario or a command line asks for.
fn settings_of(world: &World, changes: &[Setting]) -> Result<(Settings, Rule), Error> {
    let mode = changes.iter().find(|(name, _)| name == "mode");
    let mode = match mode.map(|(_, value)| value.as_str()) {
        None | Some("default") => Format::Default,
        Some("precision") => Format::Precision,
        Some(other) => {
            return Err(Error::field(
                "mode",
                format!("`{other}` is not default or precision"),
            ));
        }
    };
    let mut settings = Settings::new(mode);
    if let Some(nid) = world.spec.lower_tier().next() {
        settings.target_nid = world.spec.nearest_top_tier(nid);
    }
    for (name, value) in changes.iter().filter(|(name, _)| name != "mode") {
        let set = settings.set(name, value);
        set.map_err(|error| Error::field(name, error.to_string()))?;
    }
    let rule = settings.rule();
    let rule = rule.map_err(|error| Error::field("system", error.to_string()))?;
    Ok((settings, rule))
}

fn daemon_time(world: &World) -> Duration {
    Duration::from_millis(EPOCH_MS + world.trouble.clock_ahead_ms)
        + Duration::from_nanos(world.now_ns)
}

fn access_of(world: &World, touch: &Touch) -> Access {
    let is_near = world.nodes[world.memory.node(touch.head)].is_top_tier;
    Access {
        head: match is_near {
            true => UNTRACKED,
            false => pfn_of(touch.head),
        },
        pages: u64::from(touch.pages),
        cpu: touch.cpu,
        nid: touch.node as Nid,
        is_hinted: false,
    }
}

impl System for Pghot {
    fn is_tiering(&self) -> bool {
        self.has_source(Kind::HintFaults) && !self.is_standing_by
    }

    fn hint_fault(&mut self, world: &mut World, fault: &Fault) -> f64 {
        let Fault {
            head,
            pages,
            node,
            latency_ms,
        } = *fault;
        let access = Access {
            head: pfn_of(head),
            pages: u64::from(pages),
            cpu: 0,
            nid: node as Nid,
            is_hinted: true,
        };
        let since_mark = Duration::from_millis(latency_ms);
        self.tell(Event::HintFault(since_mark), &access, world);
        // Between two looks at the free space, the kernel may still promote by itself.
        match world.nodes[node].has_plenty() {
            true => promote_in_fault(world, head, pages, node).unwrap_or(0.0),
            false => 0.0,
        }
    }

    fn miss_period(&self) -> Option<u64> {
        let mut fakes = self.fakes.iter();
        let sampler = fakes.find(|fake| fake.descriptor().bit == hw_sample::DESCRIPTOR.bit)?;
        Some(sampler.miss_period())
    }

    fn miss(&mut self, world: &mut World, touch: &Touch) {
        self.tell(Event::Misses(touch.count), &access_of(world, touch), world);
    }

    fn wants_reads(&self) -> bool {
        self.settings.enabled_sources & page_cache::DESCRIPTOR.bit != 0
    }

    fn read(&mut self, world: &mut World, touch: &Touch) {
        self.tell(Event::CacheRead, &access_of(world, touch), world);
    }

    fn step(&mut self, world: &mut World, tasks: &[Task]) {
        self.look_at_free_space(world);
        self.step_sources(world, tasks);
        self.pass(world);
    }

    fn set(&mut self, (name, value): &Setting) -> Result<(), Error> {
        let wrong = |what: String| Error::field(name, what);
        let mut settings = self.settings.clone();
        settings
            .set(name, value)
            .map_err(|error| wrong(error.to_string()))?;
        if settings.enabled_sources != self.settings.enabled_sources {
            return Err(wrong(
                "in the model it is fixed while the daemon runs".into(),
            ));
        }
        self.rule = settings.rule().map_err(|error| wrong(error.to_string()))?;
        self.settings = settings;
        self.configure();
        Ok(())
    }

    fn restart(&mut self, world: &World) {
        let changes: Vec<Setting> = (TUNABLES.iter())
            .map(|tunable| {
                let value = tunable.show((tunable.load)(&self.settings));
                (tunable.name.to_owned(), value)
            })
            .chain([("mode".to_owned(), mode_name(self.settings.mode).to_owned())])
            .collect();
        // It started with these once.
        if let Ok(new) = Pghot::new(world, &changes) {
            *self = new;
        }
    }

    fn totals(&self) -> Vec<Totals> {
        let lanes = self.lanes.iter();
        lanes.map(|lane| lane.migrator.totals().clone()).collect()
    }

    fn details(&self) -> Value {
        let lane = |lane: &Lane| {
            json!({
                "nid": lane.migrator.nid(),
                "totals": lane.migrator.totals(),
            })
        };
        let tunables = TUNABLES.iter().map(|tunable| {
            let value = tunable.show((tunable.load)(&self.settings));
            (tunable.name.to_owned(), value.into())
        });
        let stats = |fake: &dyn Fake| (fake.descriptor().name.to_owned(), json!(fake.stats()));
        json!({
            "tunables": tunables.collect::<serde_json::Map<_, _>>(),
            "lower_tier": self.lanes.iter().map(lane).collect::<Vec<_>>(),
            "sources": self.fakes.iter().map(|fake| stats(&**fake)).collect::<serde_json::Map<_, _>>(),
        })
    }
}
