//! Blocks of 512 pages: how many of them are on which node, and which node faulted on them last.
//!
//! Pages of a block are not told apart; there are shares of them. Those that are marked are kept
//! apart from those that are not, and fault in pieces, so that threads that are in a block together
//! share its faults: while one waits for its pages, others go past it to the next ones.

use super::machine::NODES;

/// Base pages of a block.
pub const BLOCK_PAGES: f32 = 512.0;
/// Pieces of a block in which marked pages fault, if they fault by themselves. Four times as many
/// do not change what comes out.
pub const PIECES: u32 = 8;
/// In place of the last node, of a page that had no fault yet.
const NEVER: usize = NODES;
/// Fewer pages than that are what is lost in sums.
const FEW: f32 = 0.5;

/// So many per node.
pub type PerNode = [f32; NODES];

/// Pages by their node, and by the node that had the last fault on them.
type Pages = [[f32; NODES + 1]; NODES];

/// What 512 neighbouring pages have in common.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// Pages whose entries are not marked.
    clear: Pages,
    /// Pages whose next access faults.
    marked: Pages,
    /// All by node only; every visit asks for it.
    nodes: PerNode,
    /// Marked pages.
    marked_pages: f32,
    /// Somebody touched it.
    pub is_present: bool,
    /// It is a huge page, until a hint fault wants to move it.
    pub is_huge: bool,
    /// The entry one level up is marked too: whoever comes first takes the faults of all pages.
    pub is_whole: bool,
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
    /// Those that go into the statistics of threads and processes, by the node that they count
    /// for.
    pub counted: PerNode,
}

impl Block {
    /// Nobody has touched it.
    pub fn absent() -> Block {
        Block {
            clear: Pages::default(),
            marked: Pages::default(),
            nodes: PerNode::default(),
            marked_pages: 0.0,
            is_present: false,
            is_huge: true,
            is_whole: false,
        }
    }

    /// Somebody on a node touches it first.
    pub fn allocate(&mut self, nid: usize) {
        self.is_present = true;
        self.clear[nid][NEVER] = BLOCK_PAGES;
        self.nodes[nid] = BLOCK_PAGES;
    }

    /// Pages by node.
    pub fn nodes(&self) -> PerNode {
        self.nodes
    }

    /// The node of most of its pages.
    pub fn main_node(&self) -> usize {
        let nodes = self.nodes();
        (0..NODES).fold(0, |best, nid| match nodes[nid] > nodes[best] {
            true => nid,
            false => best,
        })
    }

    /// Marked pages.
    pub fn marked_pages(&self) -> f32 {
        self.marked_pages
    }

    /// Pieces that are not marked any more, or not yet.
    pub fn clear_pieces(&self) -> u32 {
        let share = f64::from(self.marked_pages / BLOCK_PAGES) * f64::from(PIECES);
        PIECES - (share.ceil() as u32).min(PIECES)
    }

    /// Marks the pages that are not. Returns how many that were, and whether they are on one node.
    pub fn mark(&mut self) -> (f32, bool) {
        let mut nodes = 0;
        let mut pages = 0.0;
        for (marked, clear) in self.marked.iter_mut().zip(&mut self.clear) {
            let here: f32 = clear.iter().sum();
            nodes += usize::from(here > FEW);
            pages += here;
            for (marked, clear) in marked.iter_mut().zip(clear) {
                *marked += std::mem::take(clear);
            }
        }
        self.marked_pages = BLOCK_PAGES;
        (pages, nodes == 1)
    }

