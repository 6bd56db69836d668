//! Threads that run, panic, hang and end, on a fake machine.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, mpsc};

use pghot_engine::fake::FakeMachine;
use pghot_engine::{Batch, Found, Held, Machine, Outcome, Pid, Program};
use pghot_hotness::{Nid, Pfn, SECTION_PAGES};
use pghot_linux::host::monotonic;

use super::*;
use crate::config;
use crate::shared::Published;
use crate::testing::{LOWER_PFN, daemon, daemon_of, write};

mod reloads;

/// A fake machine in real time, which panics on request.
#[derive(Default)]
struct TestHost {
    machine: FakeMachine,
    panics: Arc<AtomicBool>,
}

impl Machine for TestHost {
    fn now_ns(&self) -> u64 {
        monotonic().as_nanos() as u64
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
    }
    fn program(&mut self, pid: Pid) -> Option<Program> {
        self.machine.program(pid)
    }
}

/// The same, and a move ends when somebody allows it.
struct StuckHost {
    inner: TestHost,
    entered: mpsc::Sender<()>,
    released: Mutex<mpsc::Receiver<()>>,
}

impl Machine for StuckHost {
    fn now_ns(&self) -> u64 {
        self.inner.now_ns()
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
    fn program(&mut self, pid: Pid) -> Option<Program> {
        self.inner.program(pid)
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

/// What the main thread does.
fn watched(shared: &Arc<Shared>) -> JoinHandle<bool> {
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        let topology = Topology::read(&shared.root).unwrap();
        let mut tier = TierWatch::new(&shared.root, &topology);
        let state = shared.root.proc.with_file_name("unused state.json");
        let keeper = Keeper::in_thread(&shared.root, &state).unwrap();
        watch(&shared, &mut tier, &keeper).unwrap()
    })
}

fn until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(2));
    }
}

fn wait_for(shared: &Shared, condition: impl Fn(&Published) -> bool) {
    let published = &shared.migrators[0].published;
    until(|| condition(&lock(published)));
}

fn moved(published: &Published) -> u64 {
    published.totals.outcomes.get(Outcome::Moved)
}

#[test]
fn a_migrator_promotes_obeys_changes_and_stops() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, _) = daemon(dir.path());
    let (mut threads, restorer) = (Threads::default(), restorer(&shared, dir.path()));
    threads
        .start_migrators(&shared, vec![Box::new(host(2))])
        .unwrap();
    let main = watched(&shared);
    touch(&shared, LOWER_PFN);
    wait_for(&shared, |it| moved(it) == 1);
    wait_for(&shared, |it| it.last_pass.ready == 0);
    // The fake source samples it.
    until(|| lock(&shared.latency).report().samples == 1);

    shared.set("promote_rate_limit_MBps", "0").unwrap();
    touch(&shared, LOWER_PFN + 1);
    wait_for(&shared, |it| {
        it.last_pass.held.get(&Held::RateLimit) == Some(&1)
    });
    shared.set("promote_rate_limit_MBps", "1024").unwrap();
    wait_for(&shared, |it| moved(it) == 2);

    shared.set("kmigrated_sleep_ms", "1000").unwrap();
    let before = Instant::now();
    end(&shared, threads, restorer).unwrap();
    assert!(
        before.elapsed() < Duration::from_millis(900),
        "sleeps are cut short"
    );
    assert!(!main.join().unwrap());
}

/// Rings of samples are small; an idle daemon has nothing to look for in them.
#[test]
fn samples_are_taken_over_after_each_pass_that_sees_ready_pages() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, sources) = daemon(dir.path());
    let (mut threads, restorer) = (Threads::default(), restorer(&shared, dir.path()));
    shared.set("promote_rate_limit_MBps", "0").unwrap();
    threads
        .start_migrators(&shared, vec![Box::new(host(1))])
        .unwrap();
    let idle = Instant::now();
    let main = watched(&shared);
    wait_for(&shared, |it| it.totals.passes > 20);
    let drains = sources.drains.load(Relaxed);
    assert!(drains as f64 <= idle.elapsed().as_secs_f64(), "{drains}");

    let busy = Instant::now();
    until(|| {
        touch(&shared, LOWER_PFN);
        sources.drains.load(Relaxed) >= drains + 10
    });
    assert!(busy.elapsed() < Duration::from_secs(8));
    end(&shared, threads, restorer).unwrap();
    main.join().unwrap();
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
    let limit = "kernel.numa_balancing_promote_rate_limit_MBps";
    write(&shared.root.sysctl(limit), "65536\n");
    write(
        &shared.root.sys.join("devices/system/node/has_cpu"),
        "0-1\n",
    );
    let stat = format!("{}/stat", std::process::id());
    write(
        &shared.root.proc.join(stat),
        &read(Path::new("/proc/self/stat")),
    );
    let keeper = Arc::new(Keeper::in_thread(&shared.root, &dir.join("state.json")).unwrap());
    assert!(keeper.begin().unwrap().is_empty());
    keeper.take_faults().unwrap();
    Restorer::new(&keeper)
}

