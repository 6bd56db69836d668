//! `pghot run`: brings the daemon up in an order in which every step can be undone, waits, and
//! puts everything back.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pghot_engine::demoter::Demoter;
use pghot_engine::{Gates, History, Machine, Migrator, Turns};
use pghot_events::event;
use pghot_hotness::Nid;
use pghot_linux::claim::Claim;
use pghot_linux::keeper::{Keeper, KeeperError};
use pghot_linux::knobs::{Knobs, log};
use pghot_linux::topology::Topology;
use pghot_linux::{Host, Reclaimer, SysRoot, bpf, own_memory};
use pghot_sources::recorder::Recorder;
use pghot_sources::{RecordMaps, SOURCES, tunables};

use crate::config::{Options, mode_name};
use crate::config_file::ConfigFile;
use crate::demoter;
use crate::error::{RestoreError, RunError};
use crate::heap;
use crate::launcher::KernelLauncher;
use crate::listeners::{Listeners, Serving};
use crate::lock;
use crate::migrator;
use crate::pulse::{Beating, Pulses};
use crate::recording::{self, Plan};
use crate::reload::start_reloader;
use crate::restorer::{self, Restorer};
use crate::service;
use crate::shared::{MigratorState, Shared};
use crate::signals::SignalWatch;
use crate::sources::Sources;
use crate::stop::{Ending, Stop, joined_by};
use crate::tier_watch::TierWatch;
use crate::tiers::{check_target, lower_tier_nids, span_of};
use crate::traces::Spans;

/// Between two looks at what the daemon depends on: settings that others change, threads of
/// sources, and the machine's memory. Ageing keeps up with it: the least that times in records are
/// unambiguous for is 3.7 s, and sections are due after half of that.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Runs the daemon until a signal or a failure ends it. Whatever happens, the kernel settings are
/// put back, by the keeper if not by the daemon.
///
/// When the lower tier changes, the session ends like any other and the next one begins: what is
/// lost are the accesses of the last seconds.
pub fn run(mut options: Options, root: &SysRoot, keeper: Keeper) -> Result<(), RunError> {
    heap::give_back();
    bpf::log_messages();
    // First, so that from here on a signal ends the daemon in good order.
    let ending = Arc::new(Ending::default());
    let _signals = SignalWatch::start(&ending)?;
    let (spans, _sending) = Spans::start(options.otlp_endpoint).map_err(RunError::Thread)?;
    let lasting = Lasting {
        root,
        keeper: Arc::new(keeper),
        config_file: Arc::new(ConfigFile::new(&options)),
        spans,
    };
    let mut waits = options.wait_for_lower_tier;
    loop {
        let stop = ending.new_session();
        let Some((topology, nids)) = lower_tier(root, waits, &stop)? else {
            break;
        };
        let has_changed = session(&mut options, &lasting, &topology, &nids, stop)?;
        event!(
            daemon_stopped,
            "stopped, and the kernel settings are as they were"
        );
        if !has_changed {
            break;
        }
        // It was here, so it may come back.
        waits = true;
    }
    Ok(())
}

/// The machine and its lower-tier nodes, as soon as it has some; `None` if a stop is requested
/// before.
fn lower_tier(
    root: &SysRoot,
    waits: bool,
    stop: &Stop,
) -> Result<Option<(Topology, Vec<Nid>)>, RunError> {
    let mut is_said = false;
    while !stop.is_requested() {
        let topology = Topology::read(root)?;
        match lower_tier_nids(&topology, root) {
            Err(RunError::NoLowerTier) if waits => {
                if !is_said {
                    event!(
                        lower_tier_awaited,
                        "this machine has no lower memory tier: waiting for one"
                    );
                    is_said = true;
                }
                service::waiting();
                stop.sleep(LOOK_INTERVAL);
            }
            found => return found.map(|nids| Some((topology, nids))),
        }
    }
    Ok(None)
}

/// What outlives a session.
struct Lasting<'a> {
    root: &'a SysRoot,
    keeper: Arc<Keeper>,
    config_file: Arc<ConfigFile>,
    spans: Spans,
}

