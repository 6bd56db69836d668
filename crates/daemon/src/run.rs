//! `pghot run`: brings the daemon up in an order in which every step can be undone, waits, and
//! puts everything back.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pghot_hotness::Nid;
use pghot_linux::knobs::{Knobs, KnobsError};
use pghot_linux::topology::Topology;
use pghot_linux::{Host, Reclaimer, SysRoot, bpf};
use pghot_sources::{Config, RecordMaps, SOURCES};
use tracing::{info, warn};

use crate::config::{Options, mode_name};
use crate::control::Control;
use crate::error::RunError;
use crate::heap;
use crate::kernel::Kernel;
use crate::lane::{Lane, LaneHost};
use crate::lock;
use crate::machine::{check_target, lower_tier_nids, span_of};
use crate::restorer::{self, Restorer};
use crate::room;
use crate::shared::Shared;
use crate::signals::SignalWatch;
use crate::socket::Socket;
use crate::sources::Sources;
use crate::stop::Stop;

/// Runs the daemon until a signal or a failure ends it. Whatever happens, the kernel settings are
/// put back.
pub fn run(options: Options, root: &SysRoot) -> Result<(), RunError> {
    heap::give_back();
    bpf::log_messages();
    let topology = Topology::read(root)?;
    let nids = lower_tier_nids(&topology, root)?;
    check_target(&topology, &options.settings)?;
    let span = span_of(&topology)?;

    // First, so that from here on a signal ends the daemon in good order.
    let stop = Arc::new(Stop::default());
    let _signals = SignalWatch::start(&stop)?;
    let (knobs, recovered) = Knobs::open(root, &options.state_file)?;
    let restorer = Restorer::new(knobs);
    restorer::log(&recovered);
    let socket = Socket::bind(&options.socket)?;
    let (settings, dry_run) = (options.settings.clone(), options.dry_run);
    let (maps, table) = RecordMaps::create(settings.mode, &span)?;
    let table = Arc::new(table);
    let knobs = restorer.knobs();
    let ground = Kernel::new(root, &topology, &options, maps, &table, knobs);
    let config = Config::new(&settings, settings.rule()?);
    let sources = Sources::new(SOURCES, Box::new(ground), &config);
    let shared = Shared::new(root.clone(), table, settings, &nids, sources, dry_run, stop)?;
    let shared = Arc::new(shared);
    let mut threads = Threads::default();
    let started = start(&options, &topology, socket, &shared, &mut threads);
    if started.is_ok() {
        shared.stop.wait();
    }
    let ended = end(&shared, threads, restorer);
    started.and(ended)?;
    info!("stopped, and the kernel settings are as they were");
    Ok(())
}

/// Starts what reports, moves and answers.
fn start(
    options: &Options,
    topology: &Topology,
    socket: Socket,
    shared: &Arc<Shared>,
    threads: &mut Threads,
) -> Result<(), RunError> {
    let mut hosts: Vec<Box<dyn LaneHost>> = Vec::new();
    for _ in &shared.lanes {
        let mut host = Host::open(shared.root.clone(), topology, shared.dry_run)?;
        host.set_stop(shared.stop.flag());
        host.set_makes_room(Arc::clone(&shared.room.is_made));
        host.set_moving_time(shared.moving.clone());
        hosts.push(Box::new(host));
    }
    // Late, because it makes programs take hint faults.
    start_sources(shared)?;
    threads.control = Some(Control::start(socket, Arc::clone(shared)).map_err(RunError::Thread)?);
    announce(options, shared);
    threads.start_demoter(shared, topology)?;
    threads.start_lanes(shared, hosts)
}

