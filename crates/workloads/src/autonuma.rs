//! `autonuma`: the programs of autonumabench, by their public description.
//!
//! Threads zero memory again and again. Nothing is bound: the kernel has to find out which thread
//! uses which memory, and bring the two together. Of `numa01` it cannot, since all threads use all
//! of it.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow};
use serde::{Deserialize, Serialize};

use crate::numa_maps::{self, NodePages};
use crate::region::Region;
use crate::sys;

/// One of the four programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// How it is called here.
    pub name: &'static str,
    /// What it does, in a line.
    pub doc: &'static str,
    /// Processes, each with memory of its own.
    pub processes: u32,
    /// One thread in each process for so many CPUs.
    pub cpus_per_thread: u32,
    /// Memory of each process, in the original.
    pub process_mib: u32,
    /// Passes over the memory, in the original.
    pub rounds: u32,
    /// Who zeroes all memory first.
    pub first: First,
    /// Whether a thread goes over a slice of its own, or over all memory.
    pub has_slices: bool,
}

/// Who zeroes all memory before the passes are made, and so decides where it is at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// Every thread.
    Threads,
    /// The main thread alone, so that one node has all.
    Main,
}

/// The programs.
pub const PROGRAMS: [Program; 4] = [
    Program {
        name: "numa01",
        doc: "2 processes; all threads of a process share all of its memory",
        processes: 2,
        cpus_per_thread: 2,
        process_mib: 3072,
        rounds: 50,
        first: First::Threads,
        has_slices: false,
    },
    Program {
        name: "numa01-threadlocal",
        doc: "2 processes; each thread has a slice",
        processes: 2,
        cpus_per_thread: 2,
        process_mib: 3072,
        rounds: 1000,
        first: First::Threads,
        has_slices: true,
    },
    Program {
        name: "numa02",
        doc: "1 process with a thread for each CPU; each has a slice",
        processes: 1,
        cpus_per_thread: 1,
        process_mib: 1024,
        rounds: 800,
        first: First::Main,
        has_slices: true,
    },
    Program {
        name: "numa02-smt",
        doc: "the same with half the threads",
        processes: 1,
        cpus_per_thread: 2,
        process_mib: 1024,
        rounds: 800,
        first: First::Main,
        has_slices: true,
    },
];

/// The program of this name.
pub fn find(name: &str) -> Option<&'static Program> {
    PROGRAMS.iter().find(|program| program.name == name)
}

/// Where one thread and its slice are at the end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// The node that the thread ran on last.
    pub node: u32,
    /// Pages of the slice.
    pub pages: u64,
    /// How many of them are on that node.
    pub local_pages: u64,
}

/// How it went in one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProcessDone {
    /// Length of the run.
    pub elapsed_s: f64,
    /// CPU time in user mode.
    pub user_s: f64,
    /// CPU time in the kernel.
    pub kernel_s: f64,
    /// Page faults without I/O.
    pub minor_faults: u64,
    /// Pages per node at the end.
    pub nodes: NodePages,
    /// Each thread with its slice; empty if the threads share all.
    pub slices: Vec<Slice>,
    /// Pages that are not zero at the end.
    pub errors: u64,
}

impl Program {
    /// Threads of each process on a machine with so many CPUs.
    pub fn threads(&self, cpus: u32) -> u32 {
        (cpus / self.cpus_per_thread).max(1)
    }

    /// Runs one process's part in `region`.
    pub fn run(&self, region: &Region, threads: u32, rounds: u32) -> Result<ProcessDone> {
        let all = 0..region.pages();
        let own = |number| match self.has_slices {
            true => slice(region.pages(), threads, number),
            false => all.clone(),
        };
        let work = |number| {
            if self.first == First::Threads {
                zero(region, all.clone());
            }
            for _ in 0..rounds {
                zero(region, own(number));
            }
            sys::current_node()
        };
        let before = sys::process_usage()?;
        let started = Instant::now();
        if self.first == First::Main {
            zero(region, all.clone());
        }
        let nodes = thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|number| scope.spawn(move || work(number)))
                .collect();
            let join = |worker: thread::ScopedJoinHandle<'_, _>| {
                worker.join().map_err(|_| anyhow!("a worker panicked"))?
            };
            workers.into_iter().map(join).collect::<Result<Vec<u32>>>()
        })?;
        let elapsed_s = started.elapsed().as_secs_f64();
        let usage = sys::process_usage()?.since(before);
        let slices = (0..).zip(nodes).filter(|_| self.has_slices);
        Ok(ProcessDone {
            elapsed_s,
            user_s: usage.user_s,
            kernel_s: usage.kernel_s,
            minor_faults: usage.minor_faults,
            nodes: numa_maps::read(&region.range())?,
            slices: slices
                .map(|(number, node)| slice_on(region, own(number), node))
                .collect::<Result<_>>()?,
            errors: pages_not_zero(region),
        })
    }
}

