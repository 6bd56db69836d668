//! What became of whose pages: counted by process and by cgroup, in bounded memory.
//!
//! Everything that a migrator counts by outcome is counted here once more, by owner, and so is what
//! the demoter sends down. Sums over all owners, those in [`Ledger::others`] included, equal the
//! totals. Beyond the bounds, whoever was counted least recently goes into the others; if he comes
//! back he begins at 0, so no count ever goes back.
//!
//! Whose the *waiting* pages are is not known before they are resolved, and most wait unresolved
//! for room or for the rate. So a sample of them is resolved now and then: [`Books::hot`] is an
//! estimate.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pghot_hotness::{Nid, Pfn};

use crate::{Outcome, Program, Tally};

/// Cgroups and processes that are counted apart. 200 bytes each and their names.
pub const CGROUPS_MAX: usize = 128;
/// See [`CGROUPS_MAX`].
pub const PROGRAMS_MAX: usize = 256;

/// Ready pages of a node that are resolved to estimate whose they are, at most twice as many, and
/// how often, in ms: about 2 ms of CPU time a second.
const SAMPLE_PAGES: usize = 512;
/// See [`SAMPLE_PAGES`].
const SAMPLE_MS: u64 = 1000;

/// Pages of one owner since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// By how attempts to promote them ended.
    pub outcomes: Tally,
    /// Demoted by pghot.
    pub demoted_pages: u64,
}

impl Counts {
    fn merge(&mut self, other: &Counts) {
        self.outcomes.merge(&other.outcomes);
        self.demoted_pages += other.demoted_pages;
    }
}

/// Counts by owner.
#[derive(Debug, Clone)]
pub struct Ledger<K> {
    /// With the time when each was last counted, in ms.
    entries: HashMap<K, (u64, Counts)>,
    most: usize,
    /// Of all that have no entry any more.
    pub others: Counts,
}

impl<K: Clone + Eq + Hash + Ord> Ledger<K> {
    fn new(most: usize) -> Ledger<K> {
        Ledger {
            entries: HashMap::new(),
            most,
            others: Counts::default(),
        }
    }

    fn add(&mut self, who: &K, now_ms: u64, counts: &Counts) {
        if let Some((last_ms, of_him)) = self.entries.get_mut(who) {
            *last_ms = now_ms;
            of_him.merge(counts);
            return;
        }
        if self.entries.len() >= self.most {
            let oldest = self.entries.iter().min_by_key(|(who, it)| (it.0, *who));
            let oldest = oldest.map(|(who, _)| who.clone());
            if let Some((_, left)) = oldest.and_then(|who| self.entries.remove(&who)) {
                self.others.merge(&left);
            }
        }
        self.entries.insert(who.clone(), (now_ms, counts.clone()));
    }

    /// All that have an entry.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &Counts)> {
        self.entries.iter().map(|(who, (_, counts))| (who, counts))
    }
}

/// All that is counted by owner.
#[derive(Debug, Clone)]
pub struct Books {
    /// By the path of the cgroup.
    pub cgroups: Ledger<String>,
    /// By process.
    pub programs: Ledger<Program>,
    /// By lower-tier node: pages that were ready when a sample of them was taken last, an estimate.
    pub hot: BTreeMap<Nid, Vec<(Program, u64)>>,
}

/// See the head of this file. Clones are the same books: all migrators write into them.
#[derive(Debug, Clone)]
pub struct Owners(Arc<Mutex<Books>>);

impl Default for Owners {
    fn default() -> Self {
        Owners(Arc::new(Mutex::new(Books {
            cgroups: Ledger::new(CGROUPS_MAX),
            programs: Ledger::new(PROGRAMS_MAX),
            hot: BTreeMap::new(),
        })))
    }
}

impl Owners {
    /// What became of a program's pages in a pass.
    pub(crate) fn note(&self, program: &Program, outcomes: Tally, now_ms: u64) {
        let counts = Counts {
            outcomes,
            ..Counts::default()
        };
        let mut books = self.books();
        books.cgroups.add(&program.cgroup, now_ms, &counts);
        books.programs.add(program, now_ms, &counts);
    }

    /// Pages of a cgroup went down. Whose of its processes they were nobody knows.
    pub fn note_demoted(&self, cgroup: &str, pages: u64, now_ms: u64) {
        let counts = Counts {
            demoted_pages: pages,
            ..Counts::default()
        };
        let cgroup = match cgroup {
            "" => Program::UNKNOWN,
            path => path,
        };
        self.books()
            .cgroups
            .add(&cgroup.to_owned(), now_ms, &counts);
    }

    /// Whose pages are ready in a node.
    pub(crate) fn note_hot(&self, nid: Nid, hot: Vec<(Program, u64)>) {
        self.books().hot.insert(nid, hot);
    }

    /// A copy of all.
    pub fn copy(&self) -> Books {
        self.books().clone()
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // Every entry is consistent by itself.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A sample of the ready pages, evenly spread over all of them.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    pfns: Vec<Pfn>,
    seen: u64,
    /// Every so manyeth is taken.
    stride: u64,
    due_ms: u64,
}

impl Sample {
    /// Begins, if it is time.
    pub fn start(&mut self, now_ms: u64) {
        self.pfns.clear();
        (self.seen, self.stride) = (0, 0);
        if now_ms >= self.due_ms {
            self.stride = 1;
            self.due_ms = now_ms + SAMPLE_MS;
        }
    }

