//! What the kernel refused, pages above all: when to ask again.

use std::collections::HashMap;
use std::hash::Hash;

use pghot_hotness::Pfn;

/// First and longest pause between two attempts on one page, in ms. A page that is pinned for good
/// and hot for good costs one call per 12.8 s, not one per pass.
const PAUSE_MS: (u64, u64) = (100, 12_800);

/// Bound on what is remembered. More refusals at a time than this mean that something is wrong with
/// all of them; the surplus is simply tried again in the next pass.
const MAX_REFUSED: usize = 1 << 16;

#[derive(Debug, Clone, Copy)]
struct Refused {
    again_ms: u64,
    pause_ms: u64,
}

/// Refused pages that are still hot, or whatever else was refused, each with the time of its next
/// attempt.
#[derive(Debug)]
pub struct Retries<K = Pfn> {
    refused: HashMap<K, Refused>,
}

impl<K> Default for Retries<K> {
    fn default() -> Self {
        Retries {
            refused: HashMap::new(),
        }
    }
}

impl<K: Eq + Hash> Retries<K> {
    /// It was refused: wait twice as long as the last time.
    pub fn refuse(&mut self, what: K, now_ms: u64) {
        if self.refused.len() >= MAX_REFUSED && !self.refused.contains_key(&what) {
            return;
        }
        let last = self.refused.get(&what).map_or(0, |r| r.pause_ms);
        let pause_ms = (last * 2).clamp(PAUSE_MS.0, PAUSE_MS.1);
        self.refused.insert(
            what,
            Refused {
                again_ms: now_ms + pause_ms,
                pause_ms,
            },
        );
    }

    /// It is settled.
    pub fn forget(&mut self, what: K) {
        if !self.refused.is_empty() {
            self.refused.remove(&what);
        }
    }

    /// It was refused and its pause is not over.
    pub fn is_waiting(&self, what: K, now_ms: u64) -> bool {
        !self.refused.is_empty() && self.refused.get(&what).is_some_and(|r| now_ms < r.again_ms)
    }

    /// Drops what has long had its pause: pages went cold, or their PFN has a new owner.
    pub fn drop_old(&mut self, now_ms: u64) {
        self.refused
            .retain(|_, r| now_ms < r.again_ms + 2 * PAUSE_MS.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_end() {
        let mut retries = Retries::<Pfn>::default();
        let mut now = 0;
        for pause in [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 12_800] {
            retries.refuse(1, now);
            assert!(retries.is_waiting(1, now + pause - 1));
            assert!(!retries.is_waiting(1, now + pause));
            now += pause;
        }
        retries.drop_old(now + 30_000);
        retries.refuse(1, now);
        assert!(
            !retries.is_waiting(1, now + 100),
            "an expired page starts over"
        );
        retries.forget(1);
        assert!(!retries.is_waiting(1, now));
    }

    #[test]
    fn memory_is_bounded() {
        let mut retries = Retries::<Pfn>::default();
        (0..2 * MAX_REFUSED as u64).for_each(|pfn| retries.refuse(pfn, 0));
        assert_eq!(retries.refused.len(), MAX_REFUSED);
    }
}
