//! The thread of a lower-tier node's migrator: passes over the node at intervals.

use std::sync::atomic::Ordering;
use std::time::Duration;

use pghot_engine::{Machine, Migrator, Pace};

use crate::durations::Durations;
use crate::lock;
use crate::shared::{MigratorState, Published, Shared};
use crate::timed::Timed;

/// Passes over the node until a stop is requested. Sleeps between passes, always.
pub fn run(
    shared: &Shared,
    state: &MigratorState,
    mut migrator: Migrator,
    machine: &mut dyn Machine,
) {
    let mut pace = Pace::default();
    let mut machine = Timed::new(machine);
    let (mut passes, mut batches) = (Durations::default(), Durations::default());
    while !shared.stop.is_requested() {
        state.has_new_room.store(false, Ordering::Relaxed);
        let (settings, rule) = shared.settings_and_rule();
        migrator.note_swept(std::mem::take(&mut *lock(&state.swept)));
        let started_ns = machine.now_ns();
        let pass = migrator.pass(&shared.table, &settings, &rule, &mut machine);
        let ended_ns = machine.now_ns();
        shared.note_moved(migrator.moved());
        let handed_over = machine.take_batches();
        passes.add(ended_ns.saturating_sub(started_ns));
        for batch in &handed_over {
            batches.add(batch.ended_ns.saturating_sub(batch.started_ns));
        }
        let times_ns = (started_ns, ended_ns);
        (shared.spans).note_pass(state.nid, times_ns, &pass, &handed_over);
        let next_ms = pace.next_ms(&pass, settings.kmigrated_sleep_ms as u64);
        let (sees_ready, wants_room) = (pass.ready > 0, pass.wants_room());
        *lock(&state.published) = Published {
            totals: migrator.totals().clone(),
            last_pass: pass,
            passes: passes.clone(),
            batches: batches.clone(),
        };
        if sees_ready {
            let is_called_for = &shared.demoter.is_called_for;
            is_called_for.fetch_or(wants_room, Ordering::Relaxed);
            shared.are_samples_due.store(true, Ordering::Relaxed);
            shared.stop.nudge();
        }
        let is_called = || wants_room && state.has_new_room.load(Ordering::Relaxed);
        let rest = Duration::from_millis(next_ms.saturating_sub(machine.now_ms()));
        shared.stop.sleep_without_room(rest, is_called);
    }
}
