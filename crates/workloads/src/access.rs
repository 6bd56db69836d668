//! The threads that touch the region: workers on the hot pages, one sweeper on the cold ones.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::random::{XorShift, scale};
use crate::region::Region;
use crate::sys::{self, ThreadUsage};

/// Accesses between two looks at the stop flag: about a millisecond on the slowest machine.
const BURST: u32 = 4096;

/// How long a worker is busy between two rests, if it rests at all.
const BUSY_PIECE: Duration = Duration::from_millis(5);

/// How often the sweeper wakes up.
const SWEEP_STEP: Duration = Duration::from_millis(10);

/// Loads or stores one word of a page, never its stamp: of random `bits`, 16 choose the word and 16
/// whether it is a store. Returns what was loaded.
#[inline]
pub fn touch(region: &Region, page: u32, bits: u64, store_percent: u32) -> u64 {
    let page_words = region.page_words();
    let word = 1 + scale(bits & 0xffff, page_words as u32 - 1, 16) as usize;
    let target = &region.words()[page as usize * page_words + word];
    if scale(bits >> 16 & 0xffff, 100, 16) < store_percent {
        target.store(bits, Ordering::Relaxed);
        0
    } else {
        target.load(Ordering::Relaxed)
    }
}

/// What all threads of a run share.
pub struct Shared {
    /// Set once: every thread ends soon after.
    pub stop: AtomicBool,
    /// All threads and the sampler start the access phase together.
    pub start: Barrier,
    /// Accesses to hot pages so far, added up in bursts.
    pub hot_accesses: AtomicU64,
    /// Accesses to cold pages so far.
    pub cold_accesses: AtomicU64,
}

impl Shared {
    /// For `threads` threads, the sampler counted in.
    pub fn new(threads: usize) -> Self {
        Self {
            stop: AtomicBool::new(false),
            start: Barrier::new(threads),
            hot_accesses: AtomicU64::new(0),
            cold_accesses: AtomicU64::new(0),
        }
    }
}

/// Keeps a thread from being busy all the time.
pub struct Pace {
    busy_percent: u32,
    woke: Instant,
}

impl Pace {
    /// Busy for this share of the time, 1 to 100.
    pub fn new(busy_percent: u32) -> Self {
        Self {
            busy_percent,
            woke: Instant::now(),
        }
    }

    /// Sleeps as long as the share asks for, if the thread has been busy for a piece.
    pub fn rest_if_due(&mut self) {
        if self.busy_percent < 100 && self.woke.elapsed() >= BUSY_PIECE {
            thread::sleep(self.woke.elapsed() * (100 - self.busy_percent) / self.busy_percent);
            self.woke = Instant::now();
        }
    }
}

/// Touches random words of random hot pages until stopped; no system call and no clock inside,
/// unless it rests now and then.
pub struct Worker<'a> {
    /// The memory.
    pub region: &'a Region,
    /// Pages to choose from.
    pub hot_pages: &'a [u32],
    /// How many of 100 accesses are stores.
    pub store_percent: u32,
    /// Share of the time in which it does so.
    pub busy_percent: u32,
    /// The CPU to run on, if any in particular.
    pub cpu: Option<u32>,
    /// Its own sequence of accesses.
    pub seed: u64,
}

impl Worker<'_> {
    /// Runs the access phase; returns what this thread used during it.
    pub fn run(&self, shared: &Shared) -> Result<ThreadUsage> {
        let pinned = self.cpu.map_or(Ok(()), |cpu| sys::run_on(&[cpu]));
        shared.start.wait();
        let usage = pinned.and_then(|()| self.measured_loop(shared));
        // After a failure the others have nothing to wait for.
        shared.stop.store(true, Ordering::Relaxed);
        usage
    }

    fn measured_loop(&self, shared: &Shared) -> Result<ThreadUsage> {
        let before = sys::thread_usage()?;
        let mut random = XorShift::new(self.seed);
        let mut pace = Pace::new(self.busy_percent);
        while !shared.stop.load(Ordering::Relaxed) {
            self.burst(&mut random);
            pace.rest_if_due();
            shared
                .hot_accesses
                .fetch_add(BURST.into(), Ordering::Relaxed);
        }
        Ok(sys::thread_usage()?.since(before))
    }

    fn burst(&self, random: &mut XorShift) {
        let hot_count = self.hot_pages.len() as u32;
        let mut sum = 0;
        for _ in 0..BURST {
            // One draw decides all: 32 bits the page, the others what is done there.
            let bits = random.next_bits();
            let page = self.hot_pages[scale(bits >> 32, hot_count, 32) as usize];
            sum ^= touch(self.region, page, bits, self.store_percent);
        }
        black_box(sum);
    }
}

/// Touches every cold page once in `period`, evenly paced, again and again.
///
/// Without it cold pages would never be accessed at all, and every detector would look perfect.
pub struct Sweeper<'a> {
    /// The memory.
    pub region: &'a Region,
    /// Pages to go through, in order.
    pub cold_pages: Vec<u32>,
    /// Time for one round.
    pub period: Duration,
    /// The CPUs to run on; empty for any.
    pub cpus: &'a [u32],
    /// Whether it stores.
    pub stores: bool,
}

impl Sweeper<'_> {
    /// Runs until stopped.
    pub fn run(&self, shared: &Shared) -> Result<()> {
        let pinned = if self.cpus.is_empty() {
            Ok(())
        } else {
            sys::run_on(self.cpus)
        };
        shared.start.wait();
        let started = Instant::now();
        let mut touched = 0;
        while pinned.is_ok() && !shared.stop.load(Ordering::Relaxed) {
            let rounds = started.elapsed().as_secs_f64() / self.period.as_secs_f64();
            let due = (rounds * self.cold_pages.len() as f64) as u64;
            for turn in touched..due {
                self.touch(turn);
            }
            shared.cold_accesses.store(due, Ordering::Relaxed);
            touched = due;
            thread::sleep(SWEEP_STEP);
        }
        shared.stop.store(true, Ordering::Relaxed);
        pinned
    }

    fn touch(&self, turn: u64) {
        let index = (turn % self.cold_pages.len() as u64) as usize;
        let page = self.cold_pages[index] as usize;
        let word = &self.region.words()[page * self.region.page_words() + 1];
        match self.stores {
            true => word.store(turn, Ordering::Relaxed),
            false => drop(black_box(word.load(Ordering::Relaxed))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::Backing;

    #[test]
    fn a_burst_spares_cold_pages_and_stamps() {
        let region = Region::map(1 << 20, Backing::Anon, 0, std::path::Path::new("/")).unwrap();
        region.populate(1).unwrap();
        let worker = Worker {
            region: &region,
            hot_pages: &[2, 5],
            store_percent: 100,
            busy_percent: 100,
            cpu: None,
            seed: 1,
        };
        worker.burst(&mut XorShift::new(1));
        assert_eq!(region.damaged_pages(1), 0);
        for page in 0..region.pages() as usize {
            let first = page * region.page_words() + 1;
            let words = &region.words()[first..first + region.page_words() - 1];
            let written = words.iter().any(|word| word.load(Ordering::Relaxed) != 0);
            assert_eq!(written, page == 2 || page == 5, "page {page}");
        }
    }
}
