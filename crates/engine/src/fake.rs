//! A tiered machine in memory, with every answer that a kernel can give.

use std::collections::{HashMap, HashSet};

use pghot_hotness::{Nid, Pfn};

use crate::{Batch, FileId, Found, Machine, Outcome, Owner, Pid, Place, Program};

/// One folio of a [`FakeMachine`].
#[derive(Debug, Clone)]
pub struct FakeFolio {
    /// Where it is.
    pub place: Place,
    /// Base pages.
    pub pages: u32,
    /// The node it lies in.
    pub nid: Nid,
    /// Answers that the next attempts get, the last first; then it moves.
    pub refusals: Vec<Outcome>,
}

/// A machine whose pages, nodes and refusals a test sets up.
#[derive(Debug, Default)]
pub struct FakeMachine {
    /// The clock, in ms. Each batch costs `batch_ms`, each question for room `room_ms`.
    pub now_ms: u64,
    /// How long a batch takes, in ms.
    pub batch_ms: u64,
    /// How long it takes to ask for room, in ms.
    pub room_ms: u64,
    /// The online nodes of the top tier, the nearest first; `None` if the lower tier's is not.
    pub top_tier: Option<Vec<Nid>>,
    /// Free pages above the high watermark, by node.
    pub room_pages: HashMap<Nid, u64>,
    /// Free pages below it: what moves may still use before they fail, by node.
    pub reserve_pages: HashMap<Nid, u64>,
    /// Folios by head PFN.
    pub folios: HashMap<Pfn, FakeFolio>,
    /// Pages that nobody maps, and why.
    pub unresolved: HashMap<Pfn, Outcome>,
    /// Processes and nodes that their cpuset leaves out.
    pub not_allowed: HashSet<(Pid, Nid)>,
    /// Processes that exited, and files that were deleted, between resolve and move.
    pub exiting: HashSet<Owner>,
    /// Who processes are.
    pub programs: HashMap<Pid, Program>,
    /// Every batch that was handed over.
    pub batches: Vec<Batch>,
    /// Every PFN that was resolved.
    pub resolved: Vec<Pfn>,
    /// Ends the pass.
    pub stop: bool,
}

impl FakeMachine {
    /// Nodes 0 and 1 on top with ample room, node 2 the lower tier.
    pub fn tiered3() -> FakeMachine {
        FakeMachine {
            top_tier: Some(vec![0, 1]),
            room_pages: [(0, 1 << 30), (1, 1 << 30)].into(),
            ..FakeMachine::default()
        }
    }

    /// Maps one base page of `pid` at PFN `pfn` of node 2; its address is its PFN times 4096.
    pub fn map(&mut self, pid: Pid, pfn: Pfn) {
        self.map_folio(pid, pfn, 1);
    }

    /// Maps a folio of `pages` base pages.
    pub fn map_folio(&mut self, pid: Pid, pfn: Pfn, pages: u32) {
        self.place_folio(Place::in_process(pid, pfn << 12), pfn, pages);
    }

    /// Puts a folio into the page cache of a file; its offset is its PFN times 4096.
    pub fn cache_folio(&mut self, file: FileId, pfn: Pfn, pages: u32) {
        self.place_folio(Place::in_file(file, pfn << 12), pfn, pages);
    }

    fn place_folio(&mut self, place: Place, pfn: Pfn, pages: u32) {
        let folio = FakeFolio {
            place,
            pages,
            nid: 2,
            refusals: Vec::new(),
        };
        self.folios.insert(pfn, folio);
    }

    /// Makes the next attempts on a folio end so, in order.
    pub fn refuse(&mut self, pfn: Pfn, mut outcomes: Vec<Outcome>) {
        outcomes.reverse();
        if let Some(folio) = self.folios.get_mut(&pfn) {
            folio.refusals = outcomes;
        }
    }

    fn attempt(&mut self, batch: &Batch, pfn: Pfn, address: u64) -> Outcome {
        if self.exiting.contains(&batch.owner) {
            return Outcome::Gone;
        }
        let Some(folio) = self.folios.get_mut(&pfn) else {
            return Outcome::Gone;
        };
        let place = Place {
            owner: batch.owner,
            address,
        };
        if folio.place != place {
            return Outcome::Gone;
        }
        if let Some(refusal) = folio.refusals.pop() {
            return refusal;
        }
        if folio.nid != 2 {
            return Outcome::MovedAlready;
        }
        if let Owner::Process(pid) = batch.owner
            && self.not_allowed.contains(&(pid, batch.target))
        {
            return Outcome::TargetRefused;
        }
        let top_tier = self.top_tier.as_deref().unwrap_or_default();
        if !top_tier.contains(&batch.target) {
            return Outcome::TargetRefused;
        }
        let room = self.room_pages.entry(batch.target).or_default();
        let reserve = self.reserve_pages.entry(batch.target).or_default();
        let pages = folio.pages as u64;
        if *room >= pages {
            *room -= pages;
        } else if *room + *reserve >= pages {
            *reserve -= pages - *room;
            *room = 0;
        } else {
            return Outcome::NoMemory;
        }
        folio.nid = batch.target;
        Outcome::Moved
    }
}

impl Machine for FakeMachine {
    fn now_ns(&self) -> u64 {
        self.now_ms * 1_000_000
    }

    fn top_tier_from(&mut self, _: Nid) -> Option<Vec<Nid>> {
        self.top_tier.clone()
    }

    fn room_pages(&mut self, target: Nid) -> u64 {
        self.now_ms += self.room_ms;
        self.room_pages.get(&target).copied().unwrap_or(0)
    }

    fn resolve(&mut self, pfns: &[Pfn], found: &mut Vec<Found>) {
        self.resolved.extend(pfns);
        for &pfn in pfns {
            let owner = self
                .folios
                .iter()
                .find(|&(&head, f)| f.nid == 2 && (head..head + f.pages as u64).contains(&pfn));
            found.push(match (self.unresolved.get(&pfn), owner) {
                (Some(&outcome), _) => Found::Unresolved(outcome),
                (None, Some((&head, f))) => Found::Folio {
                    place: f.place,
                    head,
                    pages: f.pages,
                },
                (None, None) => Found::Unresolved(Outcome::Free),
            });
        }
    }

    fn promote(&mut self, batch: &Batch, outcomes: &mut Vec<Outcome>) {
        self.now_ms += self.batch_ms;
        self.batches.push(batch.clone());
        for folio in &batch.folios {
            let head = folio.address >> 12;
            outcomes.push(self.attempt(batch, head, folio.address));
        }
    }

    fn program(&mut self, pid: Pid) -> Option<Program> {
        self.programs.get(&pid).cloned()
    }

    fn stop_requested(&self) -> bool {
        self.stop
    }
}
