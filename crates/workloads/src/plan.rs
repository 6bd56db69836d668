//! What a benchmark does: phases, each with a number of accesses and a pattern. Pure: the same plan
//! and seed make the same accesses everywhere, so that what is hot is known before the run.

use std::ops::Range;
use std::sync::Arc;

use serde::Serialize;

use crate::random::{XorShift, mix};

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
    /// Line by line from some page of the range to the last, then from the first one on. Each
    /// thread begins elsewhere: two that ran side by side would find in the cache what the
    /// other has read, or not, as the scheduler likes.
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
    /// Parts of the memory, each with a weight.
    Weighted(Arc<Weighted>),
    /// So many of 100 accesses go anywhere in the hot range, the rest line by line through another,
    /// as in [`Pattern::Stream`].
    Beside {
        /// The hot pages.
        hot: Range<u32>,
        /// Of 100 accesses.
        hot_percent: u32,
        /// What is streamed through.
        scanned: Range<u32>,
    },
    /// Of each so many pages of the range the first, any of them.
    Sparse {
        /// Where they lie.
        pages: Range<u32>,
        /// From one that is accessed to the next.
        stride: u32,
    },
}

/// Parts of the memory, each with its share of the accesses; within a part any page is as good.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Weighted {
    parts: Vec<Range<u32>>,
    /// The sum of the shares up to each part, that one included, of [`Weighted::WHOLE`].
    sums: Vec<u64>,
}

impl Weighted {
    const WHOLE: u64 = 1 << 48;

    /// Of parts that are not empty, with weights above 0, in any order.
    pub fn new(mut parts: Vec<(Range<u32>, f64)>) -> Weighted {
        parts.retain(|(pages, weight)| !pages.is_empty() && *weight > 0.0);
        parts.sort_by_key(|(pages, _)| pages.start);
        let all: f64 = parts.iter().map(|(_, weight)| weight).sum();
        let mut sum = 0.0;
        let sums = parts.iter().map(|(_, weight)| {
            sum += weight;
            (sum / all * Self::WHOLE as f64) as u64
        });
        Weighted {
            sums: sums.collect(),
            parts: parts.into_iter().map(|(pages, _)| pages).collect(),
        }
    }

    /// The parts with their shares of all accesses, rising.
    pub fn shares(&self) -> impl Iterator<Item = (&Range<u32>, f64)> {
        let before = std::iter::once(&0).chain(&self.sums);
        let shares = (self.sums.iter().zip(before))
            .map(|(sum, before)| (sum - before) as f64 / Self::WHOLE as f64);
        self.parts.iter().zip(shares)
    }

    /// The part with the most accesses a page.
    fn densest(&self) -> Range<u32> {
        let density = |(pages, share): &(&Range<u32>, f64)| share / pages.len() as f64;
        let densest = self
            .shares()
            .max_by(|one, other| density(one).total_cmp(&density(other)));
        densest.map_or(0..0, |(pages, _)| pages.clone())
    }

    fn choose(&self, random: &mut XorShift) -> Option<Range<u32>> {
        let at = random.next_bits() % Self::WHOLE;
        let part = self.sums.partition_point(|sum| *sum <= at);
        // Rounding may leave a little behind the last sum.
        self.parts.get(part).or(self.parts.last()).cloned()
    }
}

impl Pattern {
    /// The pages that most accesses go to: what a perfect system would have in the top tier, if it
    /// has room for it.
    pub fn hot(&self) -> Range<u32> {
        match self {
            Pattern::Random(pages) | Pattern::Stream(pages) => pages.clone(),
            Pattern::Repeated { pages, .. } | Pattern::Sparse { pages, .. } => pages.clone(),
            Pattern::Skewed { hot, .. } | Pattern::Beside { hot, .. } => hot.clone(),
            Pattern::Weighted(parts) => parts.densest(),
        }
    }

