//! Demotes on demand: the kernel's MGLRU files, watermarks and counters as the engine's
//! [`Reclaim`].
//!
//! The kernel demotes what it evicts only while `demotion_enabled` is true and there is room below;
//! otherwise it would write to swap. So both are asked each time.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use pghot_engine::demoter::{Exchanged, Lruvec, Reclaim, Unable};
use pghot_engine::exchange::Fates;
use pghot_engine::{HUGE_PAGES, Owner, Pid, Place, Program};
use pghot_hotness::Nid;
use tracing::debug;

use crate::exchange_cpus::ExchangeCpus;
use crate::fates::AccessedBits;
use crate::hint_fault_knobs::nodes_with_cpus;
use crate::host::{Demotion, monotonic};
use crate::huge_pages;
use crate::keeper::Keeper;
use crate::lru_gen::{self, Commands, Key, Mode};
use crate::mover::{MoveStatus, Mover};
use crate::moving::MovingTime;
use crate::programs::Programs;
use crate::root::{ReadError, SysRoot};
use crate::topology::Topology;
use crate::vmstat::Vmstat;
use crate::watermarks::Watermarks;

/// Pages of one call: the kernel looks at signals between its batches only.
const CALL_PAGES: u64 = 4096;

/// The machine, as the demoter sees it.
pub struct Reclaimer {
    root: SysRoot,
    lru_gen: PathBuf,
    commands: Commands,
    topology: Topology,
    watermarks: Watermarks,
    demotion: Demotion,
    moving: MovingTime,
    exchange_cpus: ExchangeCpus,
    /// None where the kernel does not take the program: then no page is looked at.
    accessed_bits: Option<AccessedBits>,
    programs: Programs,
    mover: Mover,
    dry_run: bool,
}

impl Reclaimer {
    /// Opens what is read in each pass, and adds up in `moving` what demotion costs; what is
    /// written to is opened by the keeper. A dry run demotes nothing.
    pub fn open(
        root: &SysRoot,
        topology: &Topology,
        keeper: &Arc<Keeper>,
        moving: MovingTime,
        dry_run: bool,
    ) -> Result<Self, ReadError> {
        Ok(Reclaimer {
            lru_gen: lru_gen::path(root),
            commands: Commands::new(keeper),
            topology: topology.clone(),
            watermarks: Watermarks::open(root)?,
            demotion: Demotion::open(root),
            root: root.clone(),
            programs: Programs::new(root),
            mover: Mover::new(),
            moving,
            exchange_cpus: ExchangeCpus::default(),
            accessed_bits: AccessedBits::load().inspect_err(not_loaded).ok(),
            dry_run,
        })
    }

    /// Where the migrators promote while room is made.
    pub fn set_exchange_cpus(&mut self, exchange_cpus: ExchangeCpus) {
        self.exchange_cpus = exchange_cpus;
    }

    /// The room of a node, at the CPU where pages of a top-tier node change places.
    fn room_at(&mut self, nid: Nid, at_cpu: Option<u32>) -> u64 {
        let now_ns = monotonic().as_nanos() as u64;
        match self.watermarks.refresh_node(nid, now_ns) {
            Ok(()) => self.watermarks.room_pages(nid, at_cpu),
            Err(_) => 0,
        }
    }

    /// Why nothing can be demoted now, if so.
    fn unable(&self) -> Option<Unable> {
        if self.dry_run {
            return Some(Unable::DryRun);
        }
        if !self.demotion.is_on() {
            return Some(Unable::DemotionOff);
        }
        let enabled = fs::read_to_string(lru_gen::enabled_path(&self.root));
        let mode = enabled.map_or(Mode::Off, |text| lru_gen::mode(&text));
        (mode == Mode::Off).then_some(Unable::NoGenerations)
    }

    /// The nearest lower-tier node that has free blocks for huge pages, and how many it may take.
    fn node_for_huge(&self, from: Nid) -> Option<(Nid, usize)> {
        let distance = |nid: Nid| {
            let node = self.topology.nodes.iter().find(|node| node.nid == from);
            node.and_then(|node| node.distance_to(nid))
                .unwrap_or(u32::MAX)
        };
        let lower = self.topology.lower_tier_nodes().map(|node| node.nid);
        let mut lower: Vec<Nid> = lower.collect();
        lower.sort_by_key(|nid| distance(*nid));
        // Half of them: others may be quicker.
        let free = |nid: Nid| (nid, huge_pages::free(&self.root, nid) as usize / 2);
        lower.into_iter().map(free).find(|(_, free)| *free > 0)
    }

