//! The thread that makes room in the top tier: runs the engine's demoter for all lanes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pghot_engine::Marking;
use pghot_engine::demoter::{Demand, Demoter, DemoterReport, Reclaim};
use pghot_engine::exchange::FaultTimes;
use pghot_engine::marking::START_SIZE_MB;

use crate::lane::Lane;
use crate::lock;
use crate::shared::Shared;

/// What the thread shows of itself.
#[derive(Default)]
pub struct Room {
    /// After each pass.
    pub published: Mutex<DemoterReport>,
    /// Whether it makes room: then promotion leaves kswapd alone.
    pub is_made: Arc<AtomicBool>,
}

/// How long after a look at hint faults that found no new ones, in ms, comes the next.
const IDLE_MS: u64 = 4000;

/// Makes room until a stop is requested, on a machine of so many CPUs.
pub fn run(shared: &Shared, cpus: u64, machine: &mut dyn Reclaim) {
    let mut demoter = Demoter::default();
    let mut marking = Marking::new(cpus);
    let (mut size_mb, mut told_mb, mut ask_again_ms) = (None, START_SIZE_MB, 0);
    let mut faults = FaultTimes::default();
    let mut told_ms = shared.settings().quick_fault_ms;
    while !shared.stop.is_requested() {
        let settings = shared.settings();
        let demand = demand(&shared.lanes, faults);
        let rest_ms = demoter.pass(&demand, &settings, machine);
        shared
            .room
            .is_made
            .store(demoter.is_able(), Ordering::Relaxed);
        let quick_fault_ms = demoter.quick_fault_ms(&settings);
        let promoted = demand.outcomes.promoted;
        let now_ms = machine.now_ms();
        size_mb = marking.note(now_ms, faults.all(), promoted).or(size_mb);
        let is_urgent = demoter.report().is_wanted || quick_fault_ms != told_ms;
        let change = size_mb.filter(|size_mb| *size_mb != told_mb);
        if (is_urgent || change.is_some() || now_ms >= ask_again_ms)
            && let Some(seen) = shared.watch_faults(quick_fault_ms, change)
        {
            // An idle machine is asked rarely.
            let is_idle = seen.all() == faults.all();
            ask_again_ms = now_ms + if is_idle { IDLE_MS } else { 1000 };
            told_mb = change.unwrap_or(told_mb);
            (faults, told_ms) = (seen, quick_fault_ms);
        }
        lock(&shared.room.published).clone_from(demoter.report());
        shared.stop.sleep(Duration::from_millis(rest_ms));
    }
}

/// What waits, and what came of promotion, of all lanes together.
fn demand(lanes: &[Lane], faults: FaultTimes) -> Demand {
    let mut demand = Demand {
        faults,
        ..Demand::default()
    };
    for lane in lanes {
        let published = lock(&lane.published);
        demand.add(&published.last_pass.waiting, &published.totals);
    }
    demand
}
