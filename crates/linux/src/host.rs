//! The Linux machine: implements the engine's [`Machine`] with sysfs, the resolver and the mover.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pghot_engine::{Batch, Found, Machine, Outcome, Owner, Pid, Program};
use pghot_hotness::{Nid, Pfn};

use crate::exchange_cpus::ExchangeCpus;
use crate::file_mover::FileMover;
use crate::mover::{MoveStatus, Mover};
use crate::moving::MovingTime;
use crate::programs::Programs;
use crate::resolver::{Resolver, ResolverError};
use crate::root::{ReadError, SysRoot};
use crate::topology::{Topology, parse_range_list};
use crate::watermarks::Watermarks;

/// Why this machine cannot be driven.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The resolver did not load.
    #[error(transparent)]
    Resolver(#[from] ResolverError),
    /// A kernel file could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Whether reclaim of the top tier moves cold pages down. An operator may change it at any time, so
/// it is asked each time; the file stays open.
pub struct Demotion(Option<File>);

impl Demotion {
    /// The file is not there on kernels that cannot demote.
    pub fn open(root: &SysRoot) -> Demotion {
        Demotion(File::open(root.sys.join("kernel/mm/numa/demotion_enabled")).ok())
    }

    /// Whether it does now.
    pub fn is_on(&self) -> bool {
        let mut buffer = [0; 8];
        let read = self.0.as_ref().map(|file| file.read_at(&mut buffer, 0));
        matches!(read, Some(Ok(length)) if buffer[..length].trim_ascii() == b"true")
    }
}

/// One migrator's view of the machine. Each migrator thread opens its own.
pub struct Host {
    has_memory: File,
    demotion: Demotion,
    /// Set while somebody else makes room.
    makes_room: Arc<AtomicBool>,
    exchange_cpus: ExchangeCpus,
    moving: MovingTime,
    topology: Topology,
    watermarks: Watermarks,
    resolver: Resolver,
    programs: Programs,
    mover: Mover,
    file_mover: FileMover,
    dry_run: bool,
    stop: Arc<AtomicBool>,
    statuses: Vec<MoveStatus>,
    addresses: Vec<u64>,
}

impl Host {
    /// Loads the resolver and opens what is read in each pass. A dry run resolves and gates, but
    /// moves nothing.
    pub fn open(root: SysRoot, topology: &Topology, dry_run: bool) -> Result<Host, HostError> {
        let path = root.sys.join("devices/system/node/has_memory");
        let has_memory = File::open(&path).map_err(|source| ReadError::Io { path, source })?;
        Ok(Host {
            has_memory,
            demotion: Demotion::open(&root),
            makes_room: Arc::default(),
            exchange_cpus: ExchangeCpus::default(),
            moving: MovingTime::default(),
            watermarks: Watermarks::open(&root)?,
            resolver: Resolver::load()?,
            programs: Programs::new(&root),
            mover: Mover::new(),
            file_mover: FileMover::open(&root)?,
            topology: topology.clone(),
            dry_run,
            stop: Arc::default(),
            statuses: Vec::new(),
            addresses: Vec::new(),
        })
    }

    /// A flag that ends a pass after the batch in flight.
    pub fn set_stop(&mut self, stop: Arc<AtomicBool>) {
        self.stop = stop;
    }

    /// A flag that is set while a demoter makes room, and where it does: then promotion need not
    /// wake kswapd for it.
    pub fn set_makes_room(&mut self, flag: Arc<AtomicBool>, exchange_cpus: ExchangeCpus) {
        self.makes_room = flag;
        self.exchange_cpus = exchange_cpus;
    }

    /// Where the CPU time of moves is added up.
    pub fn set_moving_time(&mut self, moving: MovingTime) {
        self.moving = moving;
    }

    /// Whether promotion goes so far that kswapd makes room for more.
    fn wakes_kswapd(&self) -> bool {
        !self.makes_room.load(Ordering::Relaxed) && self.demotion.is_on()
    }

    fn move_mapped(&mut self, pid: Pid, batch: &Batch, outcomes: &mut Vec<Outcome>) {
        self.addresses.clear();
        self.addresses
            .extend(batch.folios.iter().map(|f| f.address));
        let pid = pid as libc::pid_t;
        self.mover
            .move_batch(pid, &self.addresses, batch.target, &mut self.statuses);
        outcomes.extend(self.statuses.iter().map(|status| status.outcome()));
    }

    /// The nodes that have memory now: an offlined one has none. Asked at every pass, so the file
    /// stays open: one system call.
    fn with_memory(&self) -> Vec<Nid> {
        let mut buffer = [0; 1024];
        let length = self.has_memory.read_at(&mut buffer, 0).unwrap_or(0);
        let text = String::from_utf8_lossy(&buffer[..length]);
        parse_range_list(text.trim()).unwrap_or_default()
    }
}

/// `CLOCK_MONOTONIC`, which the BPF programs stamp their reports with.
pub fn monotonic() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a valid place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

impl Machine for Host {
    fn now_ns(&self) -> u64 {
        monotonic().as_nanos() as u64
    }

    fn top_tier_from(&mut self, from: Nid) -> Option<Vec<Nid>> {
        let online = self.with_memory();
        if !self.topology.is_lower(from) || !online.contains(&from) {
            return None;
        }
        let mut top_tier = self.topology.top_tier_from(from);
        top_tier.retain(|nid| online.contains(nid));
        Some(top_tier)
    }

    fn room_pages(&mut self, target: Nid) -> u64 {
        let at_cpu = self.exchange_cpus.get(target, self.now_ms());
        // Unreadable watermarks mean no room: promotion without them could push the node into
        // reclaim.
        match self.watermarks.refresh_node(target, self.now_ns()) {
            Ok(()) if self.wakes_kswapd() => self.watermarks.room_with_reclaim_pages(target),
            Ok(()) => self.watermarks.room_pages(target, at_cpu),
            Err(_) => 0,
        }
    }

    fn resolve(&mut self, pfns: &[Pfn], found: &mut Vec<Found>) {
        self.resolver.resolve(pfns, found);
    }

    fn promote(&mut self, batch: &Batch, outcomes: &mut Vec<Outcome>) {
        if self.dry_run {
            outcomes.extend(batch.folios.iter().map(|_| Outcome::WouldMove));
            return;
        }
        let _stay = self.exchange_cpus.follow(batch.target, self.now_ms());
        // Whatever comes of it, not more than that.
        (self.watermarks).note_taken(batch.target, batch.pages.into());
        let moving = self.moving.clone();
        moving.count(|| match batch.owner {
            Owner::Process(pid) => self.move_mapped(pid, batch, outcomes),
            Owner::File(file) => {
                self.file_mover
                    .move_batch(&file, &batch.folios, batch.target, outcomes);
            }
        });
    }

    fn program(&mut self, pid: Pid) -> Option<Program> {
        self.programs.get(pid, self.now_ms())
    }

    fn stop_requested(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
