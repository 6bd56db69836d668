//! pghot: the real engine, records and sources' decisions, on the model instead of a kernel.

mod bits;
mod fakes;
mod host;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fakes::Fakes;
use host::{Busy, Host};
use pghot_engine::arbiter::{Arbiter, Kind, Reads};
use pghot_engine::demoter::{Demand, Demoter, HugeFault};
use pghot_engine::exchange::FaultTimes;
use pghot_engine::marking::HintFaults;
use pghot_engine::{
    Gates, History, Journal, Marking, Migrator, Outcome, Pace, Place, QuickFault, Settings, Totals,
    Turns, Waiting, marking, pulse,
};
use pghot_hotness::{Format, Nid, Pfn, Rule, Span, Table};
use pghot_sources::fake::{Event, FolioAccess};
use pghot_sources::{Descriptor as Source, SOURCES, hw_sample, tunables};
use serde_json::{Value, json};

use super::{Descriptor, Fault, Setting, System, Touch};
use crate::Error;
use crate::kernel::promotion::promote_in_fault;
use crate::machine::memory::{Page, pfn_of};
use crate::machine::node::Node;
use crate::machine::world::World;
use crate::traffic::task::Task;

pub(super) const DESCRIPTOR: Descriptor = Descriptor {
    name: "pghot",
    doc: "pghot with its tunables; the engine of the daemon.",
    make: |world, settings| Ok(Box::new(Pghot::new(world, settings)?)),
};

/// The simulation begins at this time of the daemon's clock: 0 is special in records.
const EPOCH_MS: u64 = 1_000_000;
/// A page without a record, as those of the top tier are.
const UNTRACKED: Pfn = Pfn::MAX >> 1;
/// Looking at the records of one hot section, in ns: 32 KiB at memory speed.
const SECTION_NS: f64 = 4000.0;

struct Pghot {
    settings: Settings,
    rule: Rule,
    table: Arc<Table>,
    arbiter: Arbiter,
    fakes: Fakes,
    migrators: Vec<PacedMigrator>,
    demoter: Demoter,
    demoter_due_ms: u64,
    is_room_called_for: bool,
    /// Hint faults so far, and which are quick now.
    quick_fault: QuickFault,
    marking: Marking,
    /// For the marking.
    busy: Busy,
    /// For the demoter.
    huge_faults: Vec<HugeFault>,
    /// Hint faults of the top tier.
    faults_above: u64,
    /// Pages of the machine for which one of the model stands.
    page_weight: u64,
}

/// One lower-tier node's migrator, with when its next pass begins.
struct PacedMigrator {
    migrator: Migrator,
    pace: Pace,
    due_ms: u64,
    wants_room: bool,
    waiting: BTreeMap<Nid, Waiting>,
}

fn daemon_ms(world: &World) -> u64 {
    EPOCH_MS + world.trouble.clock_ahead_ms + world.now_ms()
}

impl Pghot {
    fn new(world: &World, changes: &[Setting]) -> Result<Pghot, Error> {
        let (settings, rule) = settings_of(changes)?;
        let ranges = world.memory.ranges();
        let span = Span::new(ranges).map_err(|error| Error::field("machine", error.to_string()))?;
        let table = Arc::new(Table::in_memory(settings.mode, span));
        let config = tunables::config(&settings, rule);
        let (history, gates) = (History::default(), Gates::default());
        // The demoter counts in pages of the machine, the migrators in those of the model.
        let demoters = match world.spec.page_weight {
            1 => gates.clone(),
            _ => Gates::default(),
        };
        let migrator = |nid| PacedMigrator {
            migrator: Migrator::new(nid, history.clone(), gates.clone(), Journal::default()),
            pace: Pace::default(),
            due_ms: EPOCH_MS,
            wants_room: false,
            waiting: BTreeMap::new(),
        };
        let mut pghot = Pghot {
            arbiter: Arbiter::new(SOURCES.iter().map(Source::candidate), &config),
            fakes: Fakes::new(&table),
            migrators: world.spec.lower_tier().map(migrator).collect(),
            demoter: Demoter::new(history, demoters, Turns::default()),
            page_weight: world.spec.page_weight,
            demoter_due_ms: EPOCH_MS,
            is_room_called_for: false,
            quick_fault: QuickFault::as_set(&settings),
            marking: Marking::new(
                world
                    .spec
                    .node
                    .iter()
                    .map(|node| u64::from(node.cpus))
                    .sum(),
            ),
            busy: Busy::default(),
            huge_faults: Vec::new(),
            faults_above: 0,
            settings,
            rule,
            table,
        };
        // Before the first hint fault, as in the daemon.
        pghot.look_at_free_space(world);
        let enabled = tunables::enabled_sources(&pghot.settings);
        pghot.arbiter.enable(enabled);
        pghot.settle();
        Ok(pghot)
    }

