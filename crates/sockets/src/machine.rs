//! The machine: nodes, what they give, and what the kernel's work costs.
//!
//! The publication does not name it. From its own figures: 4 nodes (SPECjbb's total is 4 times the
//! mean of one JVM per node) with 12 CPUs each (its expected peak is at 12 warehouses, and 45.3
//! CPUs' worth of time is used at most).

/// Nodes that a block can tell apart.
pub const NODES: usize = 4;

/// A machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// Nodes, at most [`NODES`].
    pub nodes: usize,
    /// CPUs of each.
    pub cpus: u32,
    /// Bytes that programs can write to one node's memory in a second, wherever they run.
    pub node_bytes_per_s: f64,
    /// Threads of a node that it takes to use all of its bandwidth.
    pub saturating_threads: f64,
    /// A remote access takes so many times as long as a local one. Of a crowded node's bandwidth,
    /// a remote thread gets that much less than a local one.
    pub remote_ratio: f64,
    /// How often the scheduler swaps two threads of different nodes, for reasons that have nothing
    /// to do with memory, per second.
    pub strays_per_s: f64,
    /// What the kernel's work costs.
    pub costs: Costs,
    /// Of marking and migrating.
    pub limits: Limits,
}

/// What the kernel's work costs; base pages.
#[derive(Debug, Clone, PartialEq)]
pub struct Costs {
    /// To mark an entry.
    pub mark_ns: f64,
    /// A hint fault, without flushing TLBs.
    pub fault_ns: f64,
    /// TLB flushes of a hint fault.
    pub flush_ns: f64,
    /// To migrate a page, for the thread that does.
    pub migrate_ns: f64,
    /// And for the other threads of its process together: their CPUs are interrupted to flush
    /// TLBs.
    pub interrupts_ns: f64,
    /// System time that has nothing to do with balancing, as a share of user time: ticks.
    pub ticks: f64,
    /// To zero a new huge page.
    pub zero_ns: f64,
    /// Threads that touch a huge page first at the same time zero one each, and all but one are
    /// thrown away: so many per thread of the process.
    pub zeroed_per_racer: f64,
}

/// The kernel's settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Shortest time between two scans of a process; also the first.
    pub period_min_ms: f64,
    /// Longest.
    pub period_max_ms: f64,
    /// A process is not scanned before.
    pub first_scan_ms: f64,
    /// What one scan goes through, in blocks.
    pub scan_blocks: usize,
    /// By how much a hint fault lengthens the period, if it does.
    pub back_off_ms: f64,
    /// Pages that may come to a node in a window.
    pub window_pages: f64,
    /// How long a window is.
    pub window_ms: f64,
    /// For how long pages of a node are not marked after a window in which too many came.
    pub no_mark_ms: f64,
}

impl Default for Machine {
    fn default() -> Machine {
        Machine {
            nodes: NODES,
            cpus: 12,
            // Calibration: the four tests without balancing wrote 4.4 to 4.9 GiB/s, whether 24 or
            // 48 threads or one or two processes did. So what was measured is one
            // node's memory.
            node_bytes_per_s: 4.8 * (1u64 << 30) as f64,
            saturating_threads: 4.0,
            // Calibration: how unequally threads end without balancing.
            remote_ratio: 2.2,
            // Calibration, but loosely: a thread strays every four minutes. If that happened twice
            // as often, the first pass over the memory would spread it, and tests
            // without balancing would be faster than they were.
            strays_per_s: 0.1,
            costs: Costs::default(),
            limits: Limits::default(),
        }
    }
}

impl Default for Costs {
    fn default() -> Costs {
        Costs {
            // Calibration on two cells, the totals of system time of moron and twostage over the
            // published counts: 0.62 µs per page marked and faulted, 236 µs per page migrated. How
            // the 0.62 µs are divided is a guess. How the 236 µs are is calibrated on
            // the same two cells: the less the thread itself is held up, the more pages
            // move with twostage, and the larger is its total. The author says that a
            // very large part is flushes of TLBs, which all CPUs pay where the process
            // runs.
            mark_ns: 100.0,
            fault_ns: 320.0,
            flush_ns: 200.0,
            migrate_ns: 47_200.0,
            interrupts_ns: 188_600.0,
            // Calibration on the system time of the four tests without balancing.
            ticks: 1.93e-4,
            zero_ns: 656_000.0,
            zeroed_per_racer: 0.65,
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            period_min_ms: 100.0,
            period_max_ms: 1600.0,
            first_scan_ms: 1000.0,
            scan_blocks: 128,
            // Two ticks, of 4 ms.
            back_off_ms: 8.0,
            window_pages: 32_768.0,
            window_ms: 100.0,
            no_mark_ms: 1000.0,
        }
    }
}
