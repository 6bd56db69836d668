//! What the threads of the daemon share, and changing it at run time. It knows none of them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, TryLockError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use pghot_engine::arbiter::Reads;
use pghot_engine::demoter::{DemoterReport, HugeFault};
use pghot_engine::marking::{HintFaults, MarkingReport};
use pghot_engine::owners::Owners;
use pghot_engine::{
    Journal, Marking, Moved, PassReport, QuickFault, Settings, Totals, TunableError, Turns,
};
use pghot_events::event;
use pghot_hotness::{Nid, Rule, Swept, Table};
use pghot_linux::SysRoot;
use pghot_linux::exchange_cpus::ExchangeCpus;
use pghot_linux::groups::Group;
use pghot_linux::host::monotonic;
use pghot_linux::moving::MovingTime;
use pghot_linux::page_cache::page_cache_pages;
use pghot_linux::processes::Process;
use pghot_linux::topology::Topology;
use pghot_linux::vmstat::Vmstat;
use pghot_sources::tunables;

use crate::config_file::ConfigFile;
use crate::durations::Durations;
use crate::error::RunError;
use crate::free_space::FreeSpace;
use crate::latency::Latency;
use crate::lock;
use crate::owners::Looked;
use crate::sources::Sources;
use crate::status::RecordingReport;
use crate::stop::Stop;
use crate::tiers::check_target;
use crate::traces::Spans;

/// Moved pages that may wait until their waits are measured: what one pass moves at most.
const MOVED_MAX: usize = 1 << 18;

/// What is known of one lower-tier node's migrator.
#[derive(Default)]
pub struct MigratorState {
    /// The node.
    pub nid: Nid,
    /// Its decisions.
    pub journal: Journal,
    /// What became of the node's records since the last pass.
    pub swept: Mutex<Swept>,
    /// Pages were demoted since the last pass began.
    pub has_new_room: AtomicBool,
    /// Copied after each pass, so that nobody who asks waits for one.
    pub published: Mutex<Published>,
}

/// What a migrator shows of itself.
#[derive(Debug, Clone, Default)]
pub struct Published {
    /// Since the start.
    pub totals: Totals,
    /// The newest pass.
    pub last_pass: PassReport,
    /// How long passes took.
    pub passes: Durations,
    /// How long batches took.
    pub batches: Durations,
}

/// What is known of the demoter.
#[derive(Default)]
pub struct DemoterState {
    /// After each pass.
    pub published: Mutex<DemoterReport>,
    /// How much the kernel's scanner marks; `None` where that is not for pghot to say.
    pub marking: Mutex<Option<MarkingReport>>,
    /// Whether it makes room: then promotion leaves kswapd alone.
    pub makes_room: Arc<AtomicBool>,
    /// Where it does.
    pub exchange_cpus: ExchangeCpus,
    /// Whether a migrator has found no room since the last pass.
    pub is_called_for: AtomicBool,
}

/// The state of a running daemon.
pub struct Shared {
    /// Where the kernel's files are.
    pub root: SysRoot,
    /// The hotness records.
    pub table: Arc<Table>,
    /// One per lower-tier node.
    pub migrators: Vec<MigratorState>,
    /// Ends every thread.
    pub stop: Arc<Stop>,
    /// Nothing is moved.
    pub dry_run: bool,
    /// When the daemon started.
    pub started: Instant,
    /// The same, in Unix time.
    pub started_unix: Duration,
    /// Changes of tunables that were accepted since.
    pub config_generation: AtomicU64,
    /// The kernel's counters at that moment; `None` if they could not be read.
    pub vmstat_at_start: Option<Vmstat>,
    /// What the config file says.
    pub config_file: Arc<ConfigFile>,
    /// The sources.
    pub sources: Mutex<Sources>,
    /// How long pages waited.
    pub latency: Mutex<Latency>,
    /// Moved pages whose waits are not measured yet.
    moved: Mutex<Vec<Moved>>,
    /// A pass has seen ready pages since samples were drained.
    pub are_samples_due: AtomicBool,
    /// Who makes room in the top tier.
    pub demoter: DemoterState,
    /// What became of whose pages.
    pub owners: Owners,
    /// The memory of the largest processes.
    pub walked: Mutex<Looked<Vec<Process>>>,
    /// The memory of all cgroups, or why it is not known.
    pub groups: Mutex<Looked<Result<Vec<Group>, String>>>,
    /// What moving pages costs.
    pub moving: MovingTime,
    /// Where spans of passes go.
    pub spans: Spans,
    /// Whose turn it is to clear accessed bits.
    pub turns: Turns,
    /// The access profiles, if any are recorded.
    pub recording: Mutex<Option<RecordingReport>>,
    /// The free memory of the top tier.
    free_space: Mutex<FreeSpace>,
    /// The settings in force, with the rule made from them.
    active: RwLock<(Settings, Rule)>,
}

