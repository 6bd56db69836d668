//! Whether the threads that move pages make progress. Each has a pulse, which beats whenever its
//! work asks the machine something: several times a pass, and a pass comes every second or so.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pghot_engine::demoter::{Exchanged, Lruvec, Reclaim, Unable};
use pghot_engine::exchange::Fates;
use pghot_engine::{Batch, Found, Machine, Outcome, Pid, Place, Program};
use pghot_hotness::{Nid, Pfn};
use pghot_linux::host::monotonic;

use crate::lock;

/// When a thread made progress last, in ms of `CLOCK_MONOTONIC`.
#[derive(Debug, Clone)]
pub struct Pulse(Arc<AtomicU64>);

impl Pulse {
    fn beat(&self) {
        self.0.store(now_ms(), Ordering::Relaxed);
    }
}

/// The pulses of all threads that have one. Clones are the same ones.
#[derive(Debug, Clone, Default)]
pub struct Pulses(Arc<Mutex<Vec<(String, Pulse)>>>);

impl Pulses {
    /// A pulse for a thread, which counts from now on.
    pub fn add(&self, thread: &str) -> Pulse {
        let pulse = Pulse(Arc::new(AtomicU64::new(now_ms())));
        lock(&self.0).push((thread.to_owned(), pulse.clone()));
        pulse
    }

    /// The first thread that has made no progress for so long.
    pub fn stuck_for(&self, limit: Duration) -> Option<String> {
        let since_ms = now_ms().saturating_sub(limit.as_millis() as u64);
        let pulses = lock(&self.0);
        let is_stuck = |pulse: &Pulse| pulse.0.load(Ordering::Relaxed) < since_ms;
        let stuck = pulses.iter().find(|(_, pulse)| is_stuck(pulse));
        stuck.map(|(thread, _)| thread.clone())
    }
}

fn now_ms() -> u64 {
    monotonic().as_millis() as u64
}

/// A machine that beats the pulse of the thread that asks it.
pub struct Beating<T> {
    machine: T,
    pulse: Pulse,
}

impl<T> Beating<T> {
    /// Every question goes on to `machine`.
    pub fn new(machine: T, pulse: Pulse) -> Beating<T> {
        Beating { machine, pulse }
    }

    fn asked(&mut self) -> &mut T {
        self.pulse.beat();
        &mut self.machine
    }
}

impl<T: Machine + ?Sized> Machine for Beating<Box<T>> {
    fn now_ns(&self) -> u64 {
        self.pulse.beat();
        self.machine.now_ns()
    }

    fn top_tier_from(&mut self, from: Nid) -> Option<Vec<Nid>> {
        self.asked().top_tier_from(from)
    }

    fn room_pages(&mut self, target: Nid) -> u64 {
        self.asked().room_pages(target)
    }

    fn resolve(&mut self, pfns: &[Pfn], found: &mut Vec<Found>) {
        self.asked().resolve(pfns, found);
    }

    fn promote(&mut self, batch: &Batch, outcomes: &mut Vec<Outcome>) {
        self.asked().promote(batch, outcomes);
    }

    fn program(&mut self, pid: Pid) -> Option<Program> {
        self.asked().program(pid)
    }

    fn stop_requested(&self) -> bool {
        self.machine.stop_requested()
    }
}

impl<T: Reclaim> Reclaim for Beating<T> {
    fn now_ms(&self) -> u64 {
        self.pulse.beat();
        self.machine.now_ms()
    }

    fn room_pages(&mut self, nid: Nid) -> u64 {
        self.asked().room_pages(nid)
    }

    fn lower_room_pages(&mut self, from: Nid) -> u64 {
        self.asked().lower_room_pages(from)
    }

    fn lruvecs(&mut self, nid: Nid) -> Result<Vec<Lruvec>, Unable> {
        self.asked().lruvecs(nid)
    }

    fn age(&mut self, nid: Nid, memcg_id: u64, seq: u64) {
        self.asked().age(nid, memcg_id, seq);
    }

    fn look_at(&mut self, places: &[Place]) -> Fates {
        self.asked().look_at(places)
    }

    fn huge_share(&mut self, nid: Nid) -> f64 {
        self.asked().huge_share(nid)
    }

    fn program(&mut self, pid: Pid) -> Option<Program> {
        self.asked().program(pid)
    }

    fn exchange_huge(&mut self, nid: Nid, down: &[Place], up: &[Place]) -> Exchanged {
        self.asked().exchange_huge(nid, down, up)
    }

    fn demote(&mut self, nid: Nid, memcg_id: u64, seq: u64, pages: u64) -> u64 {
        self.asked().demote(nid, memcg_id, seq, pages)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Instant;

    use super::*;

    #[test]
    fn who_makes_no_progress_is_named() {
        let pulses = Pulses::default();
        let quick = pulses.add("quick");
        pulses.add("slow");
        assert_eq!(pulses.stuck_for(Duration::from_secs(60)), None);
        let limit = Duration::from_millis(50);
        let deadline = Instant::now() + Duration::from_secs(20);
        while pulses.stuck_for(limit).is_none_or(|name| name == "quick") {
            quick.beat();
            assert!(Instant::now() < deadline);
            thread::yield_now();
        }
        quick.beat();
        assert_eq!(pulses.stuck_for(limit).as_deref(), Some("slow"));
    }
}
