//! What others published about moving hot pages, as data: `published.toml`, which says where each
//! figure is from and what is known of its noise.

use serde::Deserialize;

/// All of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Runs of benchmarks.
    pub timed: Vec<Timed>,
    /// Pages promoted over time.
    pub curve: Vec<Curve>,
    /// Throughput of `move_pages(2)`.
    pub migration: Vec<Migration>,
    /// Scanning for accesses and its price.
    pub scanning: Vec<Scanning>,
}

/// A benchmark on a stock kernel and a patched one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timed {
    /// Version and scenario.
    pub name: String,
    /// Where it was published.
    pub source: String,
    /// What it ran on.
    pub machine: String,
    /// What was run.
    pub what: String,
    /// Of the figures.
    pub unit: String,
    /// Whether more is better.
    #[serde(default)]
    pub is_rate: bool,
    /// Runs that each figure is the mean of, if that is known.
    pub runs: Option<u32>,
    /// What is known of its noise.
    pub noise: String,
    /// Which workload of ours is most like it.
    pub ours: Option<Ours>,
    /// The figures.
    pub rows: Vec<Row>,
}

/// A workload of `load`.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ours {
    /// Its name.
    pub workload: String,
    /// The kinds of memory that are like the published one.
    pub backings: Vec<String>,
}

/// A system on both kernels, or on one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// What found the hot pages: NUMAB0 is nothing, NUMAB2 are hint faults.
    pub system: String,
    /// On the stock kernel.
    pub base: Option<f64>,
    /// On the patched one.
    pub patched: Option<f64>,
    /// The change of `patched` as it was printed.
    pub percent: Option<f64>,
    /// The row to whose `base` the change is.
    pub percent_of: Option<String>,
    /// Pages moved on the stock kernel.
    pub base_pages: Option<u64>,
    /// Pages moved on the patched one.
    pub patched_pages: Option<u64>,
    /// Whether both kernels do the same here, so that the difference is noise.
    #[serde(default)]
    pub same: bool,
}

/// Pages promoted until a time.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curve {
    /// What was run.
    pub name: String,
    /// Where it was published.
    pub source: String,
    /// What is known of its noise.
    pub noise: String,
    /// From the start of the run.
    pub times_s: Vec<u64>,
    /// On the stock kernel.
    pub base_pages: Vec<u64>,
    /// On the patched one.
    pub patched_pages: Vec<u64>,
}

/// Pages moved by `move_pages(2)`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Migration {
    /// What was varied.
    pub name: String,
    /// Where it was published.
    pub source: String,
    /// What it ran on.
    pub machine: String,
    /// What is known of its noise.
    pub noise: String,
    /// Sizes or numbers, as the name says.
    pub columns: Vec<String>,
    /// The figures.
    pub rows: Vec<Moved>,
}

/// A row of a migration table; may end before the last column.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moved {
    /// Who copied what.
    pub row: String,
    /// Throughput.
    #[serde(rename = "GB_s")]
    pub gb_s: Vec<f64>,
    /// Spread of the throughput, as published.
    #[serde(default)]
    pub plus_minus: Vec<f64>,
    /// Time until the first folio of a batch can be accessed again.
    #[serde(default)]
    pub first_us: Vec<u64>,
}

/// autonumabench of 2012 on several kernels.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scanning {
    /// What was measured.
    pub name: String,
    /// Where it was published.
    pub source: String,
    /// What it ran on.
    pub machine: String,
    /// What is known of its noise.
    pub noise: String,
    /// The kernels; the first is what the others are compared with.
    pub kernels: Vec<String>,
    /// Elapsed time by test.
    pub elapsed: Vec<Elapsed>,
    /// What kernels counted.
    pub counted: Vec<Counted>,
}

/// A test on each kernel.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Elapsed {
    /// Its name.
    pub test: String,
    /// By kernel, in seconds.
    pub s: Vec<f64>,
    /// As it was printed: how much less than the first kernel.
    pub gain_percent: Vec<f64>,
}

/// Counters of a kernel over all of a benchmark.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counted {
    /// The kernel.
    pub kernel: String,
    /// The benchmark.
    pub test: String,
    /// Entries made to fault.
    pub pte_updates: u64,
    /// Faults taken.
    pub hint_faults: u64,
    /// Pages moved.
    pub pages_migrated: u64,
    /// "AutoNUMA cost", as printed.
    pub cost: u64,
}

impl Published {
    /// Reads the file, which is part of the program.
    pub fn load() -> Result<Published, toml::de::Error> {
        toml::from_str(include_str!("../published.toml"))
    }

    /// How far two runs of the same differed at most, of the workloads that are like ours. Where
    /// nothing is known of the noise, it is taken for as much.
    pub fn widest_noise(&self) -> f64 {
        let noises = self.timed.iter().filter(|table| table.ours.is_some());
        noises.filter_map(Timed::noise).fold(0.0, f64::max)
    }
}

impl Timed {
    /// A figure of the stock kernel.
    pub fn base(&self, system: &str) -> Option<f64> {
        self.rows.iter().find(|row| row.system == system)?.base
    }