    /// Moves huge pages of processes to a node; returns how many moved.
    fn move_huge(&mut self, places: &[Place], target: Nid) -> u64 {
        let mut by_pid = BTreeMap::<Pid, Vec<u64>>::new();
        for place in places {
            if let Owner::Process(pid) = place.owner {
                by_pid.entry(pid).or_default().push(place.address);
            }
        }
        let (mut moved, mut statuses) = (0, Vec::new());
        for (pid, addresses) in by_pid {
            let mover = &mut self.mover;
            let mut move_them = || mover.move_batch(pid as i32, &addresses, target, &mut statuses);
            self.moving.count(&mut move_them);
            let done = statuses.iter().filter(|it| **it == MoveStatus::Moved);
            moved += done.count() as u64;
        }
        moved
    }

    fn demoted_pages(&self) -> u64 {
        Vmstat::read(&self.root).map_or(0, |vmstat| vmstat.demoted_by_request_pages())
    }
}

/// Exchanges go on, and are judged by hint faults alone; `pghot doctor` says it too.
fn not_loaded(error: &libbpf_rs::Error) {
    debug!("cannot look at promoted pages again: {error}");
}

impl Reclaim for Reclaimer {
    fn now_ms(&self) -> u64 {
        monotonic().as_millis() as u64
    }

    fn room_pages(&mut self, nid: Nid) -> u64 {
        let at_cpu = self.exchange_cpus.get(nid, self.now_ms());
        self.room_at(nid, at_cpu)
    }

    fn lower_room_pages(&mut self, from: Nid) -> u64 {
        let at_cpu = self.exchange_cpus.get(from, self.now_ms());
        let lower = self.topology.lower_tier_nodes().map(|node| node.nid);
        let lower: Vec<Nid> = lower.collect();
        lower.into_iter().map(|nid| self.room_at(nid, at_cpu)).sum()
    }

    fn lruvecs(&mut self, nid: Nid) -> Result<Vec<Lruvec>, Unable> {
        if let Some(unable) = self.unable() {
            return Err(unable);
        }
        let list = fs::read_to_string(&self.lru_gen).map_err(|_| Unable::NoGenerations)?;
        self.commands.open().map_err(|_| Unable::NoGenerations)?;
        let lruvecs = lru_gen::generations(&list, |listed| listed == nid);
        let mut paths = lru_gen::paths(&list);
        let lruvec = |(key, generations): (Key, _)| Lruvec {
            memcg_id: key.memcg_id,
            cgroup: paths.remove(&key.memcg_id).unwrap_or_default().into(),
            generations,
        };
        Ok(lruvecs.into_iter().map(lruvec).collect())
    }

    fn look_at(&mut self, places: &[Place]) -> Fates {
        let bits = self.accessed_bits.as_mut();
        bits.map_or_else(Fates::default, |bits| bits.look_at(places))
    }

    fn age(&mut self, nid: Nid, memcg_id: u64, seq: u64) {
        // Refused where the control group is gone, or reclaim was quicker: both are seen in the
        // next list.
        let _ = self.commands.age(Key { memcg_id, nid }, seq);
    }

    fn huge_share(&mut self, nid: Nid) -> f64 {
        // With CPUs on several nodes normal balancing would move what it marks.
        match nodes_with_cpus(&self.root) {
            1 => huge_pages::share(&self.root, nid).unwrap_or(0.0),
            _ => 0.0,
        }
    }

    fn program(&mut self, pid: Pid) -> Option<Program> {
        self.programs.get(pid, self.now_ms())
    }

    fn exchange_huge(&mut self, nid: Nid, down: &[Place], up: &[Place]) -> Exchanged {
        if self.dry_run || !self.demotion.is_on() {
            return Exchanged::default();
        }
        let Some((target, most)) = self.node_for_huge(nid) else {
            return Exchanged::default();
        };
        let _stay = self.exchange_cpus.stay(nid, self.now_ms());
        let free = huge_pages::free(&self.root, nid);
        let gone = self.move_huge(&down[..most.min(down.len())], target);
        // No more than fit whole: of others the kernel would move the parts. What has gone left
        // blocks of their size, be it in the lists of this CPU.
        let fits = (free + gone).min(self.room_pages(nid) / HUGE_PAGES);
        let come = self.move_huge(&up[..(fits as usize).min(up.len())], nid);
        Exchanged {
            down_pages: gone * HUGE_PAGES,
            up_pages: come * HUGE_PAGES,
        }
    }

    fn demote(&mut self, nid: Nid, memcg_id: u64, seq: u64, pages: u64) -> u64 {
        if self.unable().is_some() {
            return 0;
        }
        let _stay = self.exchange_cpus.stay(nid, self.now_ms());
        let before = self.demoted_pages();
        let (mut asked, mut went) = (0, 0);
        while asked < pages {
            let now = (pages - asked).min(CALL_PAGES);
            let commands = &mut self.commands;
            let evict = || commands.evict(Key { memcg_id, nid }, seq, now);
            if self.moving.count(evict).is_err() {
                break;
            }
            asked += now;
            let all = self.demoted_pages().saturating_sub(before);
            // All that are left were accessed meanwhile, or cannot go.
            if all == went {
                break;
            }
            went = all;
        }
        went
    }
}
