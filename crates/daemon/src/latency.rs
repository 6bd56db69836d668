//! Measures how long pages waited from becoming ready to being moved.

use std::collections::HashMap;

use hdrhistogram::Histogram;
use pghot_hotness::Pfn;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Samples that may wait for their move. Sources sample one page in 64, so this covers 16 GiB of
/// pages that are ready at the same time.
const WAITING_MAX: usize = 1 << 16;

/// The longest wait that is told apart, in us.
const LONGEST_US: u64 = 600_000_000;

/// Upper bounds of the counts of waits, in ms; a last count has those beyond.
pub const BOUNDS_MS: [u64; 12] = [
    10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000,
];

/// Waits of sampled pages, in ms.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyReport {
    /// Pages measured.
    pub samples: u64,
    /// Half of them waited no longer.
    pub p50_ms: f64,
    /// 99 of 100 waited no longer.
    pub p99_ms: f64,
    /// The longest wait.
    pub max_ms: f64,
    /// All waits together.
    pub sum_ms: f64,
    /// Waits up to each of [`BOUNDS_MS`] that are longer than the one before, and those beyond.
    pub counts: Vec<u64>,
}

/// Matches "became ready" samples with moves.
pub struct Latency {
    ready_ns: HashMap<Pfn, u64>,
    waits_us: Histogram<u64>,
    sum_us: u64,
    counts: [u64; BOUNDS_MS.len() + 1],
}

impl Latency {
    /// Without samples.
    pub fn new() -> Latency {
        Latency {
            ready_ns: HashMap::new(),
            // Two digits: a percentile is right within 1 %. The bounds are constants that fit.
            waits_us: Histogram::new_with_bounds(1, LONGEST_US, 2)
                .expect("constant bounds are valid"),
            sum_us: 0,
            counts: [0; BOUNDS_MS.len() + 1],
        }
    }

    /// A sampled page became ready.
    pub fn ready(&mut self, pfn: Pfn, when_ns: u64) {
        if self.ready_ns.len() >= WAITING_MAX && !self.ready_ns.contains_key(&pfn) {
            // Pages that went cold leave their samples behind. What is oldest goes.
            let newest_ns = self.ready_ns.values().max().copied().unwrap_or(0);
            let oldest_ns = self.ready_ns.values().min().copied().unwrap_or(0);
            let middle_ns = oldest_ns + (newest_ns - oldest_ns) / 2;
            self.ready_ns.retain(|_, when_ns| *when_ns > middle_ns);
        }
        self.ready_ns.insert(pfn, when_ns);
    }

    /// A page was moved; it counts if it was sampled.
    pub fn moved(&mut self, pfn: Pfn, when_ns: u64) {
        // A sample younger than the move belongs to the PFN's next owner.
        if let Some(&ready_ns) = self.ready_ns.get(&pfn)
            && ready_ns <= when_ns
        {
            self.ready_ns.remove(&pfn);
            let wait_us = (when_ns - ready_ns) / 1000;
            self.waits_us.saturating_record(wait_us);
            self.sum_us = self.sum_us.saturating_add(wait_us);
            self.counts[BOUNDS_MS.partition_point(|bound| bound * 1000 < wait_us)] += 1;
        }
    }

    /// All waits so far.
    pub fn report(&self) -> LatencyReport {
        let ms = |us: u64| us as f64 / 1000.0;
        LatencyReport {
            samples: self.waits_us.len(),
            p50_ms: ms(self.waits_us.value_at_quantile(0.5)),
            p99_ms: ms(self.waits_us.value_at_quantile(0.99)),
            max_ms: ms(self.waits_us.max()),
            sum_ms: ms(self.sum_us),
            counts: self.counts.to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_measured_for_sampled_pages_only() {
        let mut latency = Latency::new();
        assert_eq!(latency.report().samples, 0);
        for pfn in 0..100 {
            latency.ready(pfn, 1_000_000);
            latency.moved(pfn, 1_000_000 + (pfn + 1) * 1_000_000);
        }
        latency.moved(1000, 5);
        latency.moved(1, 9_000_000);
        let report = latency.report();
        assert_eq!(report.samples, 100);
        assert!((report.p50_ms - 50.0).abs() < 1.0, "{report:?}");
        assert!((report.p99_ms - 99.0).abs() < 1.0, "{report:?}");
        assert!((report.max_ms - 100.0).abs() < 1.5, "{report:?}");
        assert_eq!(report.sum_ms, 5050.0);
        assert_eq!(report.counts[..5], [10, 15, 25, 50, 0]);
    }

    #[test]
    fn a_sample_after_the_move_waits_for_the_next() {
        let mut latency = Latency::new();
        latency.ready(7, 2_000_000);
        latency.moved(7, 1_000_000);
        assert_eq!(latency.report().samples, 0);
        latency.moved(7, 3_000_000);
        assert_eq!(latency.report().samples, 1);
    }

    #[test]
    fn memory_is_bounded_and_the_newest_samples_stay() {
        let mut latency = Latency::new();
        for pfn in 0..3 * WAITING_MAX as u64 {
            latency.ready(pfn, pfn);
        }
        assert!(latency.ready_ns.len() <= WAITING_MAX);
        let last = 3 * WAITING_MAX as u64 - 1;
        latency.moved(last, last);
        assert_eq!(latency.report().samples, 1);
        // All at one moment: room is made for the new one.
        for pfn in 0..2 * WAITING_MAX as u64 {
            latency.ready(pfn, 1 << 40);
        }
        assert!(latency.ready_ns.len() <= WAITING_MAX);
    }
}