/// Promotes until a stop is requested. Returns whether that was because the lower tier has changed.
fn session(
    options: &mut Options,
    lasting: &Lasting<'_>,
    topology: &Topology,
    nids: &[Nid],
    stop: Arc<Stop>,
) -> Result<bool, RunError> {
    let Lasting { root, keeper, .. } = lasting;
    check_target(topology, &options.settings)?;
    let span = span_of(topology)?;
    let mut tier = TierWatch::new(root, topology);
    // For the records, and for each thread that is started from here on.
    if let Err(error) = own_memory::prefer_top_tier(topology) {
        event!(
            own_memory_anywhere,
            "pghot's own memory may lie in the lower tier: {error}"
        );
    }
    log(&keeper.begin()?);
    let restorer = Restorer::new(keeper);
    let _claim = Claim::take()?;
    let listeners = Listeners::bind(options)?;
    let (settings, dry_run) = (options.settings.clone(), options.dry_run);
    let (maps, table) = RecordMaps::create(settings.mode, &span)?;
    let table = Arc::new(table);
    let turns = Turns::default();
    let launcher = KernelLauncher::new(root, topology, options, maps, &table, keeper, &turns);
    let config = tunables::config(&settings, settings.rule()?);
    let sources = Sources::new(SOURCES, Box::new(launcher), &config);
    let mut shared = Shared::new(
        (*root).clone(),
        table,
        settings,
        nids,
        sources,
        dry_run,
        stop,
    )?;
    shared.turns = turns;
    shared.spans = lasting.spans.clone();
    shared.config_file = Arc::clone(&lasting.config_file);
    let shared = Arc::new(shared);
    let mut threads = Threads::default();
    let started = start(options, topology, keeper, listeners, &shared, &mut threads);
    let watched = started.and_then(|()| watch(&shared, &mut tier, keeper));
    if !matches!(watched, Ok(true)) {
        service::stopping();
    }
    let ended = end(&shared, threads, restorer);
    // What `pghot set` and reloads changed goes on.
    options.settings = shared.settings();
    let has_changed = watched?;
    ended?;
    Ok(has_changed)
}

/// Looks after the daemon until a stop is requested, or the lower tier has changed: then true.
/// Without its keeper the daemon must not go on: nobody would put the settings back.
///
/// Nothing here moves pages, so nothing here waits for a disk. Samples of waits are taken over
/// after each pass that sees ready pages: their rings hold 4095, of one page in 64, so they do not
/// wrap below a quarter of a million pages that become ready between two passes. While no page is
/// ready, a look a second is all that wakes this thread.
fn watch(shared: &Shared, tier: &mut TierWatch, keeper: &Keeper) -> Result<bool, RunError> {
    let mut due = Instant::now() + LOOK_INTERVAL;
    while !shared.stop.is_requested() {
        let rest = due.saturating_duration_since(Instant::now());
        let are_samples_due = || shared.are_samples_due.load(Ordering::Relaxed);
        shared.stop.sleep_unless(rest, are_samples_due);
        shared.measure_waits();
        let now = Instant::now();
        if now < due {
            continue;
        }
        due = now + LOOK_INTERVAL;
        shared.age();
        shared.note_free_space(now);
        shared.check_sources(now);
        if tier.has_changed(&shared.root, now) {
            event!(
                memory_changed,
                "the memory of this machine has changed: pghot begins anew"
            );
            return Ok(true);
        }
        if !keeper.lives() {
            return Err(KeeperError::Gone.into());
        }
    }
    Ok(false)
}

