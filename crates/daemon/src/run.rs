//! `pghot run`: brings the daemon up in an order in which every step can be undone, waits, and
//! puts everything back.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use pghot_hotness::Table;
use pghot_linux::knobs::{Knobs, KnobsError};
use pghot_linux::topology::Topology;
use pghot_linux::{Host, SysRoot, bpf};
use pghot_sources::{Availability, Config, Descriptor, Error, RecordMaps, SOURCES, Source, Start};
use tracing::{info, warn};

use crate::config::{Options, mode_name};
use crate::control::Control;
use crate::error::RunError;
use crate::lane::{Lane, LaneHost};
use crate::lock;
use crate::machine::{choose_target, lower_tier_nids, span_of};
use crate::restorer::{self, Restorer};
use crate::shared::{Shared, source_config};
use crate::signals::SignalWatch;
use crate::socket::Socket;
use crate::sources::{Ground, Sources};
use crate::stop::Stop;

/// Buffers of this size and more go back to the kernel when they are freed.
const LARGE_BUFFER_BYTES: libc::c_int = 128 << 10;

/// Keeps the daemon small for the weeks that it runs. Left alone, glibc raises its idea of a large
/// buffer to the largest one that was ever freed, up to 32 MiB, and keeps those below for each
/// thread.
fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt only changes numbers of the allocator; that it may refuse does no harm.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BUFFER_BYTES);
    }
}

/// Runs the daemon until a signal or a failure ends it. Whatever happens, the kernel settings are
/// put back.
pub fn run(mut options: Options, root: &SysRoot) -> Result<(), RunError> {
    give_memory_back();
    bpf::log_messages();
    let topology = Topology::read(root)?;
    let nids = lower_tier_nids(&topology, root)?;
    choose_target(&mut options, &topology, nids[0])?;
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
    let ground = Kernel {
        maps,
        table: Arc::clone(&table),
        topology: topology.clone(),
        knobs: restorer.knobs(),
        changed: BTreeMap::new(),
        dry_run,
        hint_socket: options.hint_socket.clone(),
    };
    let sources = Sources::new(SOURCES, Box::new(ground));
    let shared = Shared::new(root.clone(), table, settings, &nids, sources, dry_run, stop)?;
    let shared = Arc::new(shared);
    let result = start_and_serve(&options, &topology, socket, &shared);
    // Clients still being served hold `shared`, so nothing here waits for its last owner.
    shared.stop.request();
    lock(&shared.sources).close();
    let restored = restorer.finish();
    result?;
    restored?;
    info!("stopped, and the kernel settings are as they were");
    Ok(())
}

