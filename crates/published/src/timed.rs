//! Times of benchmarks on stock and patched kernels, and what was counted beside them.

use std::collections::BTreeMap;

use serde::Deserialize;

/// All of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Times {
    /// Runs of benchmarks.
    pub timed: Vec<Timed>,
    /// Pages promoted over time.
    pub curve: Vec<Curve>,
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
    /// What the kernels counted over the run, by name: the stock one, then the patched one.
    #[serde(default)]
    pub counters: BTreeMap<String, [f64; 2]>,
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

impl Times {
    /// Reads the file, which is part of the program.
    pub fn load() -> Times {
        crate::parse("timed.toml", include_str!("../figures/timed.toml"))
    }

    /// How far two runs of the same differed at most, of the workloads that are like ours. Where
    /// nothing is known of the noise, it is taken for as much.
    pub fn widest_noise(&self) -> f64 {
        let noises = self.timed.iter().filter(|table| table.ours.is_some());
        noises.filter_map(Timed::noise).fold(0.0, f64::max)
    }

    /// One figure, by the name of its table, its row and its column. Rows are systems, counters, or
    /// the times of a curve ("32 s"); columns are `base` and `patched`, of systems `base_pages`
    /// and `patched_pages` too.
    pub fn figure(&self, table: &str, row: &str, column: &str) -> Option<f64> {
        if let Some(curve) = self.curve.iter().find(|curve| curve.name == table) {
            return curve.figure(row, column);
        }
        let table = self.timed.iter().find(|timed| timed.name == table)?;
        if let Some([base, patched]) = table.counters.get(row) {
            return match column {
                "base" => Some(*base),
                "patched" => Some(*patched),
                _ => None,
            };
        }
        let row = table.rows.iter().find(|found| found.system == row)?;
        match column {
            "base" => row.base,
            "patched" => row.patched,
            "base_pages" => row.base_pages.map(|pages| pages as f64),
            "patched_pages" => row.patched_pages.map(|pages| pages as f64),
            _ => None,
        }
    }
}

impl Curve {
    fn figure(&self, row: &str, column: &str) -> Option<f64> {
        let time_s: u64 = row.strip_suffix(" s")?.parse().ok()?;
        let place = self.times_s.iter().position(|time| *time == time_s)?;
        let pages = match column {
            "base" => &self.base_pages,
            "patched" => &self.patched_pages,
            _ => return None,
        };
        Some(*pages.get(place)? as f64)
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

    fn published() -> Times {
        Times::load()
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
        for table in &published.timed {
            assert!(
                table
                    .rows
                    .iter()
                    .all(|row| row.base.or(row.patched).is_some())
            );
        }
    }

    #[test]
    fn figures_are_found_by_name() {
        let published = published();
        let figure = |table, row, column| published.figure(table, row, column);
        let pages = figure("v3, huge pages", "pgtscan", "patched_pages");
        assert_eq!(pages, Some(33_032.0));
        let counted = figure("2024, chunks", "numa_hint_faults", "patched");
        assert_eq!(counted, Some(12_080_772.0));
        let promoted = figure("v6, scenario 1, pages promoted", "36 s", "patched");
        assert_eq!(promoted, Some(469_012.0));
        assert_eq!(figure("v3, huge pages", "pgtscan", "base"), None);
        assert_eq!(figure("v9", "NUMAB2", "base"), None);
    }
}