/// Starts what reports, moves and answers.
fn start(
    options: &Options,
    topology: &Topology,
    keeper: &Arc<Keeper>,
    listeners: Listeners,
    shared: &Arc<Shared>,
    threads: &mut Threads,
) -> Result<(), RunError> {
    let mut hosts: Vec<Box<dyn Machine + Send>> = Vec::new();
    for _ in &shared.migrators {
        let mut host = Host::open(shared.root.clone(), topology, shared.dry_run)?;
        host.set_stop(shared.stop.flag());
        let demoter = &shared.demoter;
        host.set_makes_room(
            Arc::clone(&demoter.makes_room),
            demoter.exchange_cpus.clone(),
        );
        host.set_moving_time(shared.moving.clone());
        hosts.push(Box::new(host));
    }
    let moving = shared.moving.clone();
    let mut reclaimer = Reclaimer::open(&shared.root, topology, keeper, moving, shared.dry_run)?;
    reclaimer.set_exchange_cpus(shared.demoter.exchange_cpus.clone());
    let recording = recording::load(options, shared, keeper);
    // Late, because it makes programs take hint faults.
    start_sources(shared)?;
    threads.serving = Some(listeners.serve(shared).map_err(RunError::Thread)?);
    announce(options, shared);
    threads.start_demoter(shared, topology.cpus(), reclaimer)?;
    threads.start_migrators(shared, hosts)?;
    if let Some(recording) = recording {
        threads.start_recording(shared, recording)?;
    }
    if let Err(error) = own_memory::lock() {
        event!(
            own_memory_not_locked,
            "pghot's own memory may be swapped out or demoted: {error}; raise LimitMEMLOCK"
        );
    }
    service::ready(shared);
    start_reloader(shared)?;
    threads.watchdog = service::start_watchdog(shared, threads.pulses.clone())?;
    Ok(())
}

fn announce(options: &Options, shared: &Shared) {
    let nids = shared.migrators.iter().map(|it| it.nid.to_string());
    event!(
        daemon_started,
        "promoting from node {} in {} mode{}; control socket {}",
        nids.collect::<Vec<_>>().join(", "),
        mode_name(options.settings.mode),
        if shared.dry_run {
            ", dry run: nothing is moved"
        } else {
            ""
        },
        options.socket.display()
    );
}

fn start_sources(shared: &Shared) -> Result<(), RunError> {
    let enabled = tunables::enabled_sources(&shared.settings());
    // Before the first hint fault: the kernel promotes in it while there is plenty of room.
    shared.note_free_space(Instant::now());
    let mut sources = lock(&shared.sources);
    sources.enable(enabled);
    if enabled == 0 {
        event!(
            no_source_enabled,
            "enabled_sources is none: no access is seen until `pghot set enabled_sources`"
        );
    } else if !sources.is_any_running() {
        return Err(RunError::NoSource(sources.why_none()));
    }
    Ok(())
}

/// How long threads may take to end: a batch in flight, a scan, or a source that is just being
/// started.
const ENDING_MAX: Duration = Duration::from_secs(10);

/// The threads of a running daemon.
#[derive(Default)]
struct Threads {
    /// Without which it is not whole, by what an operator calls them.
    parts: Vec<(String, JoinHandle<Result<(), RunError>>)>,
    /// What the migrators promote, for the demoter.
    history: History,
    /// The limits that both keep.
    gates: Gates,
    watchdog: Option<JoinHandle<Result<(), RunError>>>,
    /// Of the migrators and of the demoter.
    pulses: Pulses,
    serving: Option<Serving>,
}

impl Threads {
    /// Makes room in a thread of its own until a stop is requested.
    fn start_demoter(
        &mut self,
        shared: &Arc<Shared>,
        cpus: u64,
        reclaimer: Reclaimer,
    ) -> Result<(), RunError> {
        let mut machine = Beating::new(reclaimer, self.pulses.add("the demoter"));
        let turns = shared.turns.clone();
        let demoter = Demoter::new(self.history.clone(), self.gates.clone(), turns);
        let make_room = move |shared: &Shared| demoter::run(shared, demoter, cpus, &mut machine);
        self.start(shared, "demoter", "the demoter".into(), make_room)
    }

