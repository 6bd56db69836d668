//! The results as files: everything as JSON, a row a line as CSV, one HTML page to look at.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use pghot_workloads::spread::Spread;
use serde::Serialize;

use crate::cell::Outcome;
use crate::kernel_tables::KernelTables;
use crate::measures::{self, MEASURES, Measure};
use crate::report::published::Comparison;
use crate::score::Costs;
use crate::setting::Setting;
use crate::summary::{Group, Line};

pub mod accuracy;
pub mod advice;
mod compare;
pub mod demo;
pub mod docs;
mod figure;
mod kernel;
pub mod published;
mod results;

/// All that is written.
#[derive(Debug, Serialize)]
pub struct Results<'a> {
    /// The version of pghot.
    pub version: &'static str,
    /// The machine of all cells.
    pub machine: &'a str,
    /// The emulator.
    pub emulator: &'a str,
    /// What was taken for what things cost.
    pub costs: &'a Costs,
    /// Each workload.
    pub groups: &'a [Group],
    /// What others published, beside it.
    pub published: &'a [Comparison],
    /// What the kernel does without any system.
    pub kernel_tables: &'a [KernelTables],
    /// What was run, with the kernel's release and the time that it took on the host.
    pub cells: Vec<Cell<'a>>,
    /// What failed, and what was left out because this host lacks it.
    pub failures: &'a [Failure],
}

/// A cell that was run.
#[derive(Debug, Serialize)]
pub struct Cell<'a> {
    #[serde(flatten)]
    setting: &'a Setting,
    release: &'a str,
    wall_s: f64,
    measures: std::collections::BTreeMap<&'static str, f64>,
}

/// A cell that failed.
#[derive(Debug, Clone, Serialize)]
pub struct Failure {
    /// Which.
    pub cell: String,
    /// Why, in a sentence.
    pub why: String,
}

impl<'a> Cell<'a> {
    /// Of what came of it.
    pub fn new(outcome: &'a Outcome) -> Cell<'a> {
        Cell {
            setting: &outcome.setting,
            release: &outcome.release,
            wall_s: outcome.wall_s,
            measures: crate::measures::of_group(outcome, std::slice::from_ref(outcome)),
        }
    }
}

/// Writes `bench.json`, `bench.csv` and `bench.html`.
pub fn write(folder: &Path, results: &Results<'_>, outcomes: &[Outcome]) -> Result<()> {
    for (name, content) in [
        ("bench.json", serde_json::to_vec_pretty(results)?),
        ("bench.csv", csv(results.groups)?),
        ("bench.html", compare::page(results, outcomes).into_bytes()),
    ] {
        let path = folder.join(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// A row for each system at each workload: median, smallest and largest of each measure.
fn csv(groups: &[Group]) -> Result<Vec<u8>> {
    let mut rows = csv::Writer::from_writer(Vec::new());
    let columns = ["kernel", "workload", "backing", "system", "runs"].map(str::to_owned);
    let measures = MEASURES
        .iter()
        .flat_map(|Measure { name, .. }| ["", "_min", "_max"].map(|of| format!("{name}{of}")));
    rows.write_record(columns.into_iter().chain(measures))?;
    for group in groups {
        for line in &group.lines {
            let names = [&group.kernel, &group.workload, &group.backing, &line.system];
            let spreads = MEASURES.iter().flat_map(|Measure { name, .. }| {
                let spread = line.get(name);
                let numbers = spread.map(|spread| [spread.median, spread.min, spread.max]);
                numbers.map_or_else(Default::default, |numbers| numbers.map(|n| n.to_string()))
            });
            let runs = std::iter::once(line.runs.to_string());
            rows.write_record(names.into_iter().cloned().chain(runs).chain(spreads))?;
        }
    }
    Ok(rows.into_inner()?)
}

/// The same in short, for a terminal.
pub fn table(groups: &[Group]) -> String {
    const HEAD: [&str; 7] = [
        "  system",
        "time, s",
        "min..max",
        "near",
        "promoted",
        "demoted",
        "ping-pong",
    ];
    let mut text = String::new();
    for group in groups {
        let Group {
            kernel,
            workload,
            backing,
            verdict,
            ..
        } = group;
        let _ = writeln!(text, "\n{workload} ({backing}, kernel {kernel}): {verdict}");
        let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
        rows.extend(group.lines.iter().map(row));
        rows.push(vec![
            "  oracle".to_owned(),
            format!("{:.4}", group.oracle_s),
        ]);
        rows.extend(
            group
                .foresight_s
                .map(|foresight_s| vec!["  foresight".to_owned(), format!("{foresight_s:.4}")]),
        );
        text += &text_table(&rows);
    }
    text
}

fn row(line: &Line) -> Vec<String> {
    let number = |name| {
        let shown = measures::find(name).zip(line.get(name));
        shown.map_or("-".to_owned(), |(measure, spread)| {
            measure.bare(spread.median)
        })
    };
    let Spread { median, min, max } = line.total_s;
    vec![
        format!("  {}", line.system),
        format!("{median:.4}"),
        format!("{min:.4}..{max:.4}"),
        number("near_share"),
        number("promoted_pages"),
        number("demoted_pages"),
        number("returned_pages"),
    ]
}

/// Rows with their columns below each other: the first and ranges begin in one line, numbers end in
/// one.
fn text_table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let padding = " ".repeat(widths[column] - cell.chars().count());
            let is_range = cell.starts_with('(') || cell.contains("..");
            line += &match column {
                0 => format!("{cell}{padding}"),
                _ if is_range => format!(" {cell}{padding}"),
                _ => format!("   {padding}{cell}"),
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::summarize;
    use crate::testing::outcome;

    #[test]
    fn every_format_has_every_line() {
        let mut runs = vec![outcome("promote", "none"), outcome("promote", "pghot")];
        runs[1].witness.slices = vec![crate::testing::slice(1, 5, 5)];
        let costs = Costs::stated();
        let groups = summarize(&runs, &costs);
        let failure = Failure {
            cell: "promote-damon".into(),
            why: "<no DAMON>".into(),
        };
        let results = Results {
            version: "1",
            machine: "bench",
            emulator: "QEMU",
            costs: &costs,
            groups: &groups,
            published: &published::compare(&groups),
            kernel_tables: &[],
            cells: runs.iter().map(Cell::new).collect(),
            failures: &[failure],
        };
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &results, &runs).unwrap();
        let read = |name| fs::read_to_string(folder.path().join(name)).unwrap();
        let csv = read("bench.csv");
        let columns = |line: &str| line.split(',').count();
        assert_eq!(csv.lines().count(), 3);
        let mut lines = csv.lines();
        let header = columns(lines.next().unwrap());
        assert!(lines.all(|line| columns(line) == header), "{csv}");
        let json: serde_json::Value = serde_json::from_str(&read("bench.json")).unwrap();
        assert_eq!(json["groups"][0]["lines"][1]["system"], "pghot");
        assert_eq!(json["cells"][1]["release"], "7.2");
        let html = read("bench.html");
        assert!(html.contains("&lt;no DAMON&gt;"));
        assert_eq!(pghot_page::faults::of(&html), [""; 0]);
        assert!(table(&groups).contains("pghot"));
        let nowhere = write(Path::new("/proc/nowhere"), &results, &runs).unwrap_err();
        assert!(
            nowhere
                .to_string()
                .contains("cannot write /proc/nowhere/bench.json")
        );
    }
}
