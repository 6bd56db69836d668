//! What runs: the four tests of autonumabench, as in their source, for 48 CPUs.

/// Bytes of a block: a huge page, or all that one page-middle-directory entry maps.
pub const BLOCK_BYTES: f64 = 2.0 * 1024.0 * 1024.0;

/// A test.
#[derive(Debug, Clone, PartialEq)]
pub struct Benchmark {
    /// As in the published tables.
    pub name: &'static str,
    /// Processes that do the same.
    pub processes: usize,
    /// Threads of each.
    pub threads: usize,
    /// Memory of each process, in blocks.
    pub blocks: usize,
    /// Who touches the memory first.
    pub first: First,
    /// How often each thread writes all of it.
    pub whole_passes: u32,
    /// How often it then writes its own slice.
    pub slice_passes: u32,
}

/// Who touches memory first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First {
    /// Whichever thread comes first.
    Threads,
    /// The main thread, before there are others: on the first node.
    Main,
}

/// The tests.
pub const BENCHMARKS: [Benchmark; 4] = [
    // Adverse: each process spans nodes, and all threads write all pages.
    Benchmark {
        name: "NUMA01",
        processes: 2,
        threads: 24,
        blocks: 1536,
        first: First::Threads,
        whole_passes: 51,
        slice_passes: 0,
    },
    Benchmark {
        name: "NUMA01_THREADLOCAL",
        processes: 2,
        threads: 24,
        blocks: 1536,
        first: First::Threads,
        whole_passes: 1,
        slice_passes: 1000,
    },
    Benchmark {
        name: "NUMA02",
        processes: 1,
        threads: 48,
        blocks: 512,
        first: First::Main,
        whole_passes: 0,
        slice_passes: 800,
    },
    // A stored version of the source writes a quarter of the buffer only. With that, 24 threads
    // would have got a quarter of the rate of 48; with all of it, they get the same.
    Benchmark {
        name: "NUMA02_SMT",
        processes: 1,
        threads: 24,
        blocks: 512,
        first: First::Main,
        whole_passes: 0,
        slice_passes: 800,
    },
];

impl Benchmark {
    /// The blocks of a thread's slice. A block on the border of two slices counts to one of them.
    pub fn slice(&self, thread: usize) -> std::ops::Range<usize> {
        let at = |thread: usize| thread * self.blocks / self.threads;
        at(thread)..at(thread + 1)
    }

    /// Bytes that a thread writes in a block of its slice, such that all slices are equally long.
    pub fn slice_bytes(&self, thread: usize) -> f64 {
        let blocks = self.slice(thread).len() as f64;
        BLOCK_BYTES * self.blocks as f64 / self.threads as f64 / blocks
    }

    /// Bytes that all threads of all processes write.
    pub fn bytes(&self) -> f64 {
        let passes = self.whole_passes as f64 * self.threads as f64 + f64::from(self.slice_passes);
        passes * (self.blocks * self.processes) as f64 * BLOCK_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_cover_all_and_are_equally_long() {
        for benchmark in BENCHMARKS {
            let slices = (0..benchmark.threads).map(|thread| benchmark.slice(thread));
            let blocks: Vec<usize> = slices.flatten().collect();
            assert_eq!(blocks, (0..benchmark.blocks).collect::<Vec<_>>());
            let bytes = (0..benchmark.threads)
                .map(|thread| benchmark.slice_bytes(thread) * benchmark.slice(thread).len() as f64);
            let all: f64 = bytes.sum();
            assert!((all / (benchmark.blocks as f64 * BLOCK_BYTES) - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn tests_write_what_their_source_says() {
        let gib = |number: usize| BENCHMARKS[number].bytes() / f64::from(1 << 30);
        assert_eq!(gib(0), 51.0 * 48.0 * 3.0);
        assert_eq!(gib(1), 48.0 * 3.0 + 1000.0 * 6.0);
        assert_eq!((gib(2), gib(3)), (800.0, 800.0));
    }
}
