//! What a system is to the modelled machine: told of faults and accesses, it decides what moves.

use std::time::Duration;

use pghot_engine::Totals;
use serde_json::Value;

use crate::Error;
use crate::machine::memory::Page;
use crate::machine::world::World;
use crate::traffic::task::Task;

/// A marked entry was accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The folio's first page.
    pub head: Page,
    /// Base pages of the folio.
    pub pages: u32,
    /// The node of the accessing CPU.
    pub node: usize,
    /// Since the entry was marked.
    pub since_mark: Duration,
}

impl Fault {
    /// What the kernel calls the page's latency, in ms.
    pub fn latency_ms(&self) -> u64 {
        self.since_mark.as_millis() as u64
    }
}

/// A thread accessed memory that no cache had, or read page cache by a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Touch {
    /// The folio's first page.
    pub head: Page,
    /// Base pages of the folio.
    pub pages: u32,
    /// The accessing CPU. Each thread has its own.
    pub cpu: u32,
    /// Its node.
    pub node: usize,
    /// So many accesses of this CPU since it was told of the last one, this one included.
    pub count: u64,
}

/// Who decides what moves.
pub trait System {
    /// Whether the kernel marks entries of the lower tier, and keeps room for promotion.
    fn is_tiering(&self) -> bool;

    /// It was started, and nothing has been accessed yet.
    fn begin(&mut self, _world: &mut World, _tasks: &mut [Task]) {}

    /// A thread takes a hint fault; its entry is whole again. Returns what the thread pays besides
    /// the fault itself, in ns.
    fn hint_fault(&mut self, _world: &mut World, _fault: &Fault) -> f64 {
        0.0
    }

    /// Of so many accesses of a thread it wants to be told of one, if of any. The exact mode tells
    /// of all.
    fn miss_period(&self) -> Option<u64> {
        None
    }

    /// A thread accessed memory.
    fn miss(&mut self, _world: &mut World, _touch: &Touch) {}

    /// Whether it wants to be told of each read of page cache.
    fn wants_reads(&self) -> bool {
        false
    }

    /// A thread read a page of page cache.
    fn read(&mut self, _world: &mut World, _touch: &Touch) {}

    /// A slice of time is over.
    fn step(&mut self, _world: &mut World, _tasks: &[Task]) {}

    /// An operator changes a setting.
    fn set(&mut self, setting: &Setting) -> Result<(), Error> {
        no_settings(std::slice::from_ref(setting))
    }

    /// It is killed, and started again with the same settings: what it had in memory is lost.
    fn restart(&mut self, _world: &World) {}

    /// What its migrators have done since they were started, and its demoter by name, if it has the
    /// engine's.
    fn totals(&self) -> Vec<Totals> {
        Vec::new()
    }

    /// What it says of itself, for reports.
    fn details(&self) -> Value {
        Value::Null
    }
}

/// A setting of a system: its name and its value.
pub type Setting = (String, String);

/// What makes a system for a machine.
pub type Make = fn(&World, &[Setting]) -> Result<Box<dyn System>, Error>;

/// A system by its name.
pub struct Descriptor {
    /// On the command line and in reports.
    pub name: &'static str,
    /// What it is, in one sentence.
    pub doc: &'static str,
    /// Makes one, with settings of its own.
    pub make: Make,
}

/// For systems that have no settings.
pub(super) fn no_settings(settings: &[Setting]) -> Result<(), Error> {
    match settings.first() {
        None => Ok(()),
        Some((name, _)) => Err(Error::field(name, "this system has no such setting")),
    }
}
