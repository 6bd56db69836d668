//! Automatic NUMA Balancing V3 of 2012: autonumabench, and what SPECjbb counted, under six kernels.

use serde::Deserialize;

/// The published figures. Where nothing else is said a row is by policy.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Autonuma {
    /// Where they were published.
    pub source: String,
    /// The kernels; the first is what the others are compared with.
    pub policies: Vec<String>,
    /// The benchmarks of autonumabench.
    pub tests: Vec<String>,
    /// Elapsed time of each test, in s.
    pub elapsed_s: Vec<Vec<f64>>,
    /// How much less that is than with the first kernel, as printed.
    pub gain_percent: Vec<Vec<f64>>,
    /// Time of each test in the kernel, of all threads, in s.
    pub system_s: Vec<Vec<f64>>,
    /// Time of each test in user space, of all threads, in s.
    pub user_s: Vec<Vec<f64>>,
    /// Of all tests together, as are the following.
    pub total_user_s: Vec<f64>,
    /// See [`Autonuma::system_s`].
    pub total_system_s: Vec<f64>,
    /// See [`Autonuma::elapsed_s`].
    pub total_elapsed_s: Vec<f64>,
    /// Entries that were made to fault.
    pub pte_updates: Vec<f64>,
    /// Faults taken.
    pub hint_faults: Vec<f64>,
    /// Of these, on pages of the thread's own node.
    pub hint_local_faults: Vec<f64>,
    /// Pages moved.
    pub pages_migrated: Vec<f64>,
    /// "AutoNUMA cost", as printed, without a unit.
    pub autonuma_cost: Vec<f64>,
    /// The same counters of SPECjbb.
    pub specjbb: Counters,
}

/// Counters of a benchmark, by policy.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counters {
    /// See [`Autonuma::pte_updates`].
    pub pte_updates: Vec<f64>,
    /// See [`Autonuma::hint_faults`].
    pub hint_faults: Vec<f64>,
    /// See [`Autonuma::pages_migrated`].
    pub pages_migrated: Vec<f64>,
    /// See [`Autonuma::autonuma_cost`].
    pub autonuma_cost: Vec<f64>,
}

impl Autonuma {
    /// Reads the file, which is part of the program.
    pub fn load() -> Autonuma {
        crate::parse("autonuma.toml", include_str!("../figures/autonuma.toml"))
    }

    /// Elapsed time of a test under a policy by that under the first one.
    pub fn elapsed_ratio(&self, test: &str, policy: &str) -> Option<f64> {
        let row = self.tests.iter().position(|name| name == test)?;
        let column = self.policies.iter().position(|name| name == policy)?;
        let row = self.elapsed_s.get(row)?;
        Some(row.get(column)? / row.first()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_whole() {
        let figures = Autonuma::load();
        let policies = figures.policies.len();
        for rows in [
            &figures.elapsed_s,
            &figures.gain_percent,
            &figures.system_s,
            &figures.user_s,
        ] {
            assert_eq!(rows.len(), figures.tests.len());
            assert!(rows.iter().all(|row| row.len() == policies));
        }
        for row in [
            &figures.total_user_s,
            &figures.total_system_s,
            &figures.total_elapsed_s,
            &figures.hint_local_faults,
            &figures.specjbb.pte_updates,
        ] {
            assert_eq!(row.len(), policies);
        }
    }

    /// Faults are nearly all of what scanning costs.
    #[test]
    fn the_printed_cost_of_scanning_is_a_sum_of_counters() {
        let figures = Autonuma::load();
        let specjbb = &figures.specjbb;
        for [updates, faults, moves, costs] in [
            [
                &figures.pte_updates,
                &figures.hint_faults,
                &figures.pages_migrated,
                &figures.autonuma_cost,
            ],
            [
                &specjbb.pte_updates,
                &specjbb.hint_faults,
                &specjbb.pages_migrated,
                &specjbb.autonuma_cost,
            ],
        ] {
            for policy in 0..figures.policies.len() {
                let cost = 0.005 * faults[policy] + 7e-6 * updates[policy] + 1.9e-5 * moves[policy];
                let off = (cost - costs[policy]).abs();
                assert!(off < 1.5, "{}: {off}", figures.policies[policy]);
            }
        }
    }

    #[test]
    fn printed_gains_follow_from_the_times() {
        let figures = Autonuma::load();
        for (row, printed) in figures.elapsed_s.iter().zip(&figures.gain_percent) {
            for (s, printed) in row.iter().zip(printed) {
                let gain = (1.0 - s / row[0]) * 100.0;
                assert!((gain - printed).abs() < 0.0051, "{s} s: {gain}");
            }
        }
        let ratio = figures.elapsed_ratio("NUMA02", "moron").unwrap();
        assert!((ratio - 77.55 / 181.88).abs() < 1e-12);
        assert_eq!(figures.elapsed_ratio("NUMA03", "moron"), None);
    }
}
