//! pghot: the real engine, records and sources' decisions, on the model instead of a kernel.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use pghot_engine::{
    Batch, Found, Machine, Migrator, NodeRole, Outcome, Place, Settings, TUNABLES, Totals,
    next_pass_ms,
};
use pghot_hotness::{Format, Nid, Pfn, Rule, Span, Table};
use pghot_sources::fake::{Access, AccessedBits, Event, Fake, Owner};
use pghot_sources::{Config, Kind, SOURCES};
use serde_json::{Value, json};

use super::gate::promote_in_fault;
use super::{Descriptor, Fault, Setting, System};
use crate::Error;
use crate::memory::{ABSENT, Memory, Page, page_of, pfn_of};
use crate::node::Node;
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
/// Finding out who maps a page, in ns.
const RESOLVE_NS: f64 = 700.0;
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
                read_pages: 0,
            };
            let next = fake.step(&mut bits, now);
            let read_pages = bits.read_pages;
            *due_ns = next.map(|wait| now_ns + wait.as_nanos() as u64);
            world.counters.daemon_ns += read_pages as f64 * world.spec.costs.accessed_bit_ns;
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

impl System for Pghot {
    fn is_tiering(&self) -> bool {
        self.has_source(Kind::HintFaults) && !self.is_standing_by
    }

    fn hint_fault(&mut self, world: &mut World, fault: &Fault) -> f64 {
        let Fault {
            head, pages, node, ..
        } = *fault;
        let access = Access {
            head: pfn_of(head),
            pages: u64::from(pages),
            cpu: 0,
            nid: node as Nid,
            is_hinted: true,
        };
        self.tell(Event::HintFault, &access, world);
        // Between two looks at the free space, the kernel may still promote by itself.
        match world.nodes[node].has_plenty() {
            true => promote_in_fault(world, head, pages, node).unwrap_or(0.0),
            false => 0.0,
        }
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

/// The accessed bits of the model, as sources read them.
///
/// Pages of the top tier are numbered too, so that a page keeps its number; they are just never shown.
struct Bits<'a> {
    world: &'a mut World,
    tasks: &'a [Task],
    read_pages: u64,
}

impl Bits<'_> {
    fn pid_of(&self, task: &Task) -> u32 {
        self.world.memory.regions()[task.number].pid
    }

    /// Pages of the machine by the numbers that an owner's pages have.
    fn pages(&self, owner: Owner, pages: &Range<u64>) -> Option<Range<Page>> {
        let pid = match owner {
            Owner::Process(pid) => pid,
            Owner::Lruvec { memcg_id, .. } => memcg_id as u32,
        };
        let mut regions = self.world.memory.regions().iter();
        let region = regions.find(|region| region.pid == pid)?;
        let limit = u64::from(region.pages.end);
        let at = |number: u64| (u64::from(region.pages.start) + number).min(limit) as Page;
        Some(at(pages.start)..at(pages.end))
    }
}

impl AccessedBits for Bits<'_> {
    fn owners(&self) -> Vec<(Owner, u64)> {
        let running = self.tasks.iter().filter(|task| task.is_running());
        running
            .flat_map(|task| {
                let pages = task.region.pages.len() as u64;
                let process = Owner::Process(self.pid_of(task));
                let lruvec = Owner::Lruvec {
                    memcg_id: u64::from(self.pid_of(task)),
                    nid: task.region.home,
                };
                [(process, pages), (lruvec, pages)]
            })
            .collect()
    }

    fn clear(&mut self, owner: Owner, pages: Range<u64>) {
        if let Some(pages) = self.pages(owner, &pages) {
            self.read_pages += pages.len() as u64;
            let World {
                heat,
                memory,
                now_ns,
                ..
            } = &mut *self.world;
            heat.clear(memory, pages, *now_ns);
        }
    }

    fn young(&self, owner: Owner, pages: Range<u64>, sink: &mut dyn FnMut(&Access)) {
        let Some(pages) = self.pages(owner, &pages) else {
            return;
        };
        let world = &*self.world;
        let Some(region) = world.memory.region_of(pages.start) else {
            return;
        };
        for head in pages.step_by(region.folio_pages as usize) {
            let state = world.memory.state(head);
            if state & ABSENT != 0 || world.nodes[world.memory.node(head)].is_top_tier {
                continue;
            }
            if world.heat.is_accessed(&world.memory, head, world.now_ns) {
                sink(&Access {
                    head: pfn_of(head),
                    pages: u64::from(region.folio_pages),
                    cpu: 0,
                    nid: self.tasks[region.process].node as Nid,
                    is_hinted: !region.is_shared,
                });
            }
        }
    }
}

