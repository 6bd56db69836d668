//! What a benchmark does: phases, each with a number of accesses and a pattern. Pure: the same plan and
//! seed make the same accesses everywhere, so that what is hot is known before the run.

use std::ops::Range;

use serde::Serialize;

use crate::access::{XorShift, mix};

/// Accesses of one page when memory is streamed through: one in each cache line of 64 bytes.
const LINES: u64 = 64;

/// How a phase chooses pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    /// Any page of the range, each time anew.
    Random(Range<u32>),
    /// Pages of the range in one random order of so many, over and over.
    Repeated {
        /// Where they lie.
        pages: Range<u32>,
        /// Accesses until the order begins again.
        length: u64,
    },
    /// Line by line from some page of the range to the last, then from the first one on. Each thread
    /// begins elsewhere: two that ran side by side would find in the cache what the other has read,
    /// or not, as the scheduler likes.
    Stream(Range<u32>),
    /// So many of 100 accesses go to the hot range, the rest anywhere in all.
    Skewed {
        /// The hot pages.
        hot: Range<u32>,
        /// Of 100 accesses.
        hot_percent: u32,
        /// All pages.
        all: Range<u32>,
    },
}

impl Pattern {
    /// The pages that most accesses go to: what a perfect system would have in the top tier, if it has
    /// room for it.
    pub fn hot(&self) -> Range<u32> {
        match self {
            Pattern::Random(pages) | Pattern::Stream(pages) => pages.clone(),
            Pattern::Repeated { pages, .. } => pages.clone(),
            Pattern::Skewed { hot, .. } => hot.clone(),
        }
    }

    /// The pages that one thread accesses, in order, without end.
    pub fn pages(&self, seed: u64) -> Pages {
        Pages {
            pattern: self.clone(),
            seed,
            random: XorShift::new(seed),
            made: 0,
        }
    }
}

/// See [`Pattern::pages`].
#[derive(Debug, Clone)]
pub struct Pages {
    pattern: Pattern,
    seed: u64,
    random: XorShift,
    made: u64,
}

impl Iterator for Pages {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        let of = |random: &mut XorShift, pages: &Range<u32>| {
            pages.start + random.below(pages.end - pages.start)
        };
        let page = match &self.pattern {
            Pattern::Random(pages) => of(&mut self.random, pages),
            Pattern::Repeated { pages, length } => {
                if self.made.is_multiple_of(*length) {
                    self.random = XorShift::new(self.seed);
                }
                of(&mut self.random, pages)
            }
            Pattern::Stream(pages) => {
                let length = u64::from(pages.end - pages.start);
                let first = mix(self.seed) % length;
                pages.start + ((first + self.made / LINES) % length) as u32
            }
            Pattern::Skewed {
                hot,
                hot_percent,
                all,
            } => match self.random.below(100) < *hot_percent {
                true => of(&mut self.random, hot),
                false => of(&mut self.random, all),
            },
        };
        self.made += 1;
        Some(page)
    }
}

/// Accesses of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phase {
    /// How each thread chooses pages.
    pub pattern: Pattern,
    /// Accesses of all threads together.
    pub accesses: u64,
}

/// A benchmark at a size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// So many pages from the first on are in the top tier at the start; the others are in the lower.
    pub near_pages: u32,
    /// One after the other.
    pub phases: Vec<Phase>,
}

impl Plan {
    /// Accesses of all phases.
    pub fn accesses(&self) -> u64 {
        self.phases.iter().map(|phase| phase.accesses).sum()
    }

    /// What is hot in each phase, for who judges the run.
    pub fn truth(&self) -> Vec<Truth> {
        let truth = |phase: &Phase| Truth {
            first_hot: phase.pattern.hot().start,
            hot_pages: phase.pattern.hot().len() as u32,
            accesses: phase.accesses,
        };
        self.phases.iter().map(truth).collect()
    }
}

/// What is hot in one phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Truth {
    /// The first hot page, counted from the start of the memory.
    pub first_hot: u32,
    /// How many follow, that one included.
    pub hot_pages: u32,
    /// Accesses of all threads.
    pub accesses: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(pattern: Pattern, count: usize) -> Vec<u32> {
        pattern.pages(3).take(count).collect()
    }

    #[test]
    fn the_same_seed_makes_the_same_accesses() {
        let pattern = Pattern::Random(5..50);
        assert_eq!(first(pattern.clone(), 100), first(pattern.clone(), 100));
        let other: Vec<u32> = pattern.pages(4).take(100).collect();
        assert_ne!(first(pattern.clone(), 100), other);
        assert!(
            first(pattern, 1000)
                .iter()
                .all(|page| (5..50).contains(page))
        );
    }

    #[test]
    fn a_repeated_order_begins_again() {
        let pages = first(
            Pattern::Repeated {
                pages: 0..1000,
                length: 70,
            },
            210,
        );
        assert_eq!(pages[..70], pages[70..140]);
        assert_eq!(pages[..70], pages[140..]);
        assert_ne!(pages[..35], pages[35..70]);
    }

    #[test]
    fn a_stream_touches_each_line_once() {
        let pages = first(Pattern::Stream(7..9), 3 * LINES as usize);
        let (one, other) = (pages[0], 7 + 8 - pages[0]);
        assert!(pages[..64].iter().all(|page| *page == one));
        assert!(pages[64..128].iter().all(|page| *page == other));
        assert!(pages[128..].iter().all(|page| *page == one), "and again");
        let first_of = |seed| Pattern::Stream(0..1000).pages(seed).next();
        assert_ne!(first_of(1), first_of(2), "threads begin elsewhere");
    }

    #[test]
    fn skewed_accesses_have_their_share() {
        let pattern = Pattern::Skewed {
            hot: 0..10,
            hot_percent: 90,
            all: 0..1000,
        };
        let pages = first(pattern, 10_000);
        let hot = pages.iter().filter(|page| **page < 10).count();
        // 90 % and 1 % of the other tenth.
        assert!((8900..9200).contains(&hot), "{hot}");
    }
}