    /// How far two runs of the same differed: a share.
    pub fn noise(&self) -> Option<f64> {
        let same = self.rows.iter().find(|row| row.same)?;
        Some((same.patched? / same.base? - 1.0).abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published() -> Published {
        Published::load().unwrap()
    }

    /// The slides cut digits off instead of rounding.
    #[test]
    fn printed_changes_follow_from_the_times() {
        let published = published();
        let mut checked = 0;
        for table in &published.timed {
            for row in &table.rows {
                let Some(printed) = row.percent else { continue };
                let base = table.base(row.percent_of.as_deref().unwrap()).unwrap();
                let change = (row.patched.unwrap() / base - 1.0) * 100.0;
                let digits = if table.name.starts_with("2024") {
                    100.0
                } else {
                    10.0
                };
                let cut = (change * digits).trunc() / digits;
                assert!((cut - printed).abs() < 1e-9, "{}: {change}", table.name);
                checked += 1;
            }
        }
        assert_eq!(checked, 13);
    }

    #[test]
    fn patched_kernels_that_do_nothing_else_differ_as_much_as_they_gain() {
        let published = published();
        let of = |version: &str| -> Vec<f64> {
            let tables = published
                .timed
                .iter()
                .filter(|t| t.name.starts_with(version));
            tables
                .filter_map(Timed::noise)
                .map(|n| (n * 1000.0).round() / 10.0)
                .collect()
        };
        assert_eq!(of("v6"), [1.4, 3.7, 2.6, 1.1]);
        assert_eq!(
            of("v4"),
            [2.3, 2.9, 3.9, 23.6],
            "the last without any explanation"
        );
        assert_eq!(of("v3"), [1.8, 3.2, 1.3]);
        assert_eq!((published.widest_noise() * 1000.0).round(), 39.0);
    }

    #[test]
    fn known_ratios_come_out() {
        let published = published();
        let change = |name: &str| {
            let table = published
                .timed
                .iter()
                .find(|table| table.name == name)
                .unwrap();
            let row = table
                .rows
                .iter()
                .find(|row| row.system == "NUMAB2")
                .unwrap();
            ((row.patched.unwrap() / row.base.unwrap() - 1.0) * 1000.0).round() / 10.0
        };
        assert_eq!(change("v6, scenario 1, default mode"), -1.4);
        assert_eq!(change("v6, scenario 1, precise mode"), -1.9);
        assert_eq!(change("v6, scenario 2, default mode"), -2.7);
        assert_eq!(change("v6, scenario 2, precise mode"), -4.6);
        assert_eq!(change("v3, anonymous memory"), 4.6);
        assert_eq!(change("v3, mapped file"), 19.8);
        assert_eq!(change("v3, huge pages"), 4.7);
        assert_eq!(change("v7, Graph500, TEPS"), 15.2);
    }

    /// Faults are nearly all of what scanning costs.
    #[test]
    fn the_printed_cost_of_scanning_is_a_sum_of_counters() {
        for counted in published().scanning.iter().flat_map(|table| &table.counted) {
            let cost = 0.005 * counted.hint_faults as f64
                + 7e-6 * counted.pte_updates as f64
                + 1.9e-5 * counted.pages_migrated as f64;
            let off = (cost - counted.cost as f64).abs();
            assert!(off < 1.5, "{} {}: {off}", counted.kernel, counted.test);
        }
    }

    #[test]
    fn printed_gains_of_autonumabench_follow_from_the_times() {
        for table in published().scanning {
            for test in &table.elapsed {
                assert_eq!(test.s.len(), table.kernels.len());
                assert_eq!(test.gain_percent.len(), table.kernels.len());
                for (s, printed) in test.s.iter().zip(&test.gain_percent) {
                    let gain = (1.0 - s / test.s[0]) * 100.0;
                    assert!((gain - printed).abs() < 0.0051, "{}: {gain}", test.test);
                }
            }
        }
    }

    #[test]
    fn tables_are_whole() {
        let published = published();
        for curve in &published.curve {
            let lengths = [curve.base_pages.len(), curve.patched_pages.len()];
            assert_eq!(lengths, [curve.times_s.len(); 2]);
            assert!(curve.base_pages.is_sorted() && curve.patched_pages.is_sorted());
            // 8 GiB, all of it in the end.
            assert_eq!(curve.base_pages.last(), curve.patched_pages.last());
            assert_eq!(curve.base_pages.last(), Some(&(8 << 18)));
        }
        for table in &published.migration {
            for row in &table.rows {
                let cells = row.gb_s.len();
                assert!(cells <= table.columns.len(), "{}", table.name);
                let is_whole = |len: usize| len == 0 || len == cells;
                assert!(is_whole(row.plus_minus.len()) && is_whole(row.first_us.len()));
            }
        }
        for table in &published.timed {
            assert!(
                table
                    .rows
                    .iter()
                    .all(|row| row.base.or(row.patched).is_some())
            );
        }
    }
}