fn announce(options: &Options, shared: &Shared) {
    let nids: Vec<String> = shared
        .lanes
        .iter()
        .map(|lane| lane.nid.to_string())
        .collect();
    info!(
        "promoting from node {} in {} mode{}; control socket {}",
        nids.join(", "),
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
    let enabled = shared.settings().enabled_sources;
    // Before the first hint fault: the kernel promotes in it while there is plenty of room.
    shared.note_free_space(Instant::now());
    let mut sources = lock(&shared.sources);
    sources.enable(enabled);
    if enabled == 0 {
        warn!("enabled_sources is 0: no access is seen until `pghot set enabled_sources`");
    } else if !sources.is_any_running() {
        return Err(RunError::NoSource(sources.why_none()));
    }
    Ok(())
}

/// How long threads may take to end: a batch in flight, a scan, or a source that is just being
/// started.
const ENDING_MAX: Duration = Duration::from_secs(10);

/// Between two looks at who has ended.
const ENDING_POLL: Duration = Duration::from_millis(5);

/// The threads of a running daemon.
#[derive(Default)]
struct Threads {
    lanes: Vec<(Nid, JoinHandle<Result<(), RunError>>)>,
    demoter: Option<JoinHandle<Result<(), RunError>>>,
    control: Option<Control>,
}

impl Threads {
    /// Makes room in a thread of its own until a stop is requested.
    fn start_demoter(&mut self, shared: &Arc<Shared>, topology: &Topology) -> Result<(), RunError> {
        let mut machine = Reclaimer::open(
            &shared.root,
            topology,
            shared.moving.clone(),
            shared.dry_run,
        )?;
        let cpus = topology.cpus();
        let make_room = move |shared: &Shared| room::run(shared, cpus, &mut machine);
        let panicked = || RunError::DemoterPanicked;
        self.demoter = Some(spawn(shared, "demoter".into(), panicked, make_room)?);
        Ok(())
    }

    /// Runs each lane in a thread of its own until a stop is requested.
    fn start_lanes(
        &mut self,
        shared: &Arc<Shared>,
        hosts: Vec<Box<dyn LaneHost>>,
    ) -> Result<(), RunError> {
        for (index, mut host) in hosts.into_iter().enumerate() {
            let nid = shared.lanes[index].nid;
            let passes = move |shared: &Shared| {
                let lane: &Lane = &shared.lanes[index];
                lane.run(shared, host.as_mut());
            };
            let panicked = move || RunError::Panicked(nid);
            let thread = spawn(shared, format!("migrator{nid}"), panicked, passes)?;
            self.lanes.push((nid, thread));
        }
        Ok(())
    }
}

/// A thread without which the daemon is not whole: when it ends, whether it panicked or not, a stop
/// is requested.
fn spawn(
    shared: &Arc<Shared>,
    name: String,
    panicked: impl FnOnce() -> RunError + Send + 'static,
    work: impl FnOnce(&Shared) + Send + 'static,
) -> Result<JoinHandle<Result<(), RunError>>, RunError> {
    let shared = Arc::clone(shared);
    let body = move || {
        let outcome = catch_unwind(AssertUnwindSafe(|| work(&shared)));
        shared.stop.request();
        outcome.map_err(|_| panicked())
    };
    let thread = thread::Builder::new().name(name).spawn(body);
    thread.map_err(RunError::Thread)
}

/// Ends the daemon. First the settings of the host are put back: `move_pages` sleeps on locked
/// pages and on writeback, for ever if a server does not answer, so nothing waits for a thread
/// before that. Threads that do not end are named and left to the end of the process.
fn end(shared: &Arc<Shared>, threads: Threads, restorer: Restorer) -> Result<(), RunError> {
    shared.stop.request();
    let restored = restorer.finish().map_err(RunError::from);
    let deadline = Instant::now() + ENDING_MAX;
    // Clients still being served hold `shared`, so nothing here waits for its last owner.
    if let Some(control) = threads.control {
        control.stop();
    }
    let closing = Arc::clone(shared);
    // In a thread, because closing waits for the threads of the sources.
    let close = thread::Builder::new().name("closing".into());
    let close = close.spawn(move || lock(&closing.sources).close());

    let mut stuck = Vec::new();
    let mut result = Ok(());
    for (nid, thread) in threads.lanes {
        match joined_by(thread, deadline) {
            Some(ended) => result = result.and(ended.unwrap_or(Err(RunError::Panicked(nid)))),
            None => stuck.push(format!("the migrator of node {nid}")),
        }
    }
    match threads.demoter.map(|thread| joined_by(thread, deadline)) {
        Some(Some(ended)) => result = result.and(ended.unwrap_or(Err(RunError::DemoterPanicked))),
        Some(None) => stuck.push("the demoter".to_owned()),
        None => {}
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

/// What a thread returned, or how it panicked; `None` if it still runs at the deadline.
fn joined_by<T>(thread: JoinHandle<T>, deadline: Instant) -> Option<thread::Result<T>> {
    while !thread.is_finished() {
        if Instant::now() >= deadline {
            return None;
        }
        thread::sleep(ENDING_POLL);
    }
    Some(thread.join())
}

/// `pghot restore`: puts back what a killed daemon left changed, and says so of each setting.
pub fn restore(root: &SysRoot, state_file: &Path) -> Result<Vec<String>, KnobsError> {
    let report = Knobs::recover(root, state_file)?;
    let said = report.iter().map(restorer::sentence).collect();
    restorer::first_failure(report).map_or(Ok(said), Err)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::sync::{Mutex, mpsc};

    use pghot_engine::fake::FakeMachine;
    use pghot_engine::{Batch, Found, Held, Machine, Outcome};
    use pghot_hotness::{Nid, Pfn};
    use pghot_linux::host::monotonic;

    use super::*;
    use crate::config;
    use crate::lane::Published;
    use crate::testing::{LOWER_PFN, daemon, write};

    /// A fake machine in real time, which panics on request.
    #[derive(Default)]
    struct TestHost {
        machine: FakeMachine,
        panics: Arc<AtomicBool>,
        moved: Vec<(Pfn, u64)>,
    }

    impl Machine for TestHost {
        fn now_ms(&self) -> u64 {
            monotonic().as_millis() as u64
        }
        fn top_tier_from(&mut self, from: Nid) -> Option<Vec<Nid>> {
            assert!(!self.panics.load(Relaxed), "a bug, as this test asks for");
            self.machine.top_tier_from(from)
        }
        fn room_pages(&mut self, target: Nid) -> u64 {
            self.machine.room_pages(target)
        }
        fn resolve(&mut self, pfns: &[Pfn], found: &mut Vec<Found>) {
            self.machine.resolve(pfns, found);
        }
        fn promote(&mut self, batch: &Batch, outcomes: &mut Vec<Outcome>) {
            self.machine.promote(batch, outcomes);
            let now_ns = monotonic().as_nanos() as u64;
            self.moved
                .extend(batch.folios.iter().map(|folio| (folio.pfn, now_ns)));
        }
    }

    impl LaneHost for TestHost {
        fn take_moved(&mut self, moved: &mut Vec<(Pfn, u64)>) {
            moved.append(&mut self.moved);
        }
    }

    /// The same, and a move ends when somebody allows it.
    struct StuckHost {
        inner: TestHost,
        entered: mpsc::Sender<()>,
        released: Mutex<mpsc::Receiver<()>>,
    }

    impl Machine for StuckHost {
        fn now_ms(&self) -> u64 {
            self.inner.now_ms()
        }
        fn top_tier_from(&mut self, from: Nid) -> Option<Vec<Nid>> {
            self.inner.top_tier_from(from)
        }
        fn room_pages(&mut self, target: Nid) -> u64 {
            self.inner.room_pages(target)
        }
        fn resolve(&mut self, pfns: &[Pfn], found: &mut Vec<Found>) {
            self.inner.resolve(pfns, found);
        }
        fn promote(&mut self, batch: &Batch, outcomes: &mut Vec<Outcome>) {
            self.entered.send(()).unwrap();
            lock(&self.released).recv().unwrap();
            self.inner.promote(batch, outcomes);
        }
    }

    impl LaneHost for StuckHost {
        fn take_moved(&mut self, moved: &mut Vec<(Pfn, u64)>) {
            self.inner.take_moved(moved);
        }
    }

    fn host(pages: u64) -> TestHost {
        let mut machine = FakeMachine::tiered3();
        (LOWER_PFN..LOWER_PFN + pages).for_each(|pfn| machine.map(7, pfn));
        TestHost {
            machine,
            ..TestHost::default()
        }
    }

    fn touch(shared: &Shared, pfn: Pfn) {
        let (settings, rule) = shared.settings_and_rule();
        let now_ms = monotonic().as_millis() as u64;
        for _ in 0..settings.freq_threshold {
            shared.table.report(pfn, 0, now_ms, &rule);
        }
    }

    fn wait_for(shared: &Shared, condition: impl Fn(&Published) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !condition(&lock(&shared.lanes[0].published)) {
            let published = &shared.lanes[0].published;
            assert!(Instant::now() < deadline, "{:?}", lock(published));
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn moved(published: &Published) -> u64 {
        published.totals.outcomes.get(Outcome::Moved)
    }

    #[test]
    fn a_lane_promotes_obeys_changes_and_stops() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, _) = daemon(dir.path());
        let (mut threads, restorer) = (Threads::default(), restorer(&shared, dir.path()));
        let hosts: Vec<Box<dyn LaneHost>> = vec![Box::new(host(2))];
        threads.start_lanes(&shared, hosts).unwrap();
        touch(&shared, LOWER_PFN);
        wait_for(&shared, |lane| moved(lane) == 1);
        wait_for(&shared, |lane| lane.last_pass.ready == 0);
        assert_eq!(
            lock(&shared.latency).report().samples,
            1,
            "the fake source samples it"
        );

        shared.set("promote_rate_limit_MBps", "0").unwrap();
        touch(&shared, LOWER_PFN + 1);
        wait_for(&shared, |lane| {
            lane.last_pass.held.get(&Held::RateLimit) == Some(&1)
        });
        shared.set("promote_rate_limit_MBps", "1024").unwrap();
        wait_for(&shared, |lane| moved(lane) == 2);

        shared.set("kmigrated_sleep_ms", "1000").unwrap();
        let before = Instant::now();
        end(&shared, threads, restorer).unwrap();
        assert!(
            before.elapsed() < Duration::from_millis(900),
            "sleeps are cut short"
        );
    }

    /// A setting of the fake host that the daemon changes from 1 to 3.
    fn setting(shared: &Shared) -> PathBuf {
        shared.root.sysctl("kernel.numa_balancing")
    }

    fn read(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap()
    }

    /// The restorer of a daemon that has changed it.
    fn restorer(shared: &Shared, dir: &Path) -> Restorer {
        let setting = setting(shared);
        write(&setting, "1\n");
        write(&shared.root.sysctl("kernel.random.boot_id"), "b\n");
        let stat = format!("{}/stat", std::process::id());
        write(
            &shared.root.proc.join(stat),
            &read(Path::new("/proc/self/stat")),
        );
        let (mut knobs, _) = Knobs::open(&shared.root, &dir.join("state.json")).unwrap();
        knobs.set(&setting, "3").unwrap();
        Restorer::new(knobs)
    }

    #[test]
    fn after_a_panic_the_host_is_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, _) = daemon(dir.path());
        let (mut threads, restorer) = (Threads::default(), restorer(&shared, dir.path()));
        let bad = host(0);
        let panics = Arc::clone(&bad.panics);
        threads.start_lanes(&shared, vec![Box::new(bad)]).unwrap();
        wait_for(&shared, |lane| lane.totals.passes > 0);
        assert_eq!(read(&setting(&shared)), "3\n");
        panics.store(true, Relaxed);
        shared.stop.wait();
        let error = end(&shared, threads, restorer).unwrap_err();
        assert!(matches!(error, RunError::Panicked(2)), "{error}");
        assert_eq!(read(&setting(&shared)), "1\n");
        assert!(!dir.path().join("state.json").exists());
    }

    /// `move_pages` may sleep for ever: on a page under writeback to a server that is gone.
    #[test]
    fn a_migrator_that_never_returns_does_not_keep_the_settings() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, _) = daemon(dir.path());
        let (mut threads, restorer) = (Threads::default(), restorer(&shared, dir.path()));
        let (entered, is_in) = mpsc::channel();
        let (release, released) = mpsc::channel();
        let stuck = StuckHost {
            inner: host(1),
            entered,
            released: Mutex::new(released),
        };
        threads.start_lanes(&shared, vec![Box::new(stuck)]).unwrap();
        touch(&shared, LOWER_PFN);
        is_in.recv_timeout(Duration::from_secs(20)).unwrap();
        let ending = Arc::clone(&shared);
        let ended = thread::spawn(move || end(&ending, threads, restorer));
        let deadline = Instant::now() + Duration::from_secs(1);
        while read(&setting(&shared)) != "1\n" {
            assert!(Instant::now() < deadline, "the mover keeps the settings");
            thread::sleep(Duration::from_millis(2));
        }
        assert!(!ended.is_finished(), "the migrator is not waited for");
        release.send(()).unwrap();
        ended.join().unwrap().unwrap();
    }

    #[test]
    fn a_thread_that_does_not_end_is_given_up() {
        let (release, released) = mpsc::channel::<()>();
        let thread = thread::spawn(move || released.recv().unwrap());
        let soon = Instant::now() + Duration::from_millis(20);
        assert!(joined_by(thread, soon).is_none());
        drop(release);
        let thread = thread::spawn(|| 7);
        let later = Instant::now() + Duration::from_secs(20);
        assert_eq!(joined_by(thread, later).unwrap().unwrap(), 7);
    }

    #[test]
    fn a_machine_without_a_lower_tier_is_told_of_the_demo() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, _) = daemon(dir.path());
        let tiers = shared.root.sys.join("devices/virtual/memory_tiering");
        std::fs::remove_dir_all(tiers).unwrap();
        let mut options = config::load(Some(Path::new("/dev/null")), Vec::new()).unwrap();
        options.state_file = dir.path().join("state.json");
        options.socket = dir.path().join("sock");
        let error = run(options, &shared.root).unwrap_err();
        assert!(matches!(error, RunError::NoLowerTier), "{error}");
        assert!(error.to_string().contains("make demo"));
    }
}