/// Starts what reports, moves and answers, and waits for the end.
fn start_and_serve(
    options: &Options,
    topology: &Topology,
    socket: Socket,
    shared: &Arc<Shared>,
) -> Result<(), RunError> {
    let mut hosts: Vec<Box<dyn LaneHost>> = Vec::new();
    for _ in &shared.lanes {
        let mut host = Host::open(shared.root.clone(), topology, shared.dry_run)?;
        host.set_stop(shared.stop.flag());
        hosts.push(Box::new(host));
    }
    // Last, because it makes programs take hint faults.
    start_sources(shared)?;
    let control = Control::start(socket, Arc::clone(shared)).map_err(RunError::Thread)?;
    announce(options, shared);
    let result = supervise(shared, hosts);
    control.stop();
    result
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

/// The kernel, as sources are started on it.
struct Kernel {
    maps: RecordMaps,
    table: Arc<Table>,
    topology: Topology,
    knobs: Arc<Mutex<Knobs>>,
    /// The kernel settings that each source changed, by the source's bit.
    changed: BTreeMap<u32, Vec<PathBuf>>,
    dry_run: bool,
    hint_socket: PathBuf,
}

impl Kernel {
    /// Runs `change` on behalf of a source, and remembers the settings that are new in the books.
    fn owning<T>(
        &mut self,
        descriptor: &Descriptor,
        change: impl FnOnce(&Kernel, &mut Knobs) -> T,
    ) -> T {
        let knobs = Arc::clone(&self.knobs);
        let mut knobs = lock(&knobs);
        let before = knobs.changed();
        let result = change(self, &mut knobs);
        let mut new = knobs.changed();
        new.retain(|path| !before.contains(path));
        self.changed.entry(descriptor.bit).or_default().extend(new);
        result
    }
}

impl Ground for Kernel {
    fn start(
        &mut self,
        descriptor: &'static Descriptor,
        config: Config,
        standing_by: bool,
    ) -> Result<Box<dyn Source>, String> {
        self.owning(descriptor, |kernel, knobs| {
            if let Availability::Unavailable(why) = (descriptor.check)(knobs.root()) {
                return Err(why);
            }
            let mut start = Start {
                maps: &kernel.maps,
                table: &kernel.table,
                topology: &kernel.topology,
                config,
                knobs,
                dry_run: kernel.dry_run,
                hint_socket: &kernel.hint_socket,
                standing_by,
            };
            (descriptor.start)(&mut start).map_err(|error| error.to_string())
        })
    }

    fn clear(&mut self, descriptor: &'static Descriptor) {
        let paths = self.changed.remove(&descriptor.bit).unwrap_or_default();
        match lock(&self.knobs).put_back(&paths) {
            Ok(report) => restorer::log(&report),
            Err(error) => warn!("{error}"),
        }
    }

    fn stand_by(&mut self, source: &mut dyn Source, standing_by: bool) -> Result<(), Error> {
        self.owning(source.descriptor(), |_, knobs| {
            source.stand_by(knobs, standing_by)
        })
    }
}

fn start_sources(shared: &Shared) -> Result<(), RunError> {
    let (settings, rule) = shared.settings_and_rule();
    // Before the first hint fault: the kernel promotes in it while there is plenty of room.
    shared.note_free_space(Instant::now());
    let mut sources = lock(&shared.sources);
    sources.enable(settings.enabled_sources, &source_config(&settings, rule));
    if settings.enabled_sources == 0 {
        warn!("enabled_sources is 0: no access is seen until `pghot set enabled_sources`");
    } else if !sources.is_any_running() {
        return Err(RunError::NoSource(sources.why_none()));
    }
    Ok(())
}

/// Runs each lane in a thread of its own until a stop is requested or one of them panics.
fn supervise(shared: &Arc<Shared>, hosts: Vec<Box<dyn LaneHost>>) -> Result<(), RunError> {
    let mut threads = Vec::new();
    let mut result = Ok(());
    for (index, mut host) in hosts.into_iter().enumerate() {
        let lane_shared = Arc::clone(shared);
        let nid = shared.lanes[index].nid;
        let body = move || {
            let lane: &Lane = &lane_shared.lanes[index];
            let pass = AssertUnwindSafe(|| lane.run(&lane_shared, host.as_mut()));
            // Whether it panicked or not: without this lane the daemon is not whole.
            let outcome = catch_unwind(pass);
            lane_shared.stop.request();
            outcome.map_err(|_| RunError::Panicked(nid))
        };
        let name = format!("migrator{nid}");
        match thread::Builder::new().name(name).spawn(body) {
            Ok(thread) => threads.push((nid, thread)),
            Err(error) => {
                result = Err(RunError::Thread(error));
                shared.stop.request();
                break;
            }
        }
    }
    shared.stop.wait();
    for (nid, thread) in threads {
        let ended = thread.join().unwrap_or(Err(RunError::Panicked(nid)));
        result = result.and(ended);
    }
    result
}

/// `pghot restore`: puts back what a killed daemon left changed, and says so of each setting.
pub fn restore(root: &SysRoot, state_file: &Path) -> Result<Vec<String>, KnobsError> {
    let report = Knobs::recover(root, state_file)?;
    let said = report.iter().map(restorer::sentence).collect();
    restorer::first_failure(report).map_or(Ok(said), Err)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::time::{Duration, Instant};

    use pghot_engine::fake::FakeMachine;
    use pghot_engine::{Batch, Found, Held, Machine, NodeRole, Outcome};
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
        fn role(&mut self, nid: Nid) -> NodeRole {
            assert!(!self.panics.load(Relaxed), "a bug, as this test asks for");
            self.machine.role(nid)
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
            assert!(
                Instant::now() < deadline,
                "{:?}",
                lock(&shared.lanes[0].published)
            );
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
        let lanes = Arc::clone(&shared);
        let thread = thread::spawn(move || supervise(&lanes, vec![Box::new(host(2))]));
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
        shared.stop.request();
        thread.join().unwrap().unwrap();
        assert!(
            before.elapsed() < Duration::from_millis(900),
            "sleeps are cut short"
        );
    }

    #[test]
    fn after_a_panic_the_host_is_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, _) = daemon(dir.path());
        let setting = shared.root.sysctl("kernel.numa_balancing");
        write(&setting, "1\n");
        write(&shared.root.sysctl("kernel.random.boot_id"), "b\n");
        let own_stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        write(
            &shared
                .root
                .proc
                .join(format!("{}/stat", std::process::id())),
            &own_stat,
        );
        let state_file = dir.path().join("state.json");
        let (mut knobs, _) = Knobs::open(&shared.root, &state_file).unwrap();
        knobs.set(&setting, "3").unwrap();
        let restorer = Restorer::new(knobs);

        let bad = host(0);
        let panics = Arc::clone(&bad.panics);
        let lanes = Arc::clone(&shared);
        let thread = thread::spawn(move || supervise(&lanes, vec![Box::new(bad)]));
        wait_for(&shared, |lane| lane.totals.passes > 0);
        panics.store(true, Relaxed);
        let error = thread.join().unwrap().unwrap_err();
        assert!(matches!(error, RunError::Panicked(2)), "{error}");
        assert_eq!(std::fs::read_to_string(&setting).unwrap(), "3\n");
        drop(restorer);
        assert_eq!(std::fs::read_to_string(&setting).unwrap(), "1\n");
        assert!(!state_file.exists());
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
