//! Which pages went up lately: a page that went down since and is hot again has come back.
//!
//! A page keeps its address when it moves, and its record does not: so who it is lies in its owner
//! and its address. It waits before it may go up again, twice as long each time, so that no page
//! goes up and down for ever. All migrators share one history: the kernel demotes to the nearest
//! node, which need not be the one that the page came from.
//!
//! Of what went up a sample is kept by its place, so that somebody can look whether it is touched
//! again: large folios are not in it, for a TLB hides for long that they are, nor page cache that
//! nobody maps.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pghot_hotness::Nid;

use crate::{Owner, Place};

/// How long a page stays down that came back once, counted from its promotion, in ms; doubled each
/// time.
const WAIT_MS: u64 = 5000;

/// Times that the wait is doubled.
const DOUBLINGS_MAX: u8 = 5;

/// Pages of one generation, 32 bytes each. There are two generations: the younger one becomes the
/// older one when it is full, or after [`GENERATION_MS`].
const GENERATION_PAGES: usize = 1 << 18;
const GENERATION_MS: u64 = 30_000;

/// One page in so many is of the sample, and the newest of them that are kept.
const SAMPLE_ONE_IN: u64 = 16;
const SAMPLE_PAGES: usize = 256;

#[derive(Debug, Clone, Copy)]
struct Promoted {
    when_ms: u64,
    times: u8,
    /// It was seen again in the lower tier.
    is_back: bool,
}

/// What a page is told that wants to go up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It was not up lately, or has waited long enough.
    New,
    /// It has just been found again: whoever counts those that come back counts it now.
    ComesBack,
    /// It has been told so before, and waits.
    Waits,
}

/// See the head of this file. Clones are the same history.
#[derive(Debug, Clone, Default)]
pub struct History(Arc<Mutex<Generations>>);

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<u64, Promoted>,
    old: HashMap<u64, Promoted>,
    opened_ms: u64,
    /// When it went up, to which node, and where it is mapped.
    sample: VecDeque<(u64, Nid, Place)>,
}

/// Hashed alike in every run, for the same inputs must give the same decisions.
fn key(place: &Place) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(place)
}

impl History {
    /// A folio of so many pages went up to a node.
    pub fn promoted(&self, place: &Place, pages: u32, target: Nid, now_ms: u64) {
        let key = key(place);
        let mut generations = self.generations();
        generations.promoted(key, now_ms);
        let is_mapped = matches!(place.owner, Owner::Process(_));
        if pages == 1 && is_mapped && key.is_multiple_of(SAMPLE_ONE_IN) {
            let sample = &mut generations.sample;
            if sample.len() == SAMPLE_PAGES {
                sample.pop_front();
            }
            sample.push_back((now_ms, target, *place));
        }
    }

    /// Takes from the sample what went up to a node before that time.
    pub fn take_sample(&self, target: Nid, before_ms: u64) -> Vec<Place> {
        let mut generations = self.generations();
        let mut taken = Vec::new();
        generations.sample.retain(|&(when_ms, nid, place)| {
            let is_meant = nid == target && when_ms < before_ms;
            if is_meant {
                taken.push(place);
            }
            !is_meant
        });
        taken
    }

    /// A page of the lower tier is hot.
    pub fn ask(&self, place: &Place, now_ms: u64) -> Answer {
        self.generations().ask(key(place), now_ms)
    }

    fn generations(&self) -> MutexGuard<'_, Generations> {
        // Whole after each statement, so a thread that panicked has left nothing behind.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Generations {
    #[cfg(test)]
    fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    fn promoted(&mut self, key: u64, now_ms: u64) {
        let is_over = now_ms.saturating_sub(self.opened_ms) >= GENERATION_MS;
        if is_over || self.young.len() >= GENERATION_PAGES {
            self.old = std::mem::take(&mut self.young);
            self.opened_ms = now_ms;
        }
        let before = self.young.get(&key).or_else(|| self.old.get(&key));
        let promoted = Promoted {
            when_ms: now_ms,
            times: before.map_or(0, |before| before.times.saturating_add(1)),
            is_back: false,
        };
        self.young.insert(key, promoted);
    }

    fn ask(&mut self, key: u64, now_ms: u64) -> Answer {
        let found = match self.young.get_mut(&key) {
            None => self.old.get_mut(&key),
            young => young,
        };
        let Some(promoted) = found else {
            return Answer::New;
        };
        let wait_ms = WAIT_MS << promoted.times.min(DOUBLINGS_MAX);
        match now_ms.saturating_sub(promoted.when_ms) < wait_ms {
            false => Answer::New,
            true if promoted.is_back => Answer::Waits,
            true => {
                promoted.is_back = true;
                Answer::ComesBack
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(page: u64) -> Place {
        Place::in_process(7, page << 12)
    }

    #[test]
    fn a_page_waits_twice_as_long_each_time() {
        let history = History::default();
        let mut now_ms = 1_000_000;
        assert_eq!(history.ask(&place(1), now_ms), Answer::New);
        for wait_ms in [5000, 10_000, 20_000] {
            history.promoted(&place(1), 1, 0, now_ms);
            assert_eq!(history.ask(&place(1), now_ms + 1), Answer::ComesBack);
            assert_eq!(history.ask(&place(1), now_ms + wait_ms - 1), Answer::Waits);
            now_ms += wait_ms;
            assert_eq!(history.ask(&place(1), now_ms), Answer::New);
        }
        assert_eq!(history.ask(&place(2), now_ms), Answer::New);
        let other = Place::in_process(8, 1 << 12);
        assert_eq!(history.ask(&other, now_ms), Answer::New, "not its page");
    }

    #[test]
    fn of_what_went_up_a_sample_is_taken_once() {
        let history = History::default();
        for page in 0..1600 {
            history.promoted(&place(page), 1, 0, 10 + page / 800);
            history.promoted(&place(page), 1, 1, 10);
            history.promoted(&place(page), 512, 0, 10);
        }
        let sample = history.take_sample(0, 11);
        assert!((25..100).contains(&sample.len()), "{}", sample.len());
        assert!(sample.iter().all(|place| place.address < 800 << 12));
        assert_eq!(history.take_sample(0, 11), []);
        assert!(!history.take_sample(0, 12).is_empty());
        let left = history.take_sample(1, 11).len();
        assert!(left > 0 && left <= SAMPLE_PAGES, "{left}");
    }

    #[test]
    fn memory_is_bounded_and_the_newest_are_kept() {
        let history = History::default();
        for page in 0..3 * GENERATION_PAGES as u64 {
            history.promoted(&place(page), 1, 0, 10);
        }
        let kept = history.generations().len();
        assert!(kept <= 2 * GENERATION_PAGES, "{kept}");
        let last = place(3 * GENERATION_PAGES as u64 - 1);
        assert_eq!(history.ask(&last, 20), Answer::ComesBack);
        assert_eq!(history.ask(&place(0), 20), Answer::New);
    }
}
