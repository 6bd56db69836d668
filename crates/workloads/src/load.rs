//! Runs a plan: its threads make exactly the accesses that it says, phase by phase, and nothing
//! else.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use serde::Serialize;

use crate::access::touch;
use crate::cached_file::CachedFile;
use crate::marks::{self, Marks};
use crate::plan::{Phase, Plan};
use crate::random::XorShift;
use crate::region::Region;
use crate::sys::{self, ThreadUsage};

/// What a plan's accesses go to.
#[derive(Clone, Copy)]
pub enum Target<'a> {
    /// Memory, word by word.
    Memory(&'a Region),
    /// A file in the page cache, a page a `pread`.
    File(&'a CachedFile),
}

/// How a plan is run.
pub struct Load<'a> {
    /// What is run.
    pub plan: &'a Plan,
    /// What is accessed.
    pub target: Target<'a>,
    /// Threads that share the accesses of each phase.
    pub threads: u32,
    /// The CPUs that they run on, in turn; empty for any.
    pub cpus: &'a [u32],
    /// How many of 100 accesses are stores.
    pub store_percent: u32,
    /// Decides the accesses.
    pub seed: u64,
    /// How to tell the witness, if one watches.
    pub marks: Option<&'a Marks>,
    /// The time from one slice of the witness's report to the next.
    pub slice: Duration,
}

/// How a phase went.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct PhaseTime {
    /// From the start of the run to its end, in seconds.
    pub end_s: f64,
    /// Accesses made.
    pub accesses: u64,
}

/// How a run went.
#[derive(Debug, Clone)]
pub struct Times {
    /// Each phase.
    pub phases: Vec<PhaseTime>,
    /// CPU time and faults of the threads.
    pub usage: ThreadUsage,
}

impl Load<'_> {
    /// Makes all accesses. Returns when they are made.
    pub fn run(&self) -> Result<Times> {
        let threads = self.threads as usize;
        let barrier = &Barrier::new(threads + 1);
        thread::scope(|scope| {
            let workers: Vec<_> = (0..self.threads)
                .map(|number| scope.spawn(move || self.work(number, barrier)))
                .collect();
            barrier.wait();
            let started = Instant::now();
            let phases = marks::watched(self.marks, self.slice, || {
                let mut phases = Vec::with_capacity(self.plan.phases.len());
                for phase in &self.plan.phases {
                    barrier.wait();
                    barrier.wait();
                    phases.push(PhaseTime {
                        end_s: started.elapsed().as_secs_f64(),
                        accesses: phase.accesses,
                    });
                }
                phases
            });
            let mut usage = ThreadUsage::default();
            for worker in workers {
                usage += worker.join().map_err(|_| anyhow!("a worker panicked"))??;
            }
            Ok(Times { phases, usage })
        })
    }

    /// One thread. It waits for the others whatever happens to it, since they wait for it.
    fn work(&self, number: u32, barrier: &Barrier) -> Result<ThreadUsage> {
        let cpu = self.cpus.iter().cycle().nth(number as usize);
        let pinned = cpu.map_or(Ok(()), |cpu| sys::run_on(&[*cpu]));
        let before = sys::thread_usage();
        barrier.wait();
        for (phase, index) in self.plan.phases.iter().zip(0..) {
            barrier.wait();
            if pinned.is_ok() {
                self.work_phase(phase, number, index);
            }
            barrier.wait();
        }
        pinned?;
        Ok(sys::thread_usage()?.since(before?))
    }

    fn work_phase(&self, phase: &Phase, number: u32, index: u64) {
        // Each thread has a sequence of its own, the same in every run.
        let seed = self.seed ^ u64::from(number) << 48 ^ index << 32;
        let own = share(phase.accesses, self.threads, number) as usize;
        let pages = phase.pattern.pages(seed).take(own);
        match self.target {
            Target::Memory(region) => {
                let mut bits = XorShift::new(!seed);
                let mut sum = 0;
                for page in pages {
                    sum ^= touch(region, page, bits.next_bits(), self.store_percent);
                }
                black_box(sum);
            }
            Target::File(file) => {
                let mut buffer = Vec::new();
                for page in pages {
                    black_box(file.is_intact(page, &mut buffer));
                }
            }
        }
    }
}

/// How many of `accesses` one of `threads` threads makes; together they make all.
fn share(accesses: u64, threads: u32, number: u32) -> u64 {
    let threads = u64::from(threads);
    accesses / threads + u64::from(u64::from(number) < accesses % threads)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Pattern;
    use crate::region::Backing;
    use std::path::Path;
    use std::sync::atomic::Ordering;

    #[test]
    fn shares_add_up() {
        for (accesses, threads) in [(10, 3), (2, 5), (0, 1), (64, 64)] {
            let sum: u64 = (0..threads).map(|n| share(accesses, threads, n)).sum();
            assert_eq!(sum, accesses);
        }
    }

    #[test]
    fn a_plan_touches_its_pages_and_no_others() {
        let region = Region::map(1 << 20, Backing::Anon, 0, Path::new("/")).unwrap();
        region.populate(1).unwrap();
        let phase = |pages| Phase {
            pattern: Pattern::Random(pages),
            accesses: 5000,
        };
        let plan = Plan {
            near_pages: 0,
            phases: vec![phase(10..20), phase(200..210)],
        };
        let load = Load {
            plan: &plan,
            target: Target::Memory(&region),
            threads: 2,
            cpus: &[],
            store_percent: 100,
            seed: 1,
            marks: None,
            slice: Duration::from_secs(1),
        };
        let times = load.run().unwrap();
        assert_eq!(times.phases.len(), 2);
        assert!(times.phases[0].end_s <= times.phases[1].end_s);
        assert_eq!(region.damaged_pages(1), 0);
        for page in 0..region.pages() {
            let first = page as usize * region.page_words() + 1;
            let words = &region.words()[first..first + region.page_words() - 1];
            let written = words.iter().any(|word| word.load(Ordering::Relaxed) != 0);
            let planned = (10..20).contains(&page) || (200..210).contains(&page);
            assert_eq!(written, planned, "page {page}");
        }
    }
}
