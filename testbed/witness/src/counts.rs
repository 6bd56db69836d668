//! What each vCPU counts by node. Each has counters of its own, so that nothing is lost where they
//! run at the same time.

use serde::{Deserialize, Serialize};

/// Accesses that one node served.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCounts {
    /// Loads.
    pub loads: u64,
    /// Stores; a read-modify-write is one load and one store, or one of them, as the emulator does
    /// it.
    pub stores: u64,
    /// Of both, those that the modelled cache did not have.
    pub misses: u64,
}

impl NodeCounts {
    /// Loads and stores.
    pub fn accesses(&self) -> u64 {
        self.loads + self.stores
    }

    /// Counts one.
    pub fn count(&mut self, is_store: bool, is_miss: bool) {
        match is_store {
            true => self.stores += 1,
            false => self.loads += 1,
        }
        self.misses += u64::from(is_miss);
    }

    /// Adds those of another vCPU.
    pub fn add(&mut self, other: &NodeCounts) {
        self.loads += other.loads;
        self.stores += other.stores;
        self.misses += other.misses;
    }
}

/// Moves of pages between nodes, as the accesses show them: a page that is not accessed again where
/// it went is not seen to have moved.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moves {
    /// Pages that went from the first index's node to the second's.
    pub by_nodes: Vec<Vec<u64>>,
    /// Of all, those that came back to a node where they had been: ping-pong.
    pub returned: u64,
}

impl Moves {
    /// None between so many nodes.
    pub fn new(nodes: usize) -> Moves {
        Moves {
            by_nodes: vec![vec![0; nodes]; nodes],
            returned: 0,
        }
    }

    /// Adds those of another vCPU.
    pub fn add(&mut self, other: &Moves) {
        let sums = self.by_nodes.iter_mut().flatten();
        for (sum, more) in sums.zip(other.by_nodes.iter().flatten()) {
            *sum += more;
        }
        self.returned += other.returned;
    }
}

/// The counters of one vCPU, or of all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// By node.
    pub nodes: Vec<NodeCounts>,
    /// Pages that were found elsewhere than before.
    pub moves: Moves,
    /// Accesses whose node nobody knows.
    pub unknown: u64,
}

impl Counts {
    /// Zeros for so many nodes.
    pub fn new(nodes: usize) -> Counts {
        Counts {
            nodes: vec![NodeCounts::default(); nodes],
            moves: Moves::new(nodes),
            unknown: 0,
        }
    }

    /// Adds those of another vCPU.
    pub fn add(&mut self, other: &Counts) {
        for (sum, node) in self.nodes.iter_mut().zip(&other.nodes) {
            sum.add(node);
        }
        self.moves.add(&other.moves);
        self.unknown += other.unknown;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_vcpus_add_up() {
        let mut one = Counts::new(2);
        let mut two = one.clone();
        (0..3).for_each(|_| one.nodes[0].count(false, false));
        two.nodes[1].count(true, true);
        two.nodes[1].count(false, false);
        two.moves.by_nodes[1][0] = 7;
        two.moves.returned = 2;
        one.add(&two);
        let of = |loads, stores, misses| NodeCounts {
            loads,
            stores,
            misses,
        };
        assert_eq!(one.nodes, [of(3, 0, 0), of(1, 1, 1)]);
        assert_eq!(one.moves.by_nodes, [[0, 0], [7, 0]]);
        assert_eq!(one.moves.returned, 2);
    }
}
