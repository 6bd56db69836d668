//! Blocks of 512 pages: how many of them are on which node, and which node faulted on them last.
//!
//! Pages of a block are not told apart; there are shares of them, and who faults takes the same share of
//! each kind.

use super::machine::NODES;

/// Base pages of a block.
pub const BLOCK_PAGES: f32 = 512.0;
/// In place of the last node, of a page that had no fault yet.
const NEVER: usize = NODES;

/// So many per node.
pub type PerNode = [f32; NODES];

/// What 512 neighbouring pages have in common.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// Pages by their node, and by the node that had the last fault on them.
    pages: [[f32; NODES + 1]; NODES],
    /// By node only; every visit asks for it.
    nodes: PerNode,
    /// Somebody touched it.
    pub is_present: bool,
    /// It is a huge page; the first hint fault splits it.
    pub is_huge: bool,
    /// Entries make the next access fault.
    pub is_marked: bool,
    /// The entry one level up does: whoever comes first takes the faults of all pages.
    pub is_marked_whole: bool,
    /// Threads in it, by node.
    pub threads: [u8; NODES],
}

/// Which faulting pages go to the node of the fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// None.
    Stay,
    /// All.
    Move,
    /// Those whose last fault was from the same node.
    MoveIfSeenTwice,
}

/// What hint faults came to, in pages.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Faults {
    /// All.
    pub faults: f32,
    /// On pages of the node that accessed them.
    pub local: f32,
    /// Pages that moved.
    pub moved: f32,
    /// All, by the node where the page ended.
    pub ended: PerNode,
}

impl Block {
    /// Nobody has touched it.
    pub fn absent() -> Block {
        Block {
            pages: [[0.0; NODES + 1]; NODES],
            nodes: [0.0; NODES],
            is_present: false,
            is_huge: true,
            is_marked: false,
            is_marked_whole: false,
            threads: [0; NODES],
        }
    }

    /// Somebody on a node touches it first.
    pub fn allocate(&mut self, nid: usize) {
        self.is_present = true;
        self.pages[nid][NEVER] = BLOCK_PAGES;
        self.nodes[nid] = BLOCK_PAGES;
    }

    /// Pages by node.
    pub fn nodes(&self) -> PerNode {
        self.nodes
    }

    /// The node of all of its pages, if there is one.
    pub fn only_node(&self) -> Option<usize> {
        // Half a page is lost in the sums.
        self.nodes()
            .iter()
            .position(|&pages| pages > BLOCK_PAGES - 0.5)
    }

    /// The node of most of its pages.
    pub fn main_node(&self) -> usize {
        let nodes = self.nodes();
        (0..NODES).fold(0, |best, nid| match nodes[nid] > nodes[best] {
            true => nid,
            false => best,
        })
    }

    /// The node that has the page at a place, from 0 to 1, if pages were sorted by node.
    pub fn node_at(&self, place: f64) -> usize {
        let mut left = place as f32 * BLOCK_PAGES;
        for (nid, pages) in self.nodes().into_iter().enumerate() {
            left -= pages;
            if left < 0.0 {
                return nid;
            }
        }
        self.main_node()
    }

    /// Who shares the faults of single pages: the threads in the block. One behind the other, they take
    /// turns, because the one that faults is overtaken.
    pub fn shares(&self) -> PerNode {
        let all: u32 = self.threads.iter().map(|&threads| u32::from(threads)).sum();
        self.threads
            .map(|threads| f32::from(threads) / all.max(1) as f32)
    }

