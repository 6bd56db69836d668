//! A thread that times single touches of hot pages, and of memory that it has just mapped: what a
//! program feels while others look at its page tables.

use std::hint::black_box;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use memmap2::MmapMut;
use serde::Serialize;

use crate::access::Shared;
use crate::random::XorShift;
use crate::region::Region;

/// Between two probes: often enough to meet stalls of milliseconds, seldom enough to cause none.
const STEP: Duration = Duration::from_micros(500);

/// Touches between two sleeps. Waking up is no part of a touch.
const TOUCHES: u32 = 8;

/// Times of one kind, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Times {
    /// How many were measured.
    pub count: u64,
    /// The median.
    pub p50_ns: u64,
    /// 99 of 100 were at most as long.
    pub p99_ns: u64,
    /// 999 of 1000 were at most as long.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// What was felt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Felt {
    /// A load from a random hot page.
    pub touch: Times,
    /// Mapping a page of new memory, touching it, and unmapping it again.
    pub map: Times,
}

/// Probes until stopped.
pub fn run(region: &Region, hot_pages: &[u32], seed: u64, shared: &Shared) -> Result<Felt> {
    let mut random = XorShift::new(seed);
    let (mut touches_ns, mut maps_ns) = (Vec::new(), Vec::new());
    shared.start.wait();
    while !shared.stop.load(Ordering::Relaxed) {
        for _ in 0..TOUCHES {
            let page = hot_pages[random.below(hot_pages.len() as u32) as usize] as usize;
            let word = &region.words()[page * region.page_words() + 1];
            touches_ns.push(timed(|| black_box(word.load(Ordering::Relaxed))).0);
        }
        let (took_ns, mapped) = timed(|| -> Result<()> {
            let mut memory = MmapMut::map_anon(region.page_bytes())?;
            memory[0] = 1;
            black_box(&memory);
            Ok(())
        });
        mapped.context("cannot map a page")?;
        maps_ns.push(took_ns);
        thread::sleep(STEP);
    }
    Ok(Felt {
        touch: times(&mut touches_ns),
        map: times(&mut maps_ns),
    })
}

fn timed<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let started = Instant::now();
    let result = work();
    (started.elapsed().as_nanos() as u64, result)
}

/// Nearest-rank percentiles.
fn times(all_ns: &mut [u64]) -> Times {
    all_ns.sort_unstable();
    let rank = |share: f64| {
        let index = (share * all_ns.len() as f64).ceil() as usize;
        all_ns.get(index.max(1) - 1).copied().unwrap_or(0)
    };
    Times {
        count: all_ns.len() as u64,
        p50_ns: rank(0.5),
        p99_ns: rank(0.99),
        p999_ns: rank(0.999),
        max_ns: all_ns.last().copied().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let mut all: Vec<u64> = (1..=1000).rev().collect();
        let expected = Times {
            count: 1000,
            p50_ns: 500,
            p99_ns: 990,
            p999_ns: 999,
            max_ns: 1000,
        };
        assert_eq!(times(&mut all), expected);
        assert_eq!(times(&mut [7]).p50_ns, 7);
        assert_eq!(times(&mut []), Times::default());
    }
}
