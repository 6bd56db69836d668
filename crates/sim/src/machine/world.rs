//! The machine at a moment: who has which page, what was counted, what time it is. All that moves a
//! page comes through here.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::heat::Heat;
use super::memory::{ABSENT, LISTED, MARKED, Memory, Page};
use super::node::Node;
use super::spec::MachineSpec;
use super::trouble::Trouble;

/// What was counted since the start; the kernel's names where it has them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Counters {
    /// Accesses of all processes.
    pub accesses: u64,
    /// Of those, served by the top tier.
    pub near_accesses: u64,
    /// Base pages whose entry was made to fault (`numa_pte_updates`).
    pub marked_pages: u64,
    /// Faults (`numa_hint_faults`).
    pub hint_faults: u64,
    /// Base pages that went up.
    pub promoted_pages: u64,
    /// Of those, moved in the thread that faulted (`pgpromote_success`).
    pub promoted_in_fault_pages: u64,
    /// Base pages that went down.
    pub demoted_pages: u64,
    /// Of those, by request of a daemon.
    pub demoted_by_request_pages: u64,
    /// Base pages that a request would have had the kernel swap out, because there is no room below
    /// or demotion is off.
    pub swapped_pages: u64,
    /// Base pages that asked to be promoted (`pgpromote_candidate`).
    pub candidate_pages: u64,
    /// Base pages refused because they were not hot enough.
    pub refused_cold_pages: u64,
    /// By the rate limit.
    pub refused_rate_pages: u64,
    /// For lack of room.
    pub refused_room_pages: u64,
    /// Calls of `move_pages`.
    pub move_calls: u64,
    /// CPU time of the daemon, or of the kernel thread in its place, in ns.
    pub daemon_ns: f64,
    /// CPU time of reclaim, in ns.
    pub reclaim_ns: f64,
    /// Time that the workload's threads lost to faults, marking and moves, in ns.
    pub stolen_ns: f64,
    /// Time that they worked, what they lost included, in ns.
    pub busy_ns: f64,
}

/// A folio that moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Its first page.
    pub head: Page,
    /// Base pages.
    pub pages: u32,
    /// Where it was.
    pub from: usize,
    /// Where it is.
    pub to: usize,
    /// What for.
    pub why: Why,
}

/// Why a folio moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It is hot or cold.
    Tiering,
    /// Its node goes offline.
    Offlining,
}

/// The machine.
pub struct World {
    /// What it is made of.
    pub spec: MachineSpec,
    /// Simulated time since the start, in ns.
    pub now_ns: u64,
    /// Its pages.
    pub memory: Memory,
    /// Its nodes.
    pub nodes: Vec<Node>,
    /// Which pages were accessed.
    pub heat: Heat,
    /// What was counted.
    pub counters: Counters,
    /// Moves since the machine's last step.
    pub moved: Vec<Moved>,
    /// Whether the kernel's scanner marks nothing for a while.
    pub scanner_rests: bool,
    /// Whether it marks pages of the top tier as well: normal balancing is on.
    pub marks_above: bool,
    /// Whether each read of page cache passes a program.
    pub reads_are_watched: bool,
    /// What goes wrong.
    pub trouble: Trouble,
}

impl World {
    /// A machine whose memory is laid out and empty.
    pub fn new(spec: &MachineSpec, memory: Memory, heat: Heat) -> World {
        let all_pages = spec.node.iter().map(|node| node.pages()).sum();
        let nodes = (spec.node.iter()).map(|node| Node::new(node, all_pages, spec));
        World {
            spec: spec.clone(),
            now_ns: 0,
            memory,
            nodes: nodes.collect(),
            heat,
            counters: Counters::default(),
            moved: Vec::new(),
            scanner_rests: false,
            marks_above: false,
            reads_are_watched: false,
            trouble: Trouble::default(),
        }
    }

    /// Simulated time, in ms.
    pub fn now_ms(&self) -> u64 {
        self.now_ns / 1_000_000
    }

    /// Gives a new folio memory of node `nid`, or of the next one with room. False without any.
    pub fn allocate(&mut self, head: Page, pages: u32, nid: usize) -> bool {
        let count = self.nodes.len();
        let others = (0..count).map(|i| (nid + i) % count);
        let fits = |&nid: &usize| {
            let node = &self.nodes[nid];
            node.is_online && node.free >= u64::from(pages) + node.watermarks.min
        };
        let found = others.into_iter().find(fits);
        let Some(nid) = found else {
            return false;
        };
        self.nodes[nid].take(pages);
        self.memory.put(head, nid);
        self.list(head, nid);
        true
    }

    /// Frees a folio.
    pub fn release(&mut self, head: Page, pages: u32) {
        if self.memory.state(head) & ABSENT == 0 {
            self.nodes[self.memory.node(head)].give(pages);
            self.memory.remove(head);
        }
    }

    /// Moves a folio to a node if it has so many free pages; a mapping that was marked is whole
    /// again.
    pub fn move_folio(&mut self, head: Page, pages: u32, to: usize) -> bool {
        let from = self.memory.node(head);
        if !self.relocate(head, pages, to, Why::Tiering) {
            return false;
        }
        let count = u64::from(pages);
        match (self.nodes[from].is_top_tier, self.nodes[to].is_top_tier) {
            (false, true) => self.counters.promoted_pages += count,
            (true, false) => self.counters.demoted_pages += count,
            _ => {}
        }
        true
    }

    /// Takes a node offline: whatever is there goes elsewhere first, from the top tier down to
    /// where its number is from, from a lower tier up. If it does not fit the node stays, as in
    /// a kernel, with what could not go.
    pub fn offline(&mut self, nid: usize) -> bool {
        let tops: Vec<usize> = (0..self.nodes.len())
            .filter(|other| *other != nid && self.nodes[*other].is_top_tier)
            .collect();
        let mut is_empty = true;
        for region in self.memory.regions().to_vec() {
            let homes = match self.nodes[nid].is_top_tier {
                true => vec![region.home as usize],
                false => tops.clone(),
            };
            for head in region.pages.step_by(region.folio_pages as usize) {
                if self.memory.state(head) & ABSENT != 0 || self.memory.node(head) != nid {
                    continue;
                }
                let mut homes = homes.iter();
                let pages = region.folio_pages;
                is_empty &= homes.any(|home| self.relocate(head, pages, *home, Why::Offlining));
            }
        }
        self.nodes[nid].is_online = !is_empty;
        is_empty
    }

    fn relocate(&mut self, head: Page, pages: u32, to: usize, why: Why) -> bool {
        let count = u64::from(pages);
        let from = self.memory.node(head);
        if self.memory.state(head) & ABSENT != 0
            || from == to
            || !self.nodes[to].is_online
            || self.nodes[to].free < count + self.nodes[to].watermarks.min
        {
            return false;
        }
        self.nodes[to].take(pages);
        self.nodes[from].give(pages);
        self.memory.put(head, to);
        self.memory.clear(head, MARKED);
        self.list(head, to);
        self.moved.push(Moved {
            head,
            pages,
            from,
            to,
            why,
        });
        true
    }

    /// Reclaim goes through the lists of top-tier nodes; a folio that is on one stays on it until
    /// reclaim meets it there.
    pub(crate) fn list(&mut self, head: Page, nid: usize) {
        if self.nodes[nid].is_top_tier && self.memory.state(head) & LISTED == 0 {
            self.memory.set(head, LISTED);
            self.nodes[nid].lru.push(head);
        }
    }
}
