//! The thread that makes room in the top tier for what waits in all lower-tier nodes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use pghot_engine::demoter::{Demand, Demoter, Reclaim};
use pghot_engine::exchange::FaultTimes;
use pghot_engine::marking::HintFaults;
use pghot_engine::{Marking, QuickFault};
use pghot_linux::busy_cpus::BusyCpus;

use crate::lock;
use crate::shared::{MigratorState, Shared};

/// Makes room until a stop is requested, on a machine of so many CPUs.
pub fn run(shared: &Shared, mut demoter: Demoter, cpus: u64, machine: &mut dyn Reclaim) {
    let mut busy_cpus = BusyCpus::new(&shared.root, cpus);
    let mut marking = Marking::new(cpus);
    let (mut faults, mut huge_faults) = (HintFaults::default(), Vec::new());
    let mut told = QuickFault::as_set(&shared.settings());
    while !shared.stop.is_requested() {
        let settings = shared.settings();
        let state = &shared.demoter;
        state.is_called_for.store(false, Ordering::Relaxed);
        let mut demand = demand(&shared.migrators, faults.times);
        demand.huge_faults = std::mem::take(&mut huge_faults);
        demand.marks_enough = marking.marks_enough();
        demand.scanner_rests = marking.visits().rests;
        let rest_ms = demoter.pass(&demand, &settings, machine);
        state.makes_room.store(demoter.is_able(), Ordering::Relaxed);
        if !demoter.demoted().is_empty() {
            for migrator in &shared.migrators {
                migrator.has_new_room.store(true, Ordering::Relaxed);
            }
            shared.stop.tell_of_room();
        }
        for (cgroup, pages) in demoter.demoted() {
            shared.owners.note_demoted(cgroup, *pages, machine.now_ms());
        }
        let quick_fault = demoter.report().quick_fault(&settings);
        let now_ms = machine.now_ms();
        let promoted = demand.outcomes.promoted + demoter.report().huge_promoted_pages;
        let worth = demoter.report().worth();
        let is_due = |marking: &Marking, faults: &HintFaults| {
            marking.is_due(now_ms, faults.all(), promoted, worth)
        };
        let is_urgent = demoter.report().is_wanted || quick_fault != told;
        if (is_urgent || is_due(&marking, &faults))
            && let Some(seen) = shared.watch_faults(quick_fault)
        {
            (faults, huge_faults) = seen;
            told = quick_fault;
        }
        let (is_due, alarm) = (is_due(&marking, &faults), demoter.alarm());
        if is_due {
            marking.note_busy(busy_cpus.read());
            marking.note(now_ms, faults.all(), promoted, worth);
            marking.note_seldom(now_ms, faults.seldom);
        }
        if let Some(pages) = alarm {
            marking.note_alarm(now_ms, pages);
        }
        let is_other = marking.mark_above(demoter.report().marks_above);
        if is_due || alarm.is_some() || is_other {
            shared.mark(&marking);
        }
        lock(&state.published).clone_from(demoter.report());
        let may_wake = demoter.is_to_be_woken();
        let is_called = || may_wake && state.is_called_for.load(Ordering::Relaxed);
        let rest = Duration::from_millis(rest_ms);
        shared.stop.sleep_unless(rest, is_called);
    }
}

/// What waits, and what came of promotion, of all migrators together.
fn demand(migrators: &[MigratorState], faults: FaultTimes) -> Demand {
    let mut demand = Demand {
        faults,
        ..Demand::default()
    };
    for migrator in migrators {
        demand.lower_tier.push(migrator.nid);
        let published = lock(&migrator.published);
        demand.add(&published.last_pass.waiting, &published.totals);
    }
    demand
}
