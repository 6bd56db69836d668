//! Marked folios by the time of their next access.
//!
//! There may be one for each page of the machine, and a heap of that size misses the cache at every
//! step. So only those that are due soon are in a heap; the others wait unsorted, by the piece of
//! time that they belong to.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::machine::memory::Page;

/// Length of a piece of time.
const PIECE_NS: u64 = 20_000_000;

/// The folios that wait. They come out in the order of their times, and of their numbers at the
/// same time.
#[derive(Debug, Default)]
pub struct Due {
    /// In the pieces before `first`.
    soon: BinaryHeap<Reverse<(u64, Page)>>,
    /// In the pieces from `first` on.
    later: Vec<Vec<(u64, Page)>>,
    first: u64,
    /// The piece that the first of `later` is, counted from the start of the simulation.
    begin: u64,
}

impl Due {
    /// Forgets all; what comes next is due at `now_ns` or later.
    pub fn clear(&mut self, now_ns: u64) {
        self.soon.clear();
        self.later.iter_mut().for_each(Vec::clear);
        self.begin = now_ns / PIECE_NS;
        self.first = self.begin;
    }

    /// A folio will be accessed at this time.
    pub fn push(&mut self, at_ns: u64, head: Page) {
        let piece = at_ns / PIECE_NS;
        if piece < self.first {
            self.soon.push(Reverse((at_ns, head)));
            return;
        }
        let at = (piece - self.begin) as usize;
        if self.later.len() <= at {
            self.later.resize_with(at + 1, Vec::new);
        }
        self.later[at].push((at_ns, head));
    }

    /// The next one that is due before `end_ns`, and when.
    pub fn pop(&mut self, end_ns: u64) -> Option<(u64, Page)> {
        let last = end_ns.div_ceil(PIECE_NS);
        while self.first < last {
            let at = (self.first - self.begin) as usize;
            if let Some(piece) = self.later.get_mut(at) {
                self.soon
                    .extend(std::mem::take(piece).into_iter().map(Reverse));
            }
            self.first += 1;
        }
        let Reverse((at_ns, _)) = self.soon.peek()?;
        if *at_ns >= end_ns {
            return None;
        }
        self.soon.pop().map(|Reverse(next)| next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pghot_workloads::random::XorShift;

    #[test]
    fn they_come_in_order_whenever_they_are_pushed() {
        let mut random = XorShift::new(1);
        let mut due = Due::default();
        let mut all = BinaryHeap::new();
        let begin = 7 * PIECE_NS + 13;
        due.clear(begin);
        for slice in 0..200 {
            let now = begin + slice * 1_000_000;
            for head in 0..20 {
                let at = now + u64::from(random.below(200_000_000));
                due.push(at, head);
                all.push(Reverse((at, head)));
            }
            let end = now + 1_000_000;
            while let Some(Reverse((at, head))) = all.peek().filter(|next| next.0.0 < end) {
                assert_eq!(due.pop(end), Some((*at, *head)));
                all.pop();
            }
            assert_eq!(due.pop(end), None);
        }
        due.clear(0);
        assert_eq!(due.pop(100 * PIECE_NS), None);
    }
}
