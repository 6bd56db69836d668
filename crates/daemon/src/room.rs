//! The thread that makes room in the top tier: runs the engine's demoter for all lanes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pghot_engine::QuickFault;
use pghot_engine::demoter::{Demand, Demoter, DemoterReport, Reclaim};
use pghot_engine::exchange::FaultTimes;
use pghot_engine::marking::{Marking, MarkingReport};

use crate::lane::Lane;
use crate::lock;
use crate::shared::Shared;

/// What the thread shows of itself.
#[derive(Default)]
pub struct Room {
    /// After each pass.
    pub published: Mutex<DemoterReport>,
    /// How much the kernel's scanner marks; `None` where that is not for pghot to say.
    pub marking: Mutex<Option<MarkingReport>>,
    /// Whether it makes room: then promotion leaves kswapd alone.
    pub is_made: Arc<AtomicBool>,
    /// Whether a lane has found none since the last pass.
    pub is_called_for: AtomicBool,
}

/// Makes room until a stop is requested, on a machine of so many CPUs.
pub fn run(shared: &Shared, cpus: u64, machine: &mut dyn Reclaim) {
    let mut demoter = Demoter::default();
    let mut marking = Marking::new(cpus);
    let mut faults = FaultTimes::default();
    let mut told = QuickFault::as_set(&shared.settings());
    while !shared.stop.is_requested() {
        let settings = shared.settings();
        shared.room.is_called_for.store(false, Ordering::Relaxed);
        let demand = demand(&shared.lanes, faults);
        let rest_ms = demoter.pass(&demand, &settings, machine);
        shared
            .room
            .is_made
            .store(demoter.is_able(), Ordering::Relaxed);
        let quick_fault = demoter.report().quick_fault(&settings);
        let now_ms = machine.now_ms();
        let promoted = demand.outcomes.promoted;
        let is_urgent = demoter.report().is_wanted || quick_fault != told;
        if (is_urgent || marking.is_due(now_ms, faults, promoted))
            && let Some(seen) = shared.watch_faults(quick_fault)
        {
            (faults, told) = (seen, quick_fault);
        }
        if marking.is_due(now_ms, faults, promoted) {
            let has_room = demoter.report().has_room;
            marking.note(now_ms, faults, promoted, has_room);
            shared.mark(marking.report());
        }
        lock(&shared.room.published).clone_from(demoter.report());
        let may_wake = demoter.is_to_be_woken();
        let is_called = || may_wake && shared.room.is_called_for.load(Ordering::Relaxed);
        let rest = Duration::from_millis(rest_ms);
        shared.stop.sleep_unless(rest, is_called);
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