    /// A ready page.
    pub fn see(&mut self, pfn: Pfn) {
        if self.stride == 0 {
            return;
        }
        if self.seen.is_multiple_of(self.stride) {
            self.pfns.push(pfn);
        }
        self.seen += 1;
        if self.pfns.len() == 2 * SAMPLE_PAGES {
            let mut is_kept = false;
            self.pfns.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
            self.stride *= 2;
        }
    }

    /// The pages; `None` if it was not time.
    pub fn pfns(&self) -> Option<&[Pfn]> {
        (self.stride > 0).then_some(&self.pfns)
    }

    /// All pages by owner, as those that were taken are: each gets his share, and the first one
    /// what rounding leaves, so that the sum is right.
    pub fn spread(&self, taken: HashMap<Program, u64>) -> Vec<(Program, u64)> {
        let sum: u64 = taken.values().sum();
        let mut hot: Vec<_> = taken.into_iter().collect();
        hot.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        for (_, pages) in &mut hot {
            *pages = (u128::from(*pages) * u128::from(self.seen) / u128::from(sum.max(1))) as u64;
        }
        let spread: u64 = hot.iter().map(|(_, pages)| pages).sum();
        if let Some((_, pages)) = hot.first_mut() {
            *pages += self.seen - spread;
        }
        hot
    }
}

/// What a pass counts, to be entered at its end.
#[derive(Debug, Default)]
pub(crate) struct Entries(HashMap<Program, Tally>);

impl Entries {
    pub fn add(&mut self, program: &Program, outcome: Outcome, pages: u64) {
        if let Some(tally) = self.0.get_mut(program) {
            return tally.add(outcome, pages);
        }
        let tally = self.0.entry(program.clone()).or_default();
        tally.add(outcome, pages);
    }

    pub fn enter(self, owners: &Owners, now_ms: u64) {
        for (program, tally) in self.0 {
            owners.note(&program, tally, now_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(pid: u32) -> Program {
        Program {
            pid,
            name: format!("p{pid}"),
            cgroup: format!("/g{}", pid / 2),
        }
    }

    fn sum<K: Clone + Eq + Hash + Ord>(ledger: &Ledger<K>) -> Counts {
        let mut sum = ledger.others.clone();
        ledger.iter().for_each(|(_, counts)| sum.merge(counts));
        sum
    }

    #[test]
    fn beyond_the_bound_the_least_recent_are_folded_and_sums_stay() {
        let owners = Owners::default();
        let many = 4 * PROGRAMS_MAX as u32;
        let moved = |pages| {
            let mut tally = Tally::default();
            tally.add(Outcome::Moved, pages);
            tally
        };
        for pid in 0..many {
            owners.note(&program(pid), moved(u64::from(pid)), u64::from(pid));
            owners.note(&program(0), moved(1), u64::from(pid));
        }
        owners.note_demoted("/g1", 5, 9999);
        owners.note_demoted("", 7, 9999);
        let books = owners.copy();
        assert_eq!(books.programs.iter().count(), PROGRAMS_MAX);
        assert_eq!(books.cgroups.iter().count(), CGROUPS_MAX);
        let pages = u64::from(many * (many - 1) / 2 + many);
        assert_eq!(sum(&books.programs).outcomes, moved(pages));
        assert_eq!(sum(&books.cgroups).outcomes, moved(pages));
        assert_eq!(sum(&books.cgroups).demoted_pages, 12);
        let always = books.programs.iter().find(|(who, _)| who.pid == 0);
        let counted = always.unwrap().1.outcomes.get(Outcome::Moved);
        assert_eq!(counted, u64::from(many), "whoever is active stays");
    }

    #[test]
    fn a_sample_is_bounded_even_and_sums_up() {
        let mut sample = Sample::default();
        sample.start(5000);
        (0..100_000).for_each(|pfn| sample.see(pfn));
        let pfns = sample.pfns().unwrap().to_vec();
        assert!((SAMPLE_PAGES..2 * SAMPLE_PAGES).contains(&pfns.len()));
        let steps: Vec<u64> = pfns.windows(2).map(|two| two[1] - two[0]).collect();
        assert!(steps.iter().all(|step| *step == steps[0]), "{steps:?}");
        let taken = [(program(1), 1), (program(2), 2), (program(3), 4)].into();
        let hot = sample.spread(taken);
        assert_eq!(hot[0].0, program(3));
        assert_eq!(hot.iter().map(|(_, pages)| pages).sum::<u64>(), 100_000);
        assert!((57_000..57_200).contains(&hot[0].1), "{hot:?}");
        sample.start(5001);
        sample.see(1);
        assert_eq!(sample.pfns(), None, "it is too early");
        sample.start(5000 + SAMPLE_MS);
        assert_eq!(sample.pfns(), Some(&[][..]), "nothing is ready");
        assert!(sample.spread(HashMap::new()).is_empty());
    }
}
