//! The hottest of very many ready pages, in bounded memory.

use pghot_hotness::{Pfn, ReadyPage, Record};

/// A ready page with its rank.
#[derive(Debug, Clone, Copy)]
pub struct Candidate {
    pub pfn: Pfn,
    pub record: Record,
    /// Coldness: smaller is hotter. Frequency first, then recency.
    coldness: u64,
}

impl Candidate {
    pub fn new(page: ReadyPage, now_ms: u64) -> Candidate {
        let ReadyPage { pfn, record } = page;
        // Frequencies are at most 7 and ages below 2^16 ms in either format.
        let coldness = (7 - record.freq() as u64) << 32 | record.age_ms(now_ms) as u64;
        Candidate {
            pfn,
            record,
            coldness,
        }
    }
}

/// Keeps the `limit` hottest of all pages pushed, at an amortised cost of O(1) a page.
#[derive(Debug, Default)]
pub struct Hottest {
    limit: usize,
    kept: Vec<Candidate>,
    seen: u64,
}

impl Hottest {
    /// Starts a new selection; keeps the buffer.
    pub fn start(&mut self, limit: usize) {
        self.limit = limit;
        self.kept.clear();
        self.seen = 0;
    }

    pub fn push(&mut self, page: ReadyPage, now_ms: u64) {
        self.seen += 1;
        if self.limit == 0 {
            return;
        }
        self.kept.push(Candidate::new(page, now_ms));
        if self.kept.len() >= 2 * self.limit {
            self.prune();
        }
    }

    fn prune(&mut self) {
        if self.kept.len() > self.limit {
            self.kept.select_nth_unstable_by_key(self.limit, rank);
            self.kept.truncate(self.limit);
        }
    }

    /// All pages pushed, kept or not.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// The kept pages, hottest first; equally hot ones in PFN order.
    pub fn finish(&mut self) -> &[Candidate] {
        self.prune();
        self.kept.sort_unstable_by_key(rank);
        &self.kept
    }
}

fn rank(c: &Candidate) -> (u64, Pfn) {
    (c.coldness, c.pfn)
}