/// The model, as the engine sees it.
struct Host<'a> {
    world: &'a mut World,
    /// What the pass took so far, in ns: the daemon's clock goes on while it works.
    spent_ns: f64,
}

impl Machine for Host<'_> {
    fn now_ms(&self) -> u64 {
        let now_ns = self.world.now_ns + self.spent_ns as u64;
        EPOCH_MS + self.world.trouble.clock_ahead_ms + now_ns / 1_000_000
    }

    fn role(&mut self, nid: Nid) -> NodeRole {
        match self.world.nodes.get(nid as usize) {
            Some(node) if !node.is_online => NodeRole::Absent,
            Some(node) if node.is_top_tier => NodeRole::TopTier,
            Some(_) => NodeRole::LowerTier,
            None => NodeRole::Absent,
        }
    }

    fn room_pages(&mut self, target: Nid) -> u64 {
        let demotes = self.world.spec.kernel.demotion_enabled;
        let room = |node: &Node| match demotes {
            true => node.room_with_reclaim(),
            false => node.room(),
        };
        self.world.nodes.get(target as usize).map_or(0, room)
    }

    fn resolve(&mut self, pfns: &[Pfn], found: &mut Vec<Found>) {
        self.spent_ns += pfns.len() as f64 * RESOLVE_NS;
        for &pfn in pfns {
            found.push(match self.world.trouble.hides() {
                true => Found::Unresolved(Outcome::NotFound),
                false => self.find(pfn),
            });
        }
    }

    fn promote(&mut self, batch: &Batch, outcomes: &mut Vec<Outcome>) {
        let costs = &self.world.spec.costs;
        let huge = batch.folios.iter().filter(|folio| folio.pages > 1).count();
        let small = batch.folios.len() - huge;
        self.spent_ns += costs.move_pages_ns(small as u64) + huge as f64 * costs.move_huge_ns;
        self.world.counters.move_calls += 1;
        for folio in &batch.folios {
            let to = batch.target as usize;
            let head = page_of(folio.pfn).map(|page| Memory::head(page, folio.pages));
            let outcome = head.map_or(Outcome::Gone, |head| self.move_one(head, folio.pages, to));
            outcomes.push(outcome);
        }
    }
}

impl Host<'_> {
    fn find(&self, pfn: Pfn) -> Found {
        let memory = &self.world.memory;
        let Some((page, region)) =
            page_of(pfn).and_then(|page| Some((page, memory.region_of(page)?)))
        else {
            return Found::Unresolved(Outcome::Free);
        };
        let head = Memory::head(page, region.folio_pages);
        if memory.state(head) & ABSENT != 0 {
            return Found::Unresolved(Outcome::Free);
        }
        if self.world.nodes[memory.node(head)].is_top_tier {
            return Found::Unresolved(Outcome::MovedAlready);
        }
        let address = u64::from(head - region.pages.start) << 12;
        Found::Folio {
            place: Place::in_process(region.pid, address),
            head: pfn_of(head),
            pages: region.folio_pages,
        }
    }

    fn move_one(&mut self, head: Page, pages: u32, to: usize) -> Outcome {
        if self.world.memory.state(head) & ABSENT != 0 {
            return Outcome::Gone;
        }
        if self.world.nodes[self.world.memory.node(head)].is_top_tier {
            return Outcome::MovedAlready;
        }
        if let Some(refusal) = self.world.trouble.refusal() {
            return refusal;
        }
        let moved = self.world.trouble.lies || self.world.move_folio(head, pages, to);
        match moved {
            true => Outcome::Moved,
            false => Outcome::NoMemory,
        }
    }
}
