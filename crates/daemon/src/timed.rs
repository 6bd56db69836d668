//! Times what a pass hands to its machine: the engine asks no clock for that.

use pghot_engine::{Batch, Found, Machine, Outcome, Owner, Pid, Program};
use pghot_hotness::{Nid, Pfn};

/// A batch that was handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedBatch {
    /// When, by the machine's clock.
    pub started_ns: u64,
    /// When the answer came.
    pub ended_ns: u64,
    /// Whose pages.
    pub owner: Owner,
    /// Where to.
    pub target: Nid,
    /// Folios in it.
    pub folios: u64,
    /// Base pages of them.
    pub pages: u64,
    /// Base pages that moved.
    pub moved_pages: u64,
}

/// A machine that notes how long each batch takes.
pub struct Timed<'a> {
    machine: &'a mut dyn Machine,
    batches: Vec<TimedBatch>,
}

impl Timed<'_> {
    /// Every question goes on to `machine`.
    pub fn new(machine: &mut dyn Machine) -> Timed<'_> {
        Timed {
            machine,
            batches: Vec::new(),
        }
    }

    /// The batches since this was asked last.
    pub fn take_batches(&mut self) -> Vec<TimedBatch> {
        std::mem::take(&mut self.batches)
    }
}

impl Machine for Timed<'_> {
    fn now_ns(&self) -> u64 {
        self.machine.now_ns()
    }

    fn top_tier_from(&mut self, from: Nid) -> Option<Vec<Nid>> {
        self.machine.top_tier_from(from)
    }

    fn room_pages(&mut self, target: Nid) -> u64 {
        self.machine.room_pages(target)
    }

    fn resolve(&mut self, pfns: &[Pfn], found: &mut Vec<Found>) {
        self.machine.resolve(pfns, found);
    }

    fn promote(&mut self, batch: &Batch, outcomes: &mut Vec<Outcome>) {
        let (started_ns, before) = (self.now_ns(), outcomes.len());
        self.machine.promote(batch, outcomes);
        let ended = batch.folios.iter().zip(&outcomes[before..]);
        let moved = ended.filter(|(_, outcome)| **outcome == Outcome::Moved);
        self.batches.push(TimedBatch {
            started_ns,
            ended_ns: self.now_ns(),
            owner: batch.owner,
            target: batch.target,
            folios: batch.folios.len() as u64,
            pages: batch.pages.into(),
            moved_pages: moved.map(|(folio, _)| u64::from(folio.pages)).sum(),
        });
    }

    fn program(&mut self, pid: Pid) -> Option<Program> {
        self.machine.program(pid)
    }

    fn stop_requested(&self) -> bool {
        self.machine.stop_requested()
    }
}