#[test]
fn after_a_panic_the_host_is_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, _) = daemon(dir.path());
    let (mut threads, restorer) = (Threads::default(), restorer(&shared, dir.path()));
    let bad = host(0);
    let panics = Arc::clone(&bad.panics);
    threads
        .start_migrators(&shared, vec![Box::new(bad)])
        .unwrap();
    wait_for(&shared, |it| it.totals.passes > 0);
    assert_eq!(read(&setting(&shared)), "3\n");
    panics.store(true, Relaxed);
    shared.stop.wait();
    let error = end(&shared, threads, restorer).unwrap_err();
    assert!(
        matches!(&error, RunError::Panicked(name) if name == "the migrator of node 2"),
        "{error}"
    );
    assert_eq!(read(&setting(&shared)), "1\n");
    assert!(!dir.path().join("state.json").exists());
}

/// Has the migrator move a page, which it does not come back from before it is released.
fn stick(shared: &Arc<Shared>, threads: &mut Threads) -> mpsc::Sender<()> {
    let (entered, is_in) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let stuck = StuckHost {
        inner: host(1),
        entered,
        released: Mutex::new(released),
    };
    threads
        .start_migrators(shared, vec![Box::new(stuck)])
        .unwrap();
    touch(shared, LOWER_PFN);
    is_in.recv_timeout(Duration::from_secs(20)).unwrap();
    release
}

/// Where ageing stops, times become ambiguous after seconds, and what was seen is forgotten.
#[test]
fn records_age_while_a_move_takes_long() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, _) = daemon_of(dir.path(), 2);
    let (mut threads, restorer) = (Threads::default(), restorer(&shared, dir.path()));
    let main = watched(&shared);
    let release = stick(&shared, &mut threads);
    let (_, rule) = shared.settings_and_rule();
    let old = LOWER_PFN + SECTION_PAGES;
    let long_ago_ms = monotonic().as_millis() as u64 - 10_000;
    shared.table.report(old, 0, long_ago_ms, &rule);
    assert!(!shared.table.get(old).unwrap().is_empty());
    until(|| shared.table.get(old).unwrap().is_empty());
    release.send(()).unwrap();
    wait_for(&shared, |it| it.totals.expired == 1);
    end(&shared, threads, restorer).unwrap();
    main.join().unwrap();
}

/// `move_pages` may sleep for ever: on a page under writeback to a server that is gone.
#[test]
fn a_migrator_that_never_returns_does_not_keep_the_settings() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, _) = daemon(dir.path());
    let (mut threads, restorer) = (Threads::default(), restorer(&shared, dir.path()));
    let release = stick(&shared, &mut threads);
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
fn a_machine_without_a_lower_tier_is_told_what_one_is() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, _) = daemon(dir.path());
    let tiers = shared.root.sys.join("devices/virtual/memory_tiering");
    std::fs::remove_dir_all(tiers).unwrap();
    // What a kernel lacks would be said before.
    for file in [
        "kernel/btf/vmlinux",
        "devices/system/memory/block_size_bytes",
    ] {
        let path = shared.root.sys.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "8000000\n").unwrap();
    }
    let mut options = config::load(Some(Path::new("/dev/null")), Vec::new()).unwrap();
    options.state_file = dir.path().join("state.json");
    options.socket = dir.path().join("sock");
    options.status_socket = dir.path().join("status");
    let keeper = Keeper::in_thread(&shared.root, &options.state_file).unwrap();
    let error = run(options, &shared.root, keeper).unwrap_err();
    assert!(matches!(error, RunError::NoLowerTier), "{error}");
    for advice in ["CXL", "--wait-for-lower-tier", "pghot doctor"] {
        assert!(error.to_string().contains(advice), "{error}");
    }
}