impl Shared {
    /// A daemon that has not started its threads yet. `settings` must be possible in their mode.
    pub fn new(
        root: SysRoot,
        table: Arc<Table>,
        settings: Settings,
        nids: &[Nid],
        sources: Sources,
        dry_run: bool,
        stop: Arc<Stop>,
    ) -> Result<Shared, RunError> {
        let rule = settings.rule()?;
        let migrator = |&nid: &Nid| MigratorState {
            nid,
            ..MigratorState::default()
        };
        Ok(Shared {
            vmstat_at_start: Vmstat::read(&root).ok(),
            demoter: DemoterState::default(),
            owners: Owners::default(),
            walked: Mutex::default(),
            groups: Mutex::default(),
            moving: MovingTime::default(),
            spans: Spans::default(),
            turns: Turns::default(),
            recording: Mutex::default(),
            free_space: Mutex::new(FreeSpace::open(&root)),
            root,
            table,
            migrators: nids.iter().map(migrator).collect(),
            stop,
            dry_run,
            started: Instant::now(),
            // A clock before 1970 is as good as none.
            started_unix: UNIX_EPOCH.elapsed().unwrap_or_default(),
            config_generation: AtomicU64::new(0),
            config_file: Arc::default(),
            sources: Mutex::new(sources),
            latency: Mutex::new(Latency::new()),
            moved: Mutex::default(),
            are_samples_due: AtomicBool::default(),
            active: RwLock::new((settings, rule)),
        })
    }

    /// The settings in force, and the rule that they ask for.
    pub fn settings_and_rule(&self) -> (Settings, Rule) {
        let active = self.active.read().unwrap_or_else(PoisonError::into_inner);
        active.clone()
    }

    /// The settings in force.
    pub fn settings(&self) -> Settings {
        self.settings_and_rule().0
    }

    /// Ages the records of all nodes.
    pub fn age(&self) {
        let (_, rule) = self.settings_and_rule();
        let now_ms = monotonic().as_millis() as u64;
        for migrator in &self.migrators {
            let interval_ms = rule.ageing_interval_ms();
            let swept = self.table.sweep(migrator.nid, now_ms, interval_ms, &rule);
            *lock(&migrator.swept) += swept;
        }
    }

    /// A pass has moved pages: leaves them for [`Shared::measure_waits`]. What does not fit is not
    /// measured.
    pub fn note_moved(&self, moved: &[Moved]) {
        let mut waiting = lock(&self.moved);
        let left = MOVED_MAX.saturating_sub(waiting.len());
        waiting.extend(moved.iter().take(left));
    }

