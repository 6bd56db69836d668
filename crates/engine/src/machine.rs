//! What the engine asks of the world: one trait, two hosts (a Linux kernel, a model).

use pghot_hotness::{Nid, Pfn};

use crate::{Outcome, Owner, Pid, Place, Program};

/// Where a hot page is. An answer is a hint: the page may be gone a moment later, and only the
/// kernel's answer to the move itself counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The folio can be got hold of here.
    Folio {
        /// In one of the processes that map it; in its file, if none does.
        place: Place,
        /// The folio's head page: the PFN asked for, unless pages were merged since the report.
        head: Pfn,
        /// Base pages that move together: 1, or the size of the large folio.
        pages: u32,
    },
    /// Nothing to move; the outcome says why.
    Unresolved(Outcome),
}

/// One folio of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HotFolio {
    /// The page in the lower tier whose record made the folio a candidate.
    pub pfn: Pfn,
    /// An address of the folio in the batch's process, or its offset in the batch's file.
    pub address: u64,
    /// Base pages of the folio.
    pub pages: u32,
    /// The frequency of its record.
    pub freq: u32,
    /// Time since its last access when it was picked, in ms.
    pub age_ms: u32,
}

/// Folios of one owner that go to one node in one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The process that maps them, or their file.
    pub owner: Owner,
    /// The node they go to.
    pub target: Nid,
    /// The folios, hottest first.
    pub folios: Vec<HotFolio>,
    /// Base pages of all folios.
    pub pages: u32,
}

/// A tiered machine, as the engine sees it.
pub trait Machine {
    /// `CLOCK_MONOTONIC` in ns: the clock that reports are stamped with.
    fn now_ns(&self) -> u64;

    /// The same in ms, as records and gates count.
    fn now_ms(&self) -> u64 {
        self.now_ns() / 1_000_000
    }

    /// The nodes of the top tier that are online, those nearest to `from` first; `None` if `from`
    /// is not online or not of the lower tier. Asked once per pass, so that a node that went
    /// offline stops being used at the next.
    fn top_tier_from(&mut self, from: Nid) -> Option<Vec<Nid>>;

    /// Base pages that `target` can take without anybody having to reclaim for himself. Asked
    /// before each batch.
    fn room_pages(&mut self, target: Nid) -> u64;

    /// Finds out where each page is: exactly one answer per PFN, in order, appended to
    /// `found`.
    fn resolve(&mut self, pfns: &[Pfn], found: &mut Vec<Found>);

    /// Moves the folios of a batch: exactly one outcome per folio, in order, appended to
    /// `outcomes`. Never fails as a whole; a refused call is an outcome of each of its folios.
    fn promote(&mut self, batch: &Batch, outcomes: &mut Vec<Outcome>);

    /// Who a process is; `None` if it is gone, or where nobody can tell. Asked at most once per
    /// process and pass.
    fn program(&mut self, pid: Pid) -> Option<Program>;

    /// True when the pass should end after the present batch.
    fn stop_requested(&self) -> bool {
        false
    }
}