    /// The pages that one thread accesses, in order, without end.
    pub fn pages(&self, seed: u64) -> Pages {
        Pages {
            pattern: self.clone(),
            seed,
            random: XorShift::new(seed),
            made: 0,
            streamed: 0,
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
    /// Lines of a stream so far.
    streamed: u64,
}

impl Iterator for Pages {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        let of = |random: &mut XorShift, pages: &Range<u32>| {
            pages.start + random.below(pages.end - pages.start)
        };
        let mut stream = |pages: &Range<u32>| {
            let length = u64::from(pages.end - pages.start);
            let first = mix(self.seed) % length;
            let page = (first + self.streamed / LINES) % length;
            self.streamed += 1;
            pages.start + page as u32
        };
        let page = match &self.pattern {
            Pattern::Random(pages) => of(&mut self.random, pages),
            Pattern::Repeated { pages, length } => {
                if self.made.is_multiple_of(*length) {
                    self.random = XorShift::new(self.seed);
                }
                of(&mut self.random, pages)
            }
            Pattern::Stream(pages) => stream(pages),
            Pattern::Skewed {
                hot,
                hot_percent,
                all,
            } => match self.random.below(100) < *hot_percent {
                true => of(&mut self.random, hot),
                false => of(&mut self.random, all),
            },
            Pattern::Weighted(parts) => {
                let part = parts.choose(&mut self.random)?;
                of(&mut self.random, &part)
            }
            Pattern::Beside {
                hot,
                hot_percent,
                scanned,
            } => match self.random.below(100) < *hot_percent {
                true => of(&mut self.random, hot),
                false => stream(scanned),
            },
            Pattern::Sparse { pages, stride } => {
                let count = (pages.end - pages.start).div_ceil(*stride);
                pages.start + self.random.below(count) * stride
            }
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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// So many pages from the first on are in the top tier at the start; the others are in the
    /// lower.
    pub near_pages: u32,
    /// One after the other.
    pub phases: Vec<Phase>,
}

impl Plan {
    /// Accesses of all phases.
    pub fn accesses(&self) -> u64 {
        let accesses = self.phases.iter().map(|phase| phase.accesses);
        accesses.fold(0, u64::saturating_add)
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
    fn a_scan_beside_a_hot_set_touches_each_line_once() {
        let pattern = Pattern::Beside {
            hot: 0..10,
            hot_percent: 50,
            scanned: 100..1000,
        };
        let pages = first(pattern.clone(), 10_000);
        let scanned: Vec<u32> = pages.iter().copied().filter(|page| *page >= 100).collect();
        assert!((4800..5200).contains(&scanned.len()), "{}", scanned.len());
        let stream = first(Pattern::Stream(100..1000), scanned.len());
        assert_eq!(scanned, stream);
        assert_eq!(pattern.hot(), 0..10);
    }

    #[test]
    fn a_sparse_range_has_one_page_of_each_stride() {
        let pattern = Pattern::Sparse {
            pages: 512..2000,
            stride: 512,
        };
        let mut pages = first(pattern, 1000);
        pages.sort_unstable();
        pages.dedup();
        assert_eq!(pages, [512, 1024, 1536]);
    }

    #[test]
    fn weighted_parts_have_their_shares() {
        let weighted = Weighted::new(vec![
            (10..20, 1.0),
            (0..5, 3.0),
            (30..30, 9.0),
            (40..42, 0.0),
        ]);
        let shares: Vec<_> = weighted.shares().collect();
        assert_eq!(shares, [(&(0..5), 0.75), (&(10..20), 0.25)]);
        let pattern = Pattern::Weighted(Arc::new(weighted));
        assert_eq!(pattern.hot(), 0..5);
        let pages = first(pattern, 10_000);
        let low = pages.iter().filter(|page| **page < 5).count();
        assert!((7300..7700).contains(&low), "{low}");
        assert!(
            pages
                .iter()
                .all(|page| *page < 5 || (10..20).contains(page))
        );
        let none = Pattern::Weighted(Arc::default());
        assert_eq!(none.pages(1).next(), None);
        assert_eq!(none.hot(), 0..0);
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