    fn settle(&mut self) {
        // Fakes refuse nothing.
        let _ = self.arbiter.settle(&mut self.fakes);
    }

    fn look_at_free_space(&mut self, world: &World) {
        let now_ms = daemon_ms(world);
        if self.arbiter.wants_look(now_ms) {
            let top_tier = world.nodes.iter().filter(|node| node.is_top_tier);
            self.arbiter
                .note_free_space(now_ms, top_tier.map(Node::has_plenty));
            self.arbiter.note_reads(now_ms, self.reads(world));
            self.settle();
        }
    }

    fn tell(&mut self, event: Event, access: &FolioAccess, world: &mut World) {
        let now = daemon_time(world);
        for _ in 0..world.trouble.reports() {
            self.fakes.tell(event, access, now);
        }
    }

    fn pass(&mut self, world: &mut World) {
        let sleep_ms = u64::from(self.settings.kmigrated_sleep_ms);
        // A migrator counts in pages of the model.
        let mut settings = self.settings.clone();
        settings.promote_rate_limit_mbps =
            (settings.promote_rate_limit_mbps).div_ceil(world.spec.page_weight);
        for paced in &mut self.migrators {
            let now_ms = daemon_ms(world);
            if now_ms < paced.due_ms {
                continue;
            }
            let (nid, interval_ms) = (paced.migrator.nid(), self.rule.ageing_interval_ms());
            let swept = self.table.sweep(nid, now_ms, interval_ms, &self.rule);
            paced.migrator.note_swept(swept);
            let sections = paced.migrator.totals().hot_sections;
            let mut host = Host {
                world,
                spent_ns: 0.0,
                is_room_made: self.demoter.is_able(),
            };
            let report = paced
                .migrator
                .pass(&self.table, &settings, &self.rule, &mut host);
            let spent_ns = host.spent_ns;
            let read = paced.migrator.totals().hot_sections - sections;
            let read = read * world.spec.page_weight;
            world.counters.daemon_ns += spent_ns + read as f64 * SECTION_NS;
            paced.due_ms = paced.pace.next_ms(&report, sleep_ms);
            paced.wants_room = report.wants_room();
            self.is_room_called_for |= paced.wants_room;
            paced.waiting = report.waiting;
        }
    }

    fn make_room(&mut self, world: &mut World) {
        let now_ms = daemon_ms(world);
        let is_called = self.is_room_called_for && self.demoter.is_to_be_woken();
        if now_ms < self.demoter_due_ms && !is_called {
            return;
        }
        self.is_room_called_for = false;
        let mut demand = self.demand(world.spec.page_weight);
        demand.huge_faults = std::mem::take(&mut self.huge_faults);
        let mut host = Host {
            world,
            spent_ns: 0.0,
            is_room_made: true,
        };
        let rest_ms = self.demoter.pass(&demand, &self.settings, &mut host);
        let spent_ns = host.spent_ns;
        world.counters.daemon_ns += spent_ns;
        self.demoter_due_ms = now_ms + rest_ms + (spent_ns / 1e6) as u64;
        if !self.demoter.demoted().is_empty() {
            let waiting = self.migrators.iter_mut().filter(|it| it.wants_room);
            waiting.for_each(|it| it.due_ms = now_ms);
        }
        let quick_fault = self.demoter.report().quick_fault(&self.settings);
        if quick_fault != self.quick_fault {
            self.quick_fault = quick_fault;
            self.arbiter.set_quick_fault(quick_fault);
            self.settle();
        }
        let promoted = demand.outcomes.promoted + self.demoter.report().huge_promoted_pages;
        let worth = self.demoter.report().worth();
        let faults = HintFaults {
            times: demand.faults,
            seldom: 0,
            above: self.faults_above,
        };
        if self.marking.is_due(now_ms, faults.all(), promoted, worth) {
            self.marking.note_busy(self.busy.cpus(now_ms, world));
            self.marking.note(now_ms, faults.all(), promoted, worth);
        }
        if let Some(pages) = self.demoter.alarm() {
            self.marking.note_alarm(now_ms, pages);
        }
        (self.marking).mark_above(self.demoter.report().marks_above);
        let is_told = self.times_scans(world);
        if is_told {
            let visits = self.arbiter.visits(self.marking.visits());
            world.spec.kernel.scan_size_mib = visits.size_mb;
            world.scanner_rests = visits.rests;
            world.marks_above = visits.marks_above;
        }
        self.arbiter.note_scanner(is_told);
        self.settle();
    }