    /// Measures how long pages waited that moved. Skipped while sources are being started or asked:
    /// the samples wait in their ring.
    pub fn measure_waits(&self) {
        self.are_samples_due.store(false, Ordering::Relaxed);
        let mut sources = match self.sources.try_lock() {
            Ok(sources) => sources,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        // In this order: what has moved became ready before, so its sample is drained by then.
        let moved = std::mem::take(&mut *lock(&self.moved));
        let mut latency = lock(&self.latency);
        sources.drain_ready(&mut latency);
        moved
            .iter()
            .for_each(|it| latency.moved(it.pfn, it.when_ns));
    }

    /// Looks, at most once a second, whether a top-tier node has so much free memory that the
    /// kernel promotes in the hint fault, and what came of watching reads of page cache, which goes
    /// up into free memory; and tells the sources. Skipped while sources are being started or
    /// asked.
    pub fn note_free_space(&self, now: Instant) {
        let Ok(mut sources) = self.sources.try_lock() else {
            return;
        };
        if !sources.wants_look(now) {
            return;
        }
        let mut free_space = lock(&self.free_space);
        if let Some(has_plenty) = free_space.look() {
            sources.note_free_space(now, has_plenty);
            sources.note_reads(now, || self.reads(&free_space));
        }
    }

    /// What came of watching reads, but for how many were watched.
    fn reads(&self, free_space: &FreeSpace) -> Reads {
        let cache_pages = |it: &MigratorState| page_cache_pages(&self.root, it.nid);
        let promoted = |it: &MigratorState| lock(&it.published).totals.cache_pages_moved;
        let (room_pages, top_tier_pages) = free_space.room_pages();
        Reads {
            watched: 0,
            promoted_pages: self.migrators.iter().map(promoted).sum(),
            cache_pages: self.migrators.iter().filter_map(cache_pages).sum(),
            room_pages,
            top_tier_pages,
        }
    }

    /// Looks whether somebody else has changed the settings that sources need, and whether sources
    /// live. Skipped while sources are being started or asked.
    pub fn check_sources(&self, now: Instant) {
        if let Ok(mut sources) = self.sources.try_lock() {
            sources.check(now);
        }
    }

    /// Says which hint faults are quick, and asks which have come. `None` while sources are being
    /// started or asked.
    pub fn watch_faults(&self, quick_fault: QuickFault) -> Option<(HintFaults, Vec<HugeFault>)> {
        let mut sources = self.sources.try_lock().ok()?;
        sources.set_quick_fault(quick_fault);
        Some((sources.hint_faults(), sources.take_huge_faults()))
    }

    /// Tells the kernel's scanner how to mark. Skipped while sources are being started or asked.
    pub fn mark(&self, marking: &Marking) {
        if let Ok(mut sources) = self.sources.try_lock() {
            let is_told = sources.mark(marking.visits());
            *lock(&self.demoter.marking) = is_told.then(|| marking.report());
        }
    }

    /// Changes one tunable, as [`Shared::change`] does. Returns its value.
    pub fn set(&self, name: &str, text: &str) -> Result<String, String> {
        let sentence = |error: TunableError| error.to_string();
        let tunable = tunables::find(name).map_err(sentence)?;
        let settings = self.change(|it| it.set(tunable, text).map_err(sentence))?;
        let value = settings.show(tunable);
        event!(
            tunable_changed,
            tunable = name,
            value,
            "{name} is {value} now"
        );
        Ok(value)
    }

    /// Changes tunables, all or none. They are in force when this returns: for reports at once, for
    /// promotion from the next pass on. On an error nothing has changed.
    pub fn change(
        &self,
        change: impl FnOnce(&mut Settings) -> Result<(), String>,
    ) -> Result<Settings, String> {
        // Held throughout, so that two clients cannot mix their changes.
        let mut sources = lock(&self.sources);
        let before = self.settings();
        let mut settings = before.clone();
        change(&mut settings)?;
        if settings == before {
            return Ok(settings);
        }
        if settings.target_nid != before.target_nid {
            let topology = Topology::read(&self.root).map_err(|error| error.to_string())?;
            check_target(&topology, &settings).map_err(|error| error.to_string())?;
        }
        let rule = settings.rule().map_err(|error| error.to_string())?;
        sources.configure(&tunables::config(&settings, rule))?;
        let enabled = tunables::enabled_sources(&settings);
        if enabled != tunables::enabled_sources(&before) {
            sources.enable(enabled);
        }
        let active = (settings.clone(), rule);
        *self.active.write().unwrap_or_else(PoisonError::into_inner) = active;
        self.config_generation.fetch_add(1, Ordering::Relaxed);
        Ok(settings)
    }
}

#[cfg(test)]
mod tests;
