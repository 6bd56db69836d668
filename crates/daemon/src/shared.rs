//! What the threads of the daemon share, and changing it at run time. It knows none of them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, TryLockError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use pghot_engine::demoter::DemoterReport;
use pghot_engine::exchange::FaultTimes;
use pghot_engine::marking::MarkingReport;
use pghot_engine::owners::Owners;
use pghot_engine::{Journal, Moved, PassReport, QuickFault, Settings, Totals};
use pghot_hotness::{Nid, Rule, Swept, Table};
use pghot_linux::SysRoot;
use pghot_linux::host::monotonic;
use pghot_linux::moving::MovingTime;
use pghot_linux::topology::Topology;
use pghot_linux::vmstat::Vmstat;
use pghot_sources::tunables;

use crate::error::RunError;
use crate::free_space::FreeSpace;
use crate::latency::Latency;
use crate::lock;
use crate::owners::Walked;
use crate::sources::Sources;
use crate::stop::Stop;
use crate::tiers::check_target;

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
    pub walked: Mutex<Walked>,
    /// What moving pages costs.
    pub moving: MovingTime,
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
            moving: MovingTime::default(),
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
    /// kernel promotes in the hint fault, and tells the sources. Skipped while sources are being
    /// started or asked.
    pub fn note_free_space(&self, now: Instant) {
        if let Ok(mut sources) = self.sources.try_lock()
            && sources.wants_look(now)
            && let Some(has_plenty) = lock(&self.free_space).look()
        {
            sources.note_free_space(now, has_plenty);
        }
    }

    /// Looks whether somebody else has changed the settings that sources need, and whether sources
    /// live. Skipped while sources are being started or asked.
    pub fn check_sources(&self, now: Instant) {
        if let Ok(mut sources) = self.sources.try_lock() {
            sources.check(now);
        }
    }

    /// Says which hint faults are quick, and asks how soon after their marks faults came. `None`
    /// while sources are being started or asked.
    pub fn watch_faults(&self, quick_fault: QuickFault) -> Option<FaultTimes> {
        let mut sources = self.sources.try_lock().ok()?;
        sources.set_quick_fault(quick_fault);
        Some(sources.fault_times())
    }

    /// Has the kernel's scanner mark as much as `marking` says. Skipped while sources are being
    /// started or asked.
    pub fn mark(&self, marking: MarkingReport) {
        if let Ok(mut sources) = self.sources.try_lock() {
            let is_told = sources.mark(marking.size_mb);
            *lock(&self.demoter.marking) = is_told.then_some(marking);
        }
    }

    /// Changes one tunable. It is in force when this returns: for reports at once, for promotion
    /// from the next pass on. On an error nothing has changed.
    pub fn set(&self, name: &str, text: &str) -> Result<(), String> {
        // Held throughout, so that two clients cannot mix their changes.
        let mut sources = lock(&self.sources);
        let before = self.settings();
        let mut settings = before.clone();
        tunables::set(&mut settings, name, text).map_err(|error| error.to_string())?;
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
        let shown = tunables::find(name).map(|tunable| settings.show(tunable));
        tracing::info!("{name} is {} now", shown.unwrap_or_default());
        *self.active.write().unwrap_or_else(PoisonError::into_inner) = (settings, rule);
        self.config_generation.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use pghot_linux::knobs::Foreign;

    use super::*;
    use crate::status::SourceState;
    use crate::testing::{LOWER_PFN, REFUSAL, daemon};

    #[test]
    fn a_good_value_is_in_force_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, _) = daemon(dir.path());
        shared.set("freq_threshold", "3").unwrap();
        shared.set("target_nid", "1").unwrap();
        let (settings, rule) = shared.settings_and_rule();
        assert_eq!((settings.freq_threshold, settings.target_nid), (3, Some(1)));
        assert_eq!(rule, settings.rule().unwrap());
        assert_eq!(shared.config_generation.load(Relaxed), 2);
    }

    #[test]
    fn a_page_that_becomes_ready_and_moves_at_once_is_measured() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, _) = daemon(dir.path());
        let samples = || lock(&shared.latency).report().samples;
        shared.note_moved(&[Moved {
            pfn: LOWER_PFN,
            when_ns: 5_000_000,
        }]);
        {
            let _starting = lock(&shared.sources);
            shared.measure_waits();
            assert_eq!(samples(), 0);
        }
        shared.measure_waits();
        assert_eq!(samples(), 1);
        let more = vec![Moved { pfn: 1, when_ns: 1 }; MOVED_MAX + 1];
        shared.note_moved(&more);
        assert_eq!(lock(&shared.moved).len(), MOVED_MAX);
    }

    #[test]
    fn a_bad_value_changes_nothing_and_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, watched) = daemon(dir.path());
        let before = shared.settings();
        for (name, value, sentence) in [
            ("freq", "1", "there is no tunable `freq`"),
            ("mode", "precision", "there is no tunable `mode`"),
            ("freq_threshold", "4", "freq_threshold is 1 to 3"),
            ("freq_threshold", "two", "takes a whole number"),
            (
                "target_nid",
                "2",
                "target_nid 2 is not in the top tier: choose a top-tier node (0, 1)",
            ),
            ("target_nid", "9", "target_nid 9 is offline"),
        ] {
            let error = shared.set(name, value).unwrap_err();
            assert!(error.contains(sentence), "{error}");
        }
        watched.refuses_rule.store(true, Relaxed);
        assert!(shared.set("freq_threshold", "3").is_err());
        assert_eq!(shared.settings(), before);
        assert_eq!(shared.config_generation.load(Relaxed), 0);
    }

    #[test]
    fn sources_are_started_and_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, watched) = daemon(dir.path());
        assert_eq!(watched.running.load(Relaxed), 1);
        shared.set("enabled_sources", "0").unwrap();
        assert_eq!(watched.running.load(Relaxed), 0);
        assert_eq!(
            watched.cleared.load(Relaxed),
            1,
            "the kernel settings went back"
        );
        watched.refuses_start.store(true, Relaxed);
        shared.set("enabled_sources", "0x1").unwrap();
        let report = lock(&shared.sources).report();
        assert_eq!(report[0].state, SourceState::Unavailable);
        assert_eq!(report[0].why.as_deref(), Some(REFUSAL));
        assert_eq!(watched.cleared.load(Relaxed), 2, "nothing is left behind");
        lock(&shared.sources).close();
        watched.refuses_start.store(false, Relaxed);
        shared.set("enabled_sources", "0").unwrap();
        shared.set("enabled_sources", "1").unwrap();
        assert_eq!(
            watched.running.load(Relaxed),
            0,
            "nothing starts once the daemon ends"
        );
    }

    #[test]
    fn faults_that_cannot_stand_by_are_taken_away() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, watched) = daemon(dir.path());
        shared.set("enabled_sources", "0x5").unwrap();
        watched.refuses_stand_by.store(true, Relaxed);
        lock(&shared.sources).note_free_space(Instant::now(), [true]);
        let report = lock(&shared.sources).report();
        assert_eq!(report[0].state, SourceState::Unavailable);
        assert_eq!(report[0].why.as_deref(), Some(REFUSAL));
        assert_eq!(watched.cleared.load(Relaxed), 1);
        assert_eq!(watched.running.load(Relaxed), 1);
    }

    /// A start and a return write the size that they begin with.
    #[test]
    fn the_scanner_is_told_again_once_it_may_have_been_told_otherwise() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, watched) = daemon(dir.path());
        let told = |size_mb| {
            lock(&shared.sources).mark(size_mb);
            std::mem::take(&mut *lock(&watched.marked_mb))
        };
        assert_eq!(told(64), [64]);
        assert!(told(64).is_empty(), "it knows");
        assert_eq!(told(128), [128]);
        let has_plenty = |now, plenty| lock(&shared.sources).note_free_space(now, [plenty]);
        let now = Instant::now();
        shared.set("enabled_sources", "0x5").unwrap();
        has_plenty(now, true);
        has_plenty(now + Duration::from_secs(60), false);
        assert_eq!(watched.standing_by.load(Relaxed), 0);
        assert_eq!(told(128), [128], "it was standing by");
        shared.set("enabled_sources", "0").unwrap();
        assert!(told(128).is_empty(), "nobody is there");
        shared.set("enabled_sources", "1").unwrap();
        assert_eq!(told(128), [128], "it was started again");
    }

    #[test]
    fn a_setting_that_others_change_is_taken_back_once() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, watched) = daemon(dir.path());
        shared.set("enabled_sources", "0x5").unwrap();
        watched.standing_by.store(1, Relaxed);
        let changed = || Foreign {
            path: "/proc/sys/kernel/numa_balancing".into(),
            ours: "2".into(),
            present: "0".into(),
        };
        let now = Instant::now();
        shared.check_sources(now);
        assert_eq!(watched.standing_by.load(Relaxed), 1, "nothing was changed");
        lock(&watched.foreign).push(changed());
        shared.check_sources(now);
        assert_eq!(watched.standing_by.load(Relaxed), 0, "it is set again");
        let state = |source: usize| lock(&shared.sources).report()[source].clone();
        assert_eq!(state(0).state, SourceState::Running);

        lock(&watched.foreign).push(changed());
        shared.check_sources(now + Duration::from_secs(60));
        assert_eq!(state(0).state, SourceState::Unavailable);
        let why = state(0).why.unwrap_or_default();
        assert!(
            why.contains("set /proc/sys/kernel/numa_balancing to 0"),
            "{why}"
        );
        assert_eq!(watched.cleared.load(Relaxed), 1, "the others are put back");
        assert_eq!(state(1).state, SourceState::Running);
        shared.set("enabled_sources", "0x4").unwrap();
        shared.set("enabled_sources", "0x5").unwrap();
        assert_eq!(state(0).state, SourceState::Running, "it was asked for");
    }

    #[test]
    fn a_source_without_its_thread_is_unavailable() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, watched) = daemon(dir.path());
        watched.are_dead.store(true, Relaxed);
        shared.check_sources(Instant::now());
        let report = lock(&shared.sources).report();
        assert_eq!(report[0].state, SourceState::Unavailable);
        assert!(
            report[0]
                .why
                .clone()
                .unwrap_or_default()
                .contains("thread failed")
        );
        assert_eq!(watched.running.load(Relaxed), 0);
    }

    #[test]
    fn who_stands_by_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, watched) = daemon(dir.path());
        shared.set("enabled_sources", "0x15").unwrap();
        lock(&shared.sources).note_free_space(Instant::now(), [false, true]);
        let report = lock(&shared.sources).report();
        let states: Vec<_> = report.iter().map(|source| source.state).collect();
        let expected = [
            SourceState::StandingBy,
            SourceState::Running,
            SourceState::StandingBy,
        ];
        assert_eq!(states, expected);
        let why = |source: usize| report[source].why.clone().unwrap_or_default();
        assert!(why(0).contains("so much free memory"));
        assert_eq!(why(2), "tables reads the same accessed bits");
        assert_eq!(watched.standing_by.load(Relaxed), 1);
        assert!(!watched.told_of_faults.load(Relaxed), "tables report all");
        assert_eq!(watched.running.load(Relaxed), 2);
    }
}
