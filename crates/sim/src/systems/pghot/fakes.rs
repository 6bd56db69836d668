//! The sources of the model, each by its fake: started, stopped and told by the engine's arbiter,
//! as the daemon's are.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use pghot_engine::arbiter::{self, Config, Kind};
use pghot_engine::exchange::FaultTimes;
use pghot_hotness::Table;
use pghot_sources::SOURCES;
use pghot_sources::fake::{Event, Fake, FolioAccess};

use super::bits::Bits;
use crate::machine::world::World;
use crate::traffic::task::Task;

/// All sources, started or not, in the order of [`SOURCES`].
pub struct Fakes {
    table: Arc<Table>,
    slots: Vec<Option<Started>>,
}

struct Started {
    fake: Box<dyn Fake>,
    standing_by: bool,
    /// When it wants to be asked next, in ns.
    due_ns: Option<u64>,
}

impl Fakes {
    /// None of them started; they will report into the table.
    pub fn new(table: &Arc<Table>) -> Fakes {
        Fakes {
            table: Arc::clone(table),
            slots: SOURCES.iter().map(|_| None).collect(),
        }
    }

    /// Those that are started.
    pub fn started(&self) -> impl Iterator<Item = &dyn Fake> {
        self.slots.iter().flatten().map(|started| &*started.fake)
    }

    /// Hint faults by how soon they came after their marks.
    pub fn fault_times(&self) -> FaultTimes {
        let mut fakes = self.started();
        let sees = fakes.find(|fake| fake.descriptor().kind == Kind::HintFaults);
        FaultTimes(sees.map_or_else(Default::default, Fake::fault_times))
    }

    /// Whether hint faults are taken.
    pub fn hint_faults_run(&self) -> bool {
        let mut slots = self.slots.iter().flatten();
        slots.any(|started| {
            started.fake.descriptor().kind == Kind::HintFaults && !started.standing_by
        })
    }

    /// The one that sees reads of page cache, if it is started, and whether it stands by.
    pub fn cache_reads(&self) -> Option<(&dyn Fake, bool)> {
        let mut slots = self.slots.iter().flatten();
        let sees = slots.find(|it| it.fake.descriptor().kind == Kind::CacheReads);
        sees.map(|it| (&*it.fake, it.standing_by))
    }

    /// Something happened, which each of them may see. Nobody asks for reads of page cache while
    /// who sees them stands by.
    pub fn tell(&mut self, event: Event, access: &FolioAccess, now: Duration) {
        for started in self.slots.iter_mut().flatten() {
            started.fake.event(event, access, now);
        }
    }

    /// Those that are due do their work, at the daemon's cost.
    pub fn step(&mut self, world: &mut World, tasks: &[Task], now: Duration) {
        for Started { fake, due_ns, .. } in self.slots.iter_mut().flatten() {
            if due_ns.is_none_or(|due| world.now_ns < due) {
                continue;
            }
            let now_ns = world.now_ns;
            let mut bits = Bits {
                world,
                tasks,
                entries: Cell::new(0),
            };
            let next = fake.step(&mut bits, now);
            let spent_ns = bits.spent_ns();
            *due_ns = next.map(|wait| now_ns + wait.as_nanos() as u64);
            world.counters.daemon_ns += spent_ns;
        }
    }
}

impl arbiter::Host for Fakes {
    fn start(&mut self, source: usize, config: &Config, standing_by: bool) -> Result<(), String> {
        self.slots[source] = Some(Started {
            fake: (SOURCES[source].fake)(&self.table, config),
            standing_by,
            due_ns: Some(0),
        });
        Ok(())
    }

    fn stop(&mut self, source: usize) {
        self.slots[source] = None;
    }

    fn stand_by(&mut self, source: usize, standing_by: bool) -> Result<(), String> {
        if let Some(started) = &mut self.slots[source] {
            started.standing_by = standing_by;
        }
        Ok(())
    }

    fn set_again(&mut self, _: usize, _: bool) -> Result<(), String> {
        // Nobody else changes settings of a modelled kernel.
        Ok(())
    }

    fn configure(&mut self, source: usize, config: &Config) -> Result<(), String> {
        if let Some(started) = &mut self.slots[source] {
            started.fake.configure(config);
        }
        Ok(())
    }
}