    /// A hint fault on a marked huge page. If it is to move, it is split instead, its pages stay
    /// marked, and they know nothing of who had the last fault: then there is no outcome, since
    /// a split counts as no fault. Otherwise it counts as one, for the node that had it.
    pub fn fault_huge(&mut self, here: usize, filter: Filter) -> Option<Faults> {
        let from = self.main_node();
        let last = (0..=NODES).find(|&last| self.marked[from][last] > FEW);
        self.marked[from] = Default::default();
        if goes(filter, from, last.unwrap_or(NEVER), here) {
            self.is_huge = false;
            self.marked[from][NEVER] = BLOCK_PAGES;
            return None;
        }
        self.marked_pages = 0.0;
        self.clear[from][here] = BLOCK_PAGES;
        let mut outcome = Faults {
            faults: 1.0,
            local: if from == here { 1.0 } else { 0.0 },
            ..Faults::default()
        };
        outcome.ended[from] = 1.0;
        outcome.counted[here] = 1.0;
        Some(outcome)
    }

    /// Marked pages fault: a piece, or all if the entry one level up is marked. `admit` says how
    /// many of so many pages the node takes.
    ///
    /// What is counted is not where pages are. A page that is not to move counts for the node of
    /// the fault, and if all are handled at once, it does not count at all. One that was to
    /// move, but was not admitted, counts for its own node if it faulted by itself.
    pub fn fault(
        &mut self,
        here: usize,
        filter: Filter,
        admit: &mut dyn FnMut(f32) -> f32,
    ) -> Faults {
        let is_whole = std::mem::take(&mut self.is_whole);
        let piece = BLOCK_PAGES / PIECES as f32;
        let share = match is_whole || self.marked_pages < piece + FEW {
            true => 1.0,
            false => piece / self.marked_pages,
        };
        let kinds = (0..NODES).flat_map(|from| (0..=NODES).map(move |last| (from, last)));
        let wanted: f32 = kinds
            .clone()
            .filter(|&(from, last)| goes(filter, from, last, here))
            .map(|(from, last)| self.marked[from][last] * share)
            .sum();
        let admitted = match wanted > 0.0 {
            true => admit(wanted) / wanted,
            false => 0.0,
        };
        let mut outcome = Faults::default();
        for (from, last) in kinds {
            let pages = self.marked[from][last] * share;
            if pages == 0.0 {
                continue;
            }
            let (moved, refused) = match goes(filter, from, last, here) {
                true => (pages * admitted, pages * (1.0 - admitted)),
                false => (0.0, 0.0),
            };
            self.marked[from][last] -= pages;
            self.clear[here][here] += moved;
            self.clear[from][here] += pages - moved;
            self.nodes[here] += moved;
            self.nodes[from] -= moved;
            outcome.faults += pages;
            outcome.moved += moved;
            outcome.local += if from == here { pages } else { 0.0 };
            outcome.ended[here] += moved;
            outcome.ended[from] += pages - moved;
            if is_whole {
                outcome.counted[here] += moved + refused;
            } else {
                outcome.counted[here] += pages - refused;
                outcome.counted[from] += refused;
            }
        }
        self.marked_pages = match share == 1.0 {
            true => 0.0,
            false => self.marked_pages - outcome.faults,
        };
        outcome
    }
}

/// The node that has the page at a place, from 0 to 1, if pages were sorted by node.
pub fn node_at(nodes: PerNode, place: f64) -> usize {
    let mut left = place as f32 * nodes.iter().sum::<f32>();
    for (nid, pages) in nodes.into_iter().enumerate() {
        left -= pages;
        if left < 0.0 {
            return nid;
        }
    }
    nodes.iter().position(|&pages| pages > 0.0).unwrap_or(0)
}

