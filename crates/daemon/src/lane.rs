//! A lane is one lower-tier node with its migrator; its thread passes over the node at intervals.

use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pghot_engine::{Gates, History, Machine, Migrator, Pace, PassReport, Totals};
use pghot_hotness::{Nid, Swept};

use crate::lock;
use crate::shared::Shared;

/// One lower-tier node.
pub struct Lane {
    /// The node.
    pub nid: Nid,
    /// Held for the whole of a pass; `explain` waits for its end.
    pub migrator: Mutex<Migrator>,
    /// What became of the node's records since the last pass.
    pub swept: Mutex<Swept>,
    /// Copied after each pass, so that `status` never waits for one.
    pub published: Mutex<Published>,
}

/// What a lane shows of itself.
#[derive(Debug, Clone, Default)]
pub struct Published {
    /// Since the start.
    pub totals: Totals,
    /// The newest pass.
    pub last_pass: PassReport,
}

impl Lane {
    /// A lane that has done nothing yet, with what all of them share.
    pub fn new(nid: Nid, history: History, gates: Gates) -> Lane {
        Lane {
            nid,
            migrator: Mutex::new(Migrator::new(nid, history, gates)),
            swept: Mutex::default(),
            published: Mutex::default(),
        }
    }

    /// Passes over the node until a stop is requested. Sleeps between passes, always.
    pub fn run(&self, shared: &Shared, host: &mut dyn Machine) {
        let mut pace = Pace::default();
        while !shared.stop.is_requested() {
            let (settings, rule) = shared.settings_and_rule();
            let last_pass = {
                let mut migrator = lock(&self.migrator);
                migrator.note_swept(std::mem::take(&mut *lock(&self.swept)));
                let report = migrator.pass(&shared.table, &settings, &rule, host);
                lock(&self.published).totals.clone_from(migrator.totals());
                shared.note_moved(migrator.moved());
                report
            };
            let sleep_ms = settings.kmigrated_sleep_ms as u64;
            let next_ms = pace.next_ms(&last_pass, sleep_ms);
            let (sees_ready, wants_room) = (last_pass.ready > 0, last_pass.wants_room());
            lock(&self.published).last_pass = last_pass;
            if sees_ready {
                let is_called_for = &shared.room.is_called_for;
                is_called_for.fetch_or(wants_room, Ordering::Relaxed);
                shared.are_samples_due.store(true, Ordering::Relaxed);
                shared.stop.nudge();
            }
            let rest_ms = next_ms.saturating_sub(host.now_ms());
            shared.stop.sleep(Duration::from_millis(rest_ms));
        }
    }
}