    /// Records in a thread of its own until a stop is requested.
    fn start_recording(
        &mut self,
        shared: &Arc<Shared>,
        (recorder, plan): (Recorder, Plan),
    ) -> Result<(), RunError> {
        let record = move |shared: &Shared| recording::run(shared, recorder, &plan);
        self.start(shared, "recorder", "the recorder".into(), record)
    }

    /// Runs each migrator in a thread of its own until a stop is requested.
    fn start_migrators(
        &mut self,
        shared: &Arc<Shared>,
        hosts: Vec<Box<dyn Machine + Send>>,
    ) -> Result<(), RunError> {
        for (index, host) in hosts.into_iter().enumerate() {
            let MigratorState { nid, journal, .. } = &shared.migrators[index];
            let (nid, journal) = (*nid, journal.clone());
            let (history, gates) = (self.history.clone(), self.gates.clone());
            let mut migrator = Migrator::new(nid, history, gates, journal);
            migrator.count_owners(shared.owners.clone());
            let pulse = self.pulses.add(&format!("the migrator of node {nid}"));
            let mut host = Beating::new(host, pulse);
            let passes = move |shared: &Shared| {
                migrator::run(shared, &shared.migrators[index], migrator, &mut host);
            };
            let name = format!("migrator{nid}");
            self.start(shared, &name, format!("the migrator of node {nid}"), passes)?;
        }
        Ok(())
    }

    /// A thread without which the daemon is not whole: when it ends, whether it panicked or not, a
    /// stop is requested.
    fn start(
        &mut self,
        shared: &Arc<Shared>,
        name: &str,
        called: String,
        work: impl FnOnce(&Shared) + Send + 'static,
    ) -> Result<(), RunError> {
        let (shared, panicked) = (Arc::clone(shared), called.clone());
        let body = move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| work(&shared)));
            shared.stop.request();
            outcome.map_err(|_| RunError::Panicked(panicked))
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(body);
        self.parts.push((called, thread.map_err(RunError::Thread)?));
        Ok(())
    }
}

/// Ends the daemon. First the settings of the host are put back: `move_pages` sleeps on locked
/// pages and on writeback, for ever if a server does not answer, so nothing waits for a thread
/// before that. Threads that do not end are named and left to the end of the process.
fn end(shared: &Arc<Shared>, threads: Threads, restorer: Restorer) -> Result<(), RunError> {
    shared.stop.request();
    let restored = restorer.finish().map_err(RunError::from);
    let deadline = Instant::now() + ENDING_MAX;
    // Clients still being served hold `shared`, so nothing here waits for its last owner.
    if let Some(serving) = threads.serving {
        serving.stop();
    }
    let closing = Arc::clone(shared);
    // In a thread, because closing waits for the threads of the sources.
    let close = thread::Builder::new().name("closing".into());
    let close = close.spawn(move || lock(&closing.sources).close());

    let mut stuck = Vec::new();
    let mut result = Ok(());
    for (called, thread) in threads.parts {
        match joined_by(thread, deadline) {
            Some(ended) => result = result.and(ended.unwrap_or(Err(RunError::Panicked(called)))),
            None => stuck.push(called),
        }
    }
    if let Some(Some(watched)) = threads.watchdog.map(|thread| joined_by(thread, deadline)) {
        result = result.and(watched.unwrap_or(Ok(())));
    }
    if close
        .map_err(RunError::Thread)
        .is_ok_and(|close| joined_by(close, deadline).is_none())
    {
        stuck.push("a source".to_owned());
    }
    if !stuck.is_empty() {
        result = result.and(Err(RunError::Stuck(stuck.join(" and "))));
    }
    result.and(restored)
}

/// `pghot restore`: puts back what a killed daemon left changed, and says so of each setting.
pub fn restore(root: &SysRoot, state_file: &Path) -> Result<Vec<String>, RestoreError> {
    let report = Knobs::recover(root, state_file)?;
    let said = report.iter().map(ToString::to_string).collect();
    let failure = restorer::first_failure(report);
    failure.map_or(Ok(said), |why| Err(RestoreError::Left(why)))
}

#[cfg(test)]
mod tests;
