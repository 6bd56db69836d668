//! Processes and their threads: how far they are, and what the kernel remembers of them.

use super::benchmark::{Benchmark, First};
use super::machine::{Limits, NODES};
use super::memory::{Block, Filter};
use super::policies::{Policy, Whole};

/// Of a process.
#[derive(Debug, Clone)]
pub struct Process {
    /// Its memory.
    pub blocks: Vec<Block>,
    /// Not scanned before.
    pub next_scan_ms: f64,
    /// Where the scanner goes on.
    hand: usize,
    /// How often the scanner went through all.
    pub passes: u32,
    /// Hint faults of all threads, by the node where the page ended; they fade.
    pub faults: [f64; NODES],
    /// The pass at which they faded last.
    pub faded_pass: u32,
}

/// Of a thread.
#[derive(Debug, Clone)]
pub struct Thread {
    /// Its process.
    pub process: usize,
    /// Its number in the process.
    pub number: usize,
    /// The node it runs on.
    pub nid: usize,
    /// The node it should run on.
    pub home: Option<usize>,
    /// Time between its tries to scan.
    pub period_ms: f64,
    /// Its last one.
    pub tried_ms: f64,
    /// The passes of the scanner after which it was placed.
    pub placed_pass: u32,
    /// Its hint faults, by the node where the page ended; they fade.
    pub faults: [f64; NODES],
    /// The block it writes, or writes next.
    pub block: usize,
    /// How often it has written all that it writes.
    pub pass: u32,
    /// System time that it has to spend yet, in ns.
    pub owed_ns: f64,
    /// What it does at the moment.
    pub visit: Visit,
    /// Whether it has something left to do.
    pub is_running: bool,
}

/// A thread's time in a block.
#[derive(Debug, Clone, Copy, Default)]
pub struct Visit {
    /// The node of the thread when it came.
    pub from: usize,
    /// The node of the memory.
    pub to: usize,
    /// When it began to write, in seconds.
    pub since_s: f64,
    /// Its share of a CPU.
    pub cpu: f64,
    /// Its claim to the bandwidth.
    pub weight: f64,
}

impl Process {
    /// One that begins to run.
    pub fn new(benchmark: &Benchmark, limits: &Limits) -> Process {
        let mut blocks = vec![Block::absent(); benchmark.blocks];
        if benchmark.first == First::Main {
            blocks.iter_mut().for_each(|block| block.allocate(0));
        }
        Process {
            blocks,
            next_scan_ms: limits.first_scan_ms,
            hand: 0,
            passes: 0,
            faults: [0.0; NODES],
            faded_pass: 0,
        }
    }

    /// Marks the next blocks, but those on a congested node. Returns how many.
    pub fn mark(&mut self, policy: &Policy, blocks: usize, is_congested: [bool; NODES]) -> usize {
        let (mut seen, mut marked) = (0, 0);
        for _ in 0..self.blocks.len() {
            if seen == blocks {
                break;
            }
            if self.hand == self.blocks.len() {
                self.hand = 0;
                self.passes += 1;
            }
            let block = &mut self.blocks[self.hand];
            self.hand += 1;
            if !block.is_present {
                continue;
            }
            seen += 1;
            if block.is_marked || (policy.is_limited && is_congested[block.main_node()]) {
                continue;
            }
            block.is_marked = true;
            // A huge page is split by the fault, and its pages then fault by themselves.
            block.is_marked_whole = !block.is_huge
                && match policy.whole {
                    Whole::Clears => true,
                    Whole::Handles => block.only_node().is_some(),
                };
            marked += 1;
        }
        marked
    }
}

impl Thread {
    /// One that begins to run on a node.
    pub fn new(benchmark: &Benchmark, process: usize, number: usize, nid: usize) -> Thread {
        let mut thread = Thread {
            process,
            number,
            nid,
            home: None,
            period_ms: 0.0,
            tried_ms: 0.0,
            placed_pass: 0,
            faults: [0.0; NODES],
            block: 0,
            pass: 0,
            owed_ns: 0.0,
            visit: Visit::default(),
            is_running: true,
        };
        thread.block = thread.range(benchmark).start;
        thread
    }

    /// The blocks that it writes now.
    fn range(&self, benchmark: &Benchmark) -> std::ops::Range<usize> {
        match self.pass < benchmark.whole_passes {
            true => 0..benchmark.blocks,
            false => benchmark.slice(self.number),
        }
    }

    /// Bytes that it writes in a block.
    pub fn block_bytes(&self, benchmark: &Benchmark) -> f64 {
        match self.pass < benchmark.whole_passes {
            true => super::benchmark::BLOCK_BYTES,
            false => benchmark.slice_bytes(self.number),
        }
    }

    /// Whether this is the last time that it writes all.
    pub fn is_in_last_pass(&self, benchmark: &Benchmark) -> bool {
        self.pass + 1 == benchmark.whole_passes + benchmark.slice_passes
    }

    /// It goes to the next block, or ends.
    pub fn go_on(&mut self, benchmark: &Benchmark) {
        self.block += 1;
        if self.block < self.range(benchmark).end {
            return;
        }
        self.is_running = !self.is_in_last_pass(benchmark);
        self.pass += 1;
        self.block = self.range(benchmark).start;
    }
}

/// What is done about a fault on an entry one level up.
pub fn filter_of(policy: &Policy, is_whole: bool) -> Filter {
    match (is_whole, policy.whole) {
        (true, Whole::Clears) => Filter::Stay,
        _ => policy.filter,
    }
}
