//! Processes and their threads: how far they are, and what the kernel remembers of them.

use super::benchmark::{BLOCK_BYTES, Benchmark, First};
use super::machine::{Limits, NODES};
use super::memory::{BLOCK_PAGES, Block, Filter, PIECES, PerNode};
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
    /// What is known of hint faults of all threads.
    pub faults: Counts,
}

/// Hint faults, in the kernel's whole numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counts {
    /// By the node that they count for.
    pub nodes: [f64; NODES],
    /// All. It fades at other times than the numbers of nodes do.
    pub total: f64,
}

impl Counts {
    /// There were some.
    pub fn add(&mut self, counted: PerNode) {
        for (sum, pages) in self.nodes.iter_mut().zip(counted) {
            *sum += f64::from(pages);
            self.total += f64::from(pages);
        }
    }

    /// The numbers of nodes fade.
    pub fn fade_nodes(&mut self) {
        for count in &mut self.nodes {
            *count = (*count / 2.0).floor();
        }
    }

    /// The total does.
    pub fn fade_total(&mut self) {
        self.total = (self.total / 2.0).floor();
    }

    /// Nodes in thousandths of all, rounded down as the kernel does.
    pub fn weights(&self) -> [f64; NODES] {
        self.nodes.map(|count| match self.total > 0.0 {
            true => (1000.0 * count.min(self.total) / self.total).floor(),
            false => 0.0,
        })
    }
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
    /// What is known of its hint faults.
    pub faults: Counts,
    /// The block it writes, or writes next.
    pub block: usize,
    /// Pieces of it that it has written.
    pub pieces: u32,
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
    /// Pieces of the block that it writes.
    pub pieces: u32,
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
            faults: Counts::default(),
        }
    }

    /// Marks the next blocks, but those on a congested node. Returns how many entries that were.
    ///
    /// Entries that are marked already are passed over and not counted, but for those of huge
    /// pages. At the end of the memory the scan ends too. If it came just to the end, the next
    /// one finds nothing but small mappings behind it.
    pub fn mark(&mut self, policy: &Policy, blocks: usize, is_congested: [bool; NODES]) -> f64 {
        let (mut pages, mut entries) = (blocks as f32 * BLOCK_PAGES, 0.0);
        while pages > 0.0 {
            if self.hand == self.blocks.len() {
                self.hand = 0;
                self.passes += 1;
                break;
            }
            let block = &mut self.blocks[self.hand];
            self.hand += 1;
            let is_marked = block.marked_pages() == BLOCK_PAGES;
            let is_left_out = is_marked || (policy.is_limited && is_congested[block.main_node()]);
            if !block.is_present || (is_left_out && !block.is_huge) {
                continue;
            }
            pages -= BLOCK_PAGES;
            if is_left_out {
                continue;
            }
            let (marked, is_on_one_node) = block.mark();
            if block.is_huge {
                entries += 1.0;
                continue;
            }
            pages += BLOCK_PAGES - marked;
            entries += f64::from(marked);
            block.is_whole |= match policy.whole {
                Whole::Clears => true,
                Whole::Handles => is_on_one_node,
            };
        }
        entries
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
            faults: Counts::default(),
            block: 0,
            pieces: 0,
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

    /// Bytes that it writes in its visit.
    pub fn visit_bytes(&self, benchmark: &Benchmark) -> f64 {
        let block = match self.pass < benchmark.whole_passes {
            true => BLOCK_BYTES,
            false => benchmark.slice_bytes(self.number),
        };
        block * f64::from(self.visit.pieces) / f64::from(PIECES)
    }

    /// Whether this is the last time that it writes all.
    pub fn is_in_last_pass(&self, benchmark: &Benchmark) -> bool {
        self.pass + 1 == benchmark.whole_passes + benchmark.slice_passes
    }

    /// It goes to the next block, or ends.
    pub fn go_on(&mut self, benchmark: &Benchmark) {
        self.block += 1;
        self.pieces = 0;
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
