//! What is known of each page of the measured memory: how often it was accessed, on which node it
//! was last, and where it went from there. One word a page, shared by all vCPUs.
//!
//! An access is called back before its vCPU answers the kernel's request to forget the page's old
//! place. So of two accesses on different nodes, that on the old one is always counted first.

use std::sync::atomic::{AtomicU64, Ordering};

/// Nodes that a word has room for.
pub const NODES_MAX: usize = 16;

/// Bits of the word: the count, the node plus one, and a set of the nodes where the page was.
const COUNT_MASK: u64 = 0xffff_ffff;
const NODE_SHIFT: u32 = 32;
const NODE_MASK: u64 = 0xff << NODE_SHIFT;
const VISITED_SHIFT: u32 = 40;

/// One page, as it is now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Page {
    /// Accesses.
    pub accesses: u32,
    /// The node of the last one; none if there was none.
    pub node: Option<u8>,
}

/// A page was found on another node than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// Where it was.
    pub from: usize,
    /// Where it is.
    pub to: usize,
    /// Whether it had been there before.
    pub is_return: bool,
}

/// All pages.
#[derive(Debug)]
pub struct Pages(Vec<AtomicU64>);

impl Pages {
    /// So many, never accessed.
    pub fn new(count: usize) -> Pages {
        Pages((0..count).map(|_| AtomicU64::new(0)).collect())
    }

    /// Counts an access of `page` on `node`. Pages beyond the end are nobody's.
    #[inline]
    pub fn count(&self, page: usize, node: usize) -> Option<Move> {
        let word = self.0.get(page)?;
        // A page's count stands still before it would spill into the node.
        if word.load(Ordering::Relaxed) & COUNT_MASK < COUNT_MASK >> 1 {
            word.fetch_add(1, Ordering::Relaxed);
        }
        let here = (node as u64 + 1) << NODE_SHIFT;
        let visit = 1 << (VISITED_SHIFT + node as u32);
        let mut old = word.load(Ordering::Relaxed);
        while old & NODE_MASK != here {
            let new = old & !NODE_MASK | here | visit;
            match word.compare_exchange_weak(old, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    let from = ((old & NODE_MASK) >> NODE_SHIFT).checked_sub(1)? as usize;
                    return Some(Move {
                        from,
                        to: node,
                        is_return: old & visit != 0,
                    });
                }
                Err(now) => old = now,
            }
        }
        None
    }

    /// How things are, up to the last page that was accessed.
    pub fn snapshot(&self) -> Vec<Page> {
        let page = |word: &AtomicU64| {
            let word = word.load(Ordering::Relaxed);
            Page {
                accesses: (word & COUNT_MASK) as u32,
                node: (((word & NODE_MASK) >> NODE_SHIFT) as u8).checked_sub(1),
            }
        };
        let mut pages: Vec<Page> = self.0.iter().map(page).collect();
        let end = pages.iter().rposition(|page| page.node.is_some());
        pages.truncate(end.map_or(0, |last| last + 1));
        pages
    }

    /// From zero again.
    pub fn clear(&self) {
        let words = self.0.iter();
        words.for_each(|word| word.store(0, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_moves_is_noticed_at_its_next_access() {
        let pages = Pages::new(4);
        let moved = |from, to, is_return| {
            Some(Move {
                from,
                to,
                is_return,
            })
        };
        assert_eq!(pages.count(2, 1), None, "it was nowhere before");
        assert_eq!(pages.count(2, 1), None);
        assert_eq!(pages.count(2, 0), moved(1, 0, false));
        assert_eq!(pages.count(2, 1), moved(0, 1, true));
        assert_eq!(pages.count(9, 1), None, "not ours");
        let seen = pages.snapshot();
        let page = Page {
            accesses: 4,
            node: Some(1),
        };
        assert_eq!(seen, [Page::default(), Page::default(), page]);
        pages.clear();
        assert!(pages.snapshot().is_empty());
    }

    #[test]
    fn nothing_is_lost_between_vcpus() {
        let pages = Pages::new(1);
        let count = || (0..10_000).for_each(|_| assert!(pages.count(0, 3).is_none()));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(count);
            }
        });
        let page = Page {
            accesses: 40_000,
            node: Some(3),
        };
        assert_eq!(pages.snapshot(), [page]);
    }

    #[test]
    fn a_count_never_spills_into_the_node() {
        let pages = Pages::new(1);
        pages.count(0, 2);
        pages.0[0].fetch_add((COUNT_MASK >> 1) - 1, Ordering::Relaxed);
        (0..5).for_each(|_| assert!(pages.count(0, 2).is_none()));
        assert_eq!(pages.snapshot()[0].node, Some(2));
        assert_eq!(u64::from(pages.snapshot()[0].accesses), COUNT_MASK >> 1);
    }
}