    /// What came of watching reads, in pages of the machine.
    fn reads(&self, world: &World) -> Reads {
        let weight = world.spec.page_weight;
        let Some((fake, _)) = self.fakes.cache_reads() else {
            return Reads::default();
        };
        let stats = fake.stats();
        let memory = &world.memory;
        let is_far = |page: &Page| !world.nodes[memory.node(*page)].is_top_tier;
        let regions = memory.regions().iter();
        let cache = regions.filter(|region| !region.backing.is_mapped());
        let cache_pages = cache.flat_map(|region| region.pages.clone());
        let top_tier = || world.nodes.iter().filter(|node| node.is_top_tier);
        let migrators = self.migrators.iter();
        let promoted = migrators.map(|it| it.migrator.totals().cache_pages_moved);
        Reads {
            watched: (stats.recorded + stats.not_tracked) * weight,
            promoted_pages: promoted.sum::<u64>() * weight,
            cache_pages: cache_pages.filter(is_far).count() as u64 * weight,
            room_pages: top_tier().map(Node::room).sum::<u64>() * weight,
            top_tier_pages: top_tier().map(|node| node.pages).sum::<u64>() * weight,
        }
    }

    /// What waits and what came, in pages of the machine, of which each of the model's stands for
    /// `weight`.
    fn demand(&self, weight: u64) -> Demand {
        let mut demand = Demand {
            faults: FaultTimes(self.fakes.fault_times().0.map(|faults| faults * weight)),
            scanner_rests: self.marking.visits().rests,
            marks_enough: self.marking.marks_enough(),
            lower_tier: self.migrators.iter().map(|it| it.migrator.nid()).collect(),
            ..Demand::default()
        };
        for paced in &self.migrators {
            demand.add(&paced.waiting, paced.migrator.totals());
        }
        for waiting in demand.waiting.values_mut() {
            waiting.quick_pages *= weight;
            waiting.counted_pages *= weight;
        }
        demand.outcomes.promoted *= weight;
        demand.outcomes.returned *= weight;
        demand
    }

    /// Whether it times the kernel's scanner.
    fn times_scans(&self, world: &World) -> bool {
        let mut started = self.fakes.started();
        let sees_faults = started.any(|fake| fake.descriptor().kind == Kind::HintFaults);
        let with_cpus = world.spec.node.iter().filter(|node| node.cpus > 0).count();
        let normal = world.spec.kernel.normal_balancing;
        sees_faults && !marking::is_for_normal_balancing(normal, with_cpus)
    }
}

fn mode_name(mode: Format) -> &'static str {
    match mode {
        Format::Default => "default",
        Format::Precision => "precision",
    }
}