/// Whether a page of a node, with its last fault on another, goes where it faults.
fn goes(filter: Filter, from: usize, last: usize, here: usize) -> bool {
    let passes = match filter {
        Filter::Stay => false,
        Filter::Move => true,
        Filter::MoveIfSeenTwice => last == here,
    };
    passes && from != here
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block of base pages on the first node, with the last fault there.
    fn on_node_0() -> Block {
        let mut block = Block::absent();
        block.allocate(0);
        block.is_huge = false;
        fault(&mut block, 0, Filter::Stay);
        block
    }

    /// All of its pages fault on a node, one after the other.
    fn fault(block: &mut Block, here: usize, filter: Filter) -> Faults {
        block.mark();
        let mut sum = Faults::default();
        while block.marked_pages() > 0.0 {
            let found = block.fault(here, filter, &mut |wanted| wanted);
            sum.faults += found.faults;
            sum.local += found.local;
            sum.moved += found.moved;
            (0..NODES).for_each(|nid| sum.counted[nid] += found.counted[nid]);
        }
        sum
    }

    #[test]
    fn a_stray_reference_moves_pages_only_without_the_two_stage_filter() {
        let moved = |filter| {
            let mut block = on_node_0();
            // Its thread is at home, but for single strays to changing nodes.
            let strays = [0, 1, 0, 0, 2, 0, 3, 0].into_iter();
            strays
                .map(|nid| fault(&mut block, nid, filter).moved)
                .sum::<f32>()
        };
        assert_eq!(moved(Filter::Move), 6.0 * BLOCK_PAGES);
        assert_eq!(moved(Filter::MoveIfSeenTwice), 0.0);
        assert_eq!(moved(Filter::Stay), 0.0);
    }

    #[test]
    fn the_second_fault_from_the_same_node_moves_pages() {
        let mut block = on_node_0();
        let filter = Filter::MoveIfSeenTwice;
        // A page counts for where its thread runs, and not for where it is.
        assert_eq!(fault(&mut block, 2, filter).counted[2], BLOCK_PAGES);
        let second = fault(&mut block, 2, filter);
        assert_eq!((second.moved, second.local), (BLOCK_PAGES, 0.0));
        assert_eq!(fault(&mut block, 2, filter).local, BLOCK_PAGES);
        assert_eq!(block.mark(), (BLOCK_PAGES, true));
    }

    #[test]
    fn threads_share_faults_by_pieces_and_lose_no_page() {
        let mut block = on_node_0();
        block.mark();
        for piece in 0..PIECES {
            assert_eq!(block.clear_pieces(), piece);
            block.fault(piece as usize % 2, Filter::Move, &mut |wanted| wanted);
        }
        assert_eq!((block.marked_pages(), block.clear_pieces()), (0.0, PIECES));
        assert_eq!(block.nodes(), [256.0, 256.0, 0.0, 0.0]);
        assert_eq!(node_at(block.nodes(), 0.4), 0);
        assert_eq!(node_at(block.nodes(), 0.6), 1);
        assert_eq!(block.mark(), (BLOCK_PAGES, false));
        assert_eq!(block.mark().0, 0.0, "marked already");
    }

    #[test]
    fn what_is_handled_at_once_counts_only_if_it_is_to_move() {
        let mut block = on_node_0();
        block.mark();
        block.is_whole = true;
        let found = block.fault(0, Filter::MoveIfSeenTwice, &mut |wanted| wanted);
        assert_eq!((found.faults, found.counted[0]), (BLOCK_PAGES, 0.0));
        block.mark();
        block.is_whole = true;
        let found = block.fault(1, Filter::Move, &mut |wanted| wanted.min(100.0));
        assert_eq!((found.moved, found.counted[1]), (100.0, BLOCK_PAGES));
        assert_eq!(block.nodes(), [412.0, 100.0, 0.0, 0.0]);
    }

    #[test]
    fn a_huge_page_is_split_only_to_be_moved() {
        let mut block = Block::absent();
        block.allocate(0);
        let filter = Filter::MoveIfSeenTwice;
        block.mark();
        assert_eq!(block.fault_huge(1, filter).unwrap().faults, 1.0);
        block.mark();
        assert_eq!(block.fault_huge(0, filter).unwrap().local, 1.0);
        for _ in 0..2 {
            assert!(block.is_huge);
            block.mark();
            block.fault_huge(3, filter);
        }
        assert!(!block.is_huge && block.marked_pages() == BLOCK_PAGES);
    }
}
