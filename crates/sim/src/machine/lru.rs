//! The lists of a top-tier node's folios that reclaim goes through; which folio goes is decided in
//! [`crate::kernel::reclaim`].

use std::collections::VecDeque;

use pghot_engine::demoter;

use super::memory::{Memory, Page};
use super::spec::LruKind;

/// The LRU of a top-tier node: heads of the folios that came here, some of which may have left
/// meanwhile.
#[derive(Debug, Clone)]
pub enum Lru {
    /// See [`Clock`].
    Lists(Clock),
    /// See [`Generations`].
    Generations(Generations),
}

/// A node's folios, in a ring.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    pub(crate) listed: Vec<Page>,
    /// Where reclaim goes on.
    pub(crate) hand: usize,
}

/// One generation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Generation {
    pub(crate) heads: VecDeque<Page>,
    /// When it was opened.
    pub(crate) opened_ns: u64,
}

/// A node's folios by generation, the oldest first; there is always one.
#[derive(Debug, Clone)]
pub struct Generations {
    pub(crate) of: VecDeque<Generation>,
    /// The number of the oldest.
    pub(crate) oldest_seq: u64,
}

impl Default for Generations {
    fn default() -> Generations {
        Generations {
            of: VecDeque::from([Generation::default()]),
            oldest_seq: 0,
        }
    }
}

impl Lru {
    /// An empty one.
    pub fn new(kind: LruKind) -> Lru {
        match kind {
            LruKind::Lists => Lru::Lists(Clock::default()),
            LruKind::Generations => Lru::Generations(Generations::default()),
        }
    }

    /// A folio came to the node.
    pub fn push(&mut self, head: Page) {
        match self {
            Lru::Lists(clock) => clock.listed.push(head),
            Lru::Generations(generations) => generations.youngest().push_back(head),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Lru::Lists(clock) => clock.listed.len(),
            Lru::Generations(generations) => generations.len(),
        }
    }
}

impl Generations {
    pub(crate) fn len(&self) -> usize {
        let all = self.of.iter();
        all.map(|generation| generation.heads.len()).sum()
    }

    /// As the kernel lists them; folios that left are counted until somebody looks at them.
    pub fn list(&self, memory: &Memory, now_ns: u64) -> Vec<demoter::Generation> {
        let listed = |(generation, seq): (&Generation, u64)| {
            let first = generation.heads.front();
            let region = first.and_then(|&head| memory.region_of(head));
            let folio_pages = region.map_or(1, |region| u64::from(region.folio_pages));
            demoter::Generation {
                seq,
                age_ms: now_ns.saturating_sub(generation.opened_ns) / 1_000_000,
                pages: generation.heads.len() as u64 * folio_pages,
            }
        };
        self.of.iter().zip(self.oldest_seq..).map(listed).collect()
    }

    pub(crate) fn youngest(&mut self) -> &mut VecDeque<Page> {
        let last = self.of.len() - 1;
        &mut self.of[last].heads
    }

    pub(crate) fn open(&mut self, now_ns: u64) {
        self.of.push_back(Generation {
            heads: VecDeque::new(),
            opened_ns: now_ns,
        });
    }

    pub(crate) fn drop_empty(&mut self) {
        while self.of.len() > 1 && self.of[0].heads.is_empty() {
            self.of.pop_front();
            self.oldest_seq += 1;
        }
    }
}