/// The settings of a mode, with the changes that a scenario or a command line asks for.
fn settings_of(changes: &[Setting]) -> Result<(Settings, Rule), Error> {
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
    for (name, value) in changes.iter().filter(|(name, _)| name != "mode") {
        let set = tunables::set(&mut settings, name, value);
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

fn access_of(world: &World, touch: &Touch) -> FolioAccess {
    let is_near = world.nodes[world.memory.node(touch.head)].is_top_tier;
    FolioAccess {
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
        self.fakes.hint_faults_run()
    }

    fn hint_fault(&mut self, world: &mut World, fault: &Fault) -> f64 {
        let Fault {
            head,
            pages,
            node,
            since_mark,
        } = *fault;
        let nid = world.memory.node(head);
        let is_above = world.nodes[nid].is_top_tier;
        if pages > 1
            && let Some(region) = world.memory.region_of(head)
        {
            self.huge_faults.push(HugeFault {
                place: Place::in_process(region.pid, u64::from(head - region.pages.start) << 12),
                above: is_above.then_some(nid as Nid),
                since_mark_us: since_mark.as_micros() as u64,
            });
        }
        if is_above {
            self.faults_above += 1;
            return 0.0;
        }
        let access = FolioAccess {
            head: pfn_of(head),
            pages: u64::from(pages),
            cpu: 0,
            nid: node as Nid,
            is_hinted: true,
        };
        self.tell(Event::HintFault(since_mark), &access, world);
        // Between two looks at the free space, the kernel may still promote by itself.
        match world.nodes[node].has_plenty() {
            true => promote_in_fault(world, head, pages, node).unwrap_or(0.0),
            false => 0.0,
        }
    }

    fn miss_period(&self) -> Option<u64> {
        let mut fakes = self.fakes.started();
        let sampler = fakes.find(|fake| fake.descriptor().bit == hw_sample::DESCRIPTOR.bit)?;
        Some(sampler.miss_period())
    }

    fn miss(&mut self, world: &mut World, touch: &Touch) {
        self.tell(Event::Misses(touch.count), &access_of(world, touch), world);
    }

    fn wants_reads(&self) -> bool {
        let sees = self.fakes.cache_reads();
        sees.is_some_and(|(_, standing_by)| !standing_by)
    }

    fn read(&mut self, world: &mut World, touch: &Touch) {
        self.tell(Event::CacheRead, &access_of(world, touch), world);
    }

    fn begin(&mut self, world: &mut World, tasks: &mut [Task]) {
        if !self.times_scans(world) {
            return;
        }
        let now_ns = world.now_ns;
        let kernel = &mut world.spec.kernel;
        kernel.scan_delay_ms = marking::DELAY_MS;
        kernel.scan_period_min_ms = pulse::PERIOD_MIN_MS;
        kernel.scan_size_mib = marking::START_SIZE_MB;
        for task in tasks {
            task.scan.restart(&task.region, kernel, now_ns);
        }
    }

    fn step(&mut self, world: &mut World, tasks: &[Task]) {
        self.look_at_free_space(world);
        world.reads_are_watched = self.wants_reads();
        let now = daemon_time(world);
        self.fakes.step(world, tasks, now);
        self.pass(world);
        self.make_room(world);
    }

    fn set(&mut self, (name, value): &Setting) -> Result<(), Error> {
        let wrong = |what: String| Error::field(name, what);
        let mut settings = self.settings.clone();
        let set = tunables::set(&mut settings, name, value);
        set.map_err(|error| wrong(error.to_string()))?;
        self.rule = settings.rule().map_err(|error| wrong(error.to_string()))?;
        self.arbiter
            .set_config(&tunables::config(&settings, self.rule));
        self.arbiter.enable(tunables::enabled_sources(&settings));
        self.quick_fault = QuickFault::as_set(&settings);
        self.settings = settings;
        self.settle();
        Ok(())
    }

    fn restart(&mut self, world: &World) {
        let changes: Vec<Setting> = tunables::all()
            .map(|tunable| (tunable.name.to_owned(), self.settings.show(tunable)))
            .chain([("mode".to_owned(), mode_name(self.settings.mode).to_owned())])
            .collect();
        // It started with these once.
        if let Ok(new) = Pghot::new(world, &changes) {
            *self = new;
        }
    }

    fn totals(&self) -> Vec<Totals> {
        let migrators = self.migrators.iter();
        let mut by_name = Totals::default();
        let pages = self.demoter.report().huge_promoted_pages / self.page_weight;
        by_name.outcomes.add(Outcome::Moved, pages);
        let totals = migrators.map(|paced| paced.migrator.totals().clone());
        totals.chain([by_name]).collect()
    }

    fn details(&self) -> Value {
        let node = |paced: &PacedMigrator| {
            json!({
                "nid": paced.migrator.nid(),
                "totals": paced.migrator.totals(),
            })
        };
        let tunables = tunables::all()
            .map(|tunable| (tunable.name.to_owned(), self.settings.show(tunable).into()));
        let stats = (self.fakes.started())
            .map(|fake| (fake.descriptor().name.to_owned(), json!(fake.stats())));
        let states = self.arbiter.states().zip(SOURCES);
        let states = states.map(|(state, source)| (source.name.to_owned(), state.name().into()));
        json!({
            "tunables": tunables.collect::<serde_json::Map<_, _>>(),
            "lower_tier": self.migrators.iter().map(node).collect::<Vec<_>>(),
            "sources": stats.collect::<serde_json::Map<_, _>>(),
            "demoter": self.demoter.report(),
            "marking": self.marking.report(),
            "source_states": states.collect::<serde_json::Map<_, _>>(),
        })
    }
}