/// The pages of one of `threads` threads; together they are all.
fn slice(pages: u32, threads: u32, number: u32) -> Range<u32> {
    let border = |number: u32| (u64::from(pages) * u64::from(number) / u64::from(threads)) as u32;
    border(number)..border(number + 1)
}

fn zero(region: &Region, pages: Range<u32>) {
    let words = region.page_words();
    for word in &region.words()[pages.start as usize * words..pages.end as usize * words] {
        word.store(0, Ordering::Relaxed);
    }
}

fn slice_on(region: &Region, pages: Range<u32>, node: u32) -> Result<Slice> {
    let address =
        |page: u32| (region.range().start + page as usize * region.page_bytes()) as *const _;
    let addresses: Vec<_> = pages.map(address).collect();
    let mut status = vec![0; addresses.len()];
    sys::query_nodes(&addresses, &mut status)?;
    let is_local = |status: &&i32| u32::try_from(**status) == Ok(node);
    Ok(Slice {
        node,
        pages: addresses.len() as u64,
        local_pages: status.iter().filter(is_local).count() as u64,
    })
}

fn pages_not_zero(region: &Region) -> u64 {
    let pages = region.words().chunks(region.page_words());
    pages
        .filter(|page| page.iter().any(|word| word.load(Ordering::Relaxed) != 0))
        .count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::Backing;
    use std::path::Path;

    fn region(mib: usize) -> Region {
        Region::map(mib << 20, Backing::Anon, 0, Path::new("/")).unwrap()
    }

    #[test]
    fn threads_are_those_of_the_table() {
        let threads = |name| find(name).unwrap().threads(48);
        assert_eq!(threads("numa01"), 24);
        assert_eq!(threads("numa01-threadlocal"), 24);
        assert_eq!(threads("numa02"), 48);
        assert_eq!(threads("numa02-smt"), 24);
        assert_eq!(find("numa02-smt").unwrap().threads(1), 1);
    }

    #[test]
    fn slices_follow_each_other_and_are_all() {
        for (pages, threads) in [(10, 3), (3, 5), (1 << 31, 1024)] {
            let mut end = 0;
            for number in 0..threads {
                let slice = slice(pages, threads, number);
                assert_eq!(slice.start, end);
                end = slice.end;
            }
            assert_eq!(end, pages);
        }
    }

    #[test]
    fn every_program_leaves_zeros_wherever_content_was() {
        for program in PROGRAMS {
            let region = region(1);
            region.populate(1).unwrap();
            assert_eq!(pages_not_zero(&region), 256);
            let done = program.run(&region, 3, 2).unwrap();
            assert_eq!(done.errors, 0, "{}", program.name);
            assert_eq!(done.nodes.values().sum::<u64>(), 256);
            let pages: u64 = done.slices.iter().map(|slice| slice.pages).sum();
            assert_eq!(pages, if program.has_slices { 256 } else { 0 });
        }
    }

    #[test]
    fn a_slice_counts_the_pages_of_its_node_alone() {
        let region = region(1);
        region.populate(1).unwrap();
        assert_eq!(slice_on(&region, 3..8, 0).unwrap().local_pages, 5);
        assert_eq!(slice_on(&region, 3..8, 1).unwrap().local_pages, 0);
        region.words()[7 * region.page_words() + 9].store(1, Ordering::Relaxed);
        zero(&region, 0..7);
        assert_eq!(pages_not_zero(&region), 249);
    }
}
