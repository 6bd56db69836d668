//! A node's memory as a server that its visitors share.
//!
//! A visitor gets a share of the bandwidth by its weight. The node has a clock of its own that goes
//! the slower the more weight there is, and a visit ends when that clock shows a time that is known
//! when it begins. So nothing needs to be computed anew when others come and go.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A node's memory.
#[derive(Debug, Clone)]
pub struct Node {
    bytes_per_s: f64,
    /// With less weight than this, the bandwidth is not used up.
    saturating: f64,
    weight: f64,
    /// Bytes per second for a weight of 1, as things are.
    rate: f64,
    /// Bytes that a visitor of weight 1 was given so far.
    clock: f64,
    /// Ends of visits, on the clock, and visitors.
    ends: BinaryHeap<Reverse<(u64, usize)>>,
}

impl Node {
    /// A node without visitors.
    pub fn new(bytes_per_s: f64, saturating: f64) -> Node {
        Node {
            bytes_per_s,
            saturating,
            weight: 0.0,
            rate: bytes_per_s / saturating,
            clock: 0.0,
            ends: BinaryHeap::new(),
        }
    }

    fn weigh(&mut self, weight: f64) {
        self.weight = weight;
        self.rate = self.bytes_per_s / weight.max(self.saturating);
    }

    /// Time passes.
    pub fn pass(&mut self, seconds: f64) {
        self.clock += seconds * self.rate;
    }

    /// A visit of so many bytes begins.
    pub fn begin(&mut self, visitor: usize, bytes: f64, weight: f64) {
        self.weigh(self.weight + weight);
        let end = self.clock + bytes / weight;
        self.ends.push(Reverse((end as u64, visitor)));
    }

    /// In how many seconds the next visit ends, if nobody comes until then.
    pub fn next_end_s(&self) -> Option<f64> {
        let Reverse((end, _)) = self.ends.peek()?;
        Some((*end as f64 - self.clock).max(0.0) / self.rate)
    }

    /// Takes the visitor whose visit ends next out; it had this weight.
    pub fn end(&mut self, weight_of: impl Fn(usize) -> f64) -> Option<usize> {
        let Reverse((_, visitor)) = self.ends.pop()?;
        // Sums of shares leave a rest.
        let left = match self.ends.is_empty() {
            true => 0.0,
            false => self.weight - weight_of(visitor),
        };
        self.weigh(left);
        Some(visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visitors_share_by_weight() {
        let mut node = Node::new(1000.0, 1.0);
        node.begin(7, 600.0, 1.0);
        node.begin(8, 600.0, 0.5);
        // 7 gets two thirds of 1000 a second.
        assert!((node.next_end_s().unwrap() - 0.9).abs() < 1e-9);
        node.pass(0.9);
        assert_eq!(node.end(|_| 1.0), Some(7));
        // 8 got 300 meanwhile; alone it does not saturate the node.
        assert!((node.next_end_s().unwrap() - 0.6).abs() < 1e-9);
        node.pass(0.6);
        assert_eq!(node.end(|_| 0.5), Some(8));
        assert_eq!(node.next_end_s(), None);
    }
}
