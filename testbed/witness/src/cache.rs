//! A model of a last-level cache: set-associative, least recently used goes first, lines of 64
//! bytes, by physical address. It answers one question: would this access have gone to memory?

use std::sync::{Mutex, PoisonError};

/// Bytes of a line.
const LINE_BYTES: u64 = 64;
/// Lines of a set.
const WAYS: usize = 16;
/// No line.
const EMPTY: u64 = u64::MAX;

/// One cache. Each set has a lock of its own: vCPUs rarely meet in one.
#[derive(Debug)]
pub struct Cache {
    /// Each set's lines, the most recently used first.
    sets: Vec<Mutex<[u64; WAYS]>>,
}

impl Cache {
    /// Of so many bytes, rounded down to a power of two of sets. Less than one set is no cache.
    pub fn new(bytes: u64) -> Cache {
        let sets = (bytes / LINE_BYTES) as usize / WAYS;
        let sets = if sets == 0 { 0 } else { 1 << sets.ilog2() };
        Cache {
            sets: (0..sets).map(|_| Mutex::new([EMPTY; WAYS])).collect(),
        }
    }

    /// Looks a byte up and keeps its line. True if it was there.
    pub fn access(&self, address: u64) -> bool {
        let line = address / LINE_BYTES;
        let Some(last) = self.sets.len().checked_sub(1) else {
            return false;
        };
        let set = self.sets[line as usize & last].lock();
        let mut set = set.unwrap_or_else(PoisonError::into_inner);
        let place = set.iter().position(|kept| *kept == line);
        set[..=place.unwrap_or(WAYS - 1)].rotate_right(1);
        set[0] = line;
        place.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_hit_from_the_second_time_on() {
        let cache = Cache::new(1 << 20);
        let lines = || (0..1 << 20).step_by(64);
        assert!(lines().all(|address| !cache.access(address)));
        assert!(lines().all(|address| cache.access(address + 63)));
    }

    #[test]
    fn the_least_recently_used_line_goes() {
        let cache = Cache::new(WAYS as u64 * LINE_BYTES);
        let line = |n: u64| n * LINE_BYTES;
        assert!((0..WAYS as u64).all(|n| !cache.access(line(n))));
        assert!(cache.access(line(0)), "now the newest");
        assert!(!cache.access(line(100)), "takes the place of line 1");
        assert!(cache.access(line(0)));
        assert!(!cache.access(line(1)));
    }

    #[test]
    fn a_sweep_over_more_than_fits_never_hits() {
        let cache = Cache::new(1 << 16);
        for _ in 0..3 {
            let mut sweep = (0..1 << 17).step_by(64);
            assert!(sweep.all(|address| !cache.access(address)));
        }
    }

    #[test]
    fn no_bytes_are_no_cache() {
        let cache = Cache::new(100);
        assert!(!cache.access(0) && !cache.access(0));
    }
}
