//! The source's own counters, written by its thread and read by `status`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::kernel::SourceCost;

/// One number.
#[derive(Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    pub fn raise(&self, n: u64) {
        self.0.fetch_max(n, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What `status` shows of the source besides its reports.
#[derive(Default)]
pub(super) struct Counters {
    /// Large enough to be looked at, now.
    pub processes: Counter,
    /// Of those, with pages in the lower tier when they were last looked at.
    pub processes_in_lower_tier: Counter,
    /// Walks that only look where pages are.
    pub looks: Counter,
    /// Clear, wait, read.
    pub scans: Counter,
    /// Present page table entries that were read.
    pub entries_read: Counter,
    /// Lower-tier pages whose accessed bit was set.
    pub young_pages: Counter,
    pub clear_refs: Counter,
    pub madvise_cold: Counter,
    /// The longest times.
    pub clear_refs_us_max: Counter,
    pub madvise_cold_us_max: Counter,
    pub walk_us_max: Counter,
    /// TLB flushes after `clear_refs`: by MADV_COLD, by the promotion of a page, and how often
    /// there was nothing to flush with.
    pub flushes: Counter,
    pub flushes_by_promotion: Counter,
    pub unflushed: Counter,
    pub skipped_opted_out: Counter,
    /// Due, but used no CPU time since it was seen.
    pub skipped_idle: Counter,
    /// The mmap lock was taken.
    pub skipped_busy: Counter,
    /// Ended, or could not be cleared.
    pub gone: Counter,
    bpf_runs: Counter,
    bpf_ns: Counter,
}

impl Counters {
    pub fn note_cost(&self, cost: SourceCost) {
        self.bpf_runs.set(cost.bpf_runs);
        self.bpf_ns.set(cost.bpf_ns);
    }

    pub fn cost(&self) -> SourceCost {
        SourceCost {
            thread_cpu_ns: 0,
            bpf_runs: self.bpf_runs.get(),
            bpf_ns: self.bpf_ns.get(),
        }
    }

    /// By name, with units.
    pub fn details(&self) -> BTreeMap<String, u64> {
        let counters = [
            ("processes", &self.processes),
            ("processes_in_lower_tier", &self.processes_in_lower_tier),
            ("looks", &self.looks),
            ("scans", &self.scans),
            ("entries_read", &self.entries_read),
            ("young_pages", &self.young_pages),
            ("clear_refs", &self.clear_refs),
            ("clear_refs_us_max", &self.clear_refs_us_max),
            ("madvise_cold", &self.madvise_cold),
            ("madvise_cold_us_max", &self.madvise_cold_us_max),
            ("walk_us_max", &self.walk_us_max),
            ("flushes", &self.flushes),
            ("flushes_by_promotion", &self.flushes_by_promotion),
            ("unflushed", &self.unflushed),
            ("skipped_opted_out", &self.skipped_opted_out),
            ("skipped_idle", &self.skipped_idle),
            ("skipped_busy", &self.skipped_busy),
            ("gone", &self.gone),
        ];
        let named = counters.map(|(name, counter)| (name.to_owned(), counter.get()));
        named.into()
    }
}
