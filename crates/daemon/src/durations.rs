//! How long passes and batches took, counted by size.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Upper bounds of the counts, in us; a last count has those beyond.
pub const BOUNDS_US: [u64; 15] = [
    100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 10_000_000,
];

/// Durations of one kind since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Durations {
    /// All together, in us.
    pub sum_us: u64,
    /// Those up to each of [`BOUNDS_US`] that are longer than the one before, and those beyond.
    pub counts: [u64; BOUNDS_US.len() + 1],
}

impl Durations {
    /// Counts one.
    pub fn add(&mut self, ns: u64) {
        let us = ns / 1000;
        self.sum_us += us;
        self.counts[BOUNDS_US.partition_point(|bound| *bound < us)] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_what_is_below_it() {
        let mut durations = Durations::default();
        for us in [0, 100, 101, 10_000_000, 10_000_001] {
            durations.add(us * 1000);
        }
        assert_eq!(durations.counts[..3], [2, 1, 0]);
        assert_eq!(durations.counts[14..], [1, 1]);
        assert_eq!(durations.sum_us, 20_000_202);
    }
}