    /// All marked pages fault, a share of them on each node. `admit` says how many of so many pages a
    /// node takes.
    pub fn fault(
        &mut self,
        shares: PerNode,
        filter: Filter,
        admit: &mut dyn FnMut(usize, f32) -> f32,
    ) -> Faults {
        self.is_marked = false;
        self.is_marked_whole = false;
        let before = self.pages;
        let mut outcome = Faults::default();
        self.pages = [[0.0; NODES + 1]; NODES];
        for (here, share) in shares.into_iter().enumerate() {
            if share == 0.0 {
                continue;
            }
            let goes = |from: usize, last: usize| {
                let passes = match filter {
                    Filter::Stay => false,
                    Filter::Move => true,
                    Filter::MoveIfSeenTwice => last == here,
                };
                passes && from != here
            };
            let kinds = (0..NODES).flat_map(|from| (0..=NODES).map(move |last| (from, last)));
            let wanted: f32 = kinds
                .clone()
                .filter(|&(from, last)| goes(from, last))
                .map(|(from, last)| before[from][last] * share)
                .sum();
            let admitted = match wanted > 0.0 {
                true => admit(here, wanted) / wanted,
                false => 0.0,
            };
            for (from, last) in kinds {
                let pages = before[from][last] * share;
                let moved = if goes(from, last) {
                    pages * admitted
                } else {
                    0.0
                };
                self.pages[here][here] += moved;
                self.pages[from][here] += pages - moved;
                outcome.faults += pages;
                outcome.moved += moved;
                outcome.local += if from == here { pages } else { 0.0 };
                outcome.ended[here] += moved;
                outcome.ended[from] += pages - moved;
            }
        }
        self.nodes = self.pages.map(|row| row.iter().sum());
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(nid: usize) -> PerNode {
        let mut shares = [0.0; NODES];
        shares[nid] = 1.0;
        shares
    }

    fn on_node_0() -> Block {
        let mut block = Block::absent();
        block.allocate(0);
        block.fault(only(0), Filter::Stay, &mut |_, _| 0.0);
        block
    }

    #[test]
    fn a_stray_reference_moves_pages_only_without_the_two_stage_filter() {
        let moved = |filter| {
            let mut block = on_node_0();
            let mut moved = 0.0;
            // Its thread is at home, but for single strays to changing nodes.
            for nid in [0, 1, 0, 0, 2, 0, 3, 0] {
                moved += block
                    .fault(only(nid), filter, &mut |_, wanted| wanted)
                    .moved;
            }
            moved
        };
        assert_eq!(moved(Filter::Move), 6.0 * BLOCK_PAGES);
        assert_eq!(moved(Filter::MoveIfSeenTwice), 0.0);
        assert_eq!(moved(Filter::Stay), 0.0);
    }

    #[test]
    fn the_second_fault_from_the_same_node_moves_pages() {
        let mut block = on_node_0();
        let mut fault = |nid| {
            let filter = Filter::MoveIfSeenTwice;
            block.fault(only(nid), filter, &mut |_, wanted| wanted)
        };
        assert_eq!(fault(2).ended[0], BLOCK_PAGES);
        let second = fault(2);
        assert_eq!((second.moved, second.local), (BLOCK_PAGES, 0.0));
        assert_eq!(fault(2).local, BLOCK_PAGES);
        assert_eq!(block.only_node(), Some(2));
    }

    #[test]
    fn shared_faults_lose_no_page_and_pass_with_the_square() {
        let mut block = on_node_0();
        let even = [0.25; NODES];
        let filter = Filter::MoveIfSeenTwice;
        let mut all = |_: usize, wanted: f32| wanted;
        // Seen by node 0 only: no other node may have them yet.
        assert_eq!(block.fault(even, filter, &mut all).moved, 0.0);
        let moved = block.fault(even, filter, &mut all).moved;
        assert!((moved - BLOCK_PAGES * 3.0 / 16.0).abs() < 0.01, "{moved}");
        assert!((block.nodes().iter().sum::<f32>() - BLOCK_PAGES).abs() < 0.01);
    }

    #[test]
    fn a_node_takes_no_more_than_admitted() {
        let mut block = on_node_0();
        let outcome = block.fault(only(1), Filter::Move, &mut |_, wanted| wanted.min(100.0));
        assert_eq!(outcome.moved, 100.0);
        assert_eq!(block.nodes(), [412.0, 100.0, 0.0, 0.0]);
        assert_eq!((block.node_at(0.5), block.node_at(0.9)), (0, 1));
        assert_eq!(block.only_node(), None);
    }
}
