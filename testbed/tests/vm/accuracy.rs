//! Each hotness source alone finds a known hot set: a tenth of the pages, among cold ones that are
//! touched once in 20 s. One cell per source and shape of memory; `make accuracy` runs just these
//! and shows the table, which is also written to `out/sources.json`.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::rig::{Daemon, hotset, number};
use crate::{Ctx, Test};

/// Recall and precision that every cell must reach.
const GOOD: f64 = 0.95;

/// Length of a run. Everything cold has been touched by then.
const SECONDS: &str = "22";

/// One row of the table, before it is measured.
pub struct Cell {
    test: Test,
    source: &'static str,
    bit: &'static str,
    shape: &'static str,
    /// What makes `hotset` that shape.
    flags: &'static [&'static str],
}

/// One row of the table.
#[derive(Serialize)]
struct Row {
    source: &'static str,
    kernel: String,
    shape: &'static str,
    /// Share of the hot pages that was promoted.
    recall: f64,
    /// Share of the promoted pages that was hot.
    precision: f64,
    /// Until the recall was good, from the first access; null for never.
    seconds: Option<f64>,
}

const fn cell(
    name: &'static str,
    source: (&'static str, &'static str),
    shape: &'static str,
    flags: &'static [&'static str],
) -> Cell {
    Cell {
        test: Test::new(name, "tiered3", measure),
        source: source.0,
        bit: source.1,
        shape,
        flags,
    }
}

const HINT_FAULT: (&str, &str) = ("hint_fault", "0x1");
const MGLRU: (&str, &str) = ("mglru", "0x10");

const SCATTERED: &[&str] = &[];
const CONTIGUOUS: &[&str] = &["--layout", "contiguous"];
const THP: &[&str] = &["--backing", "thp", "--size-mib", "256"];
const SHARED: &[&str] = &["--backing", "shared"];
/// Loads only: a store to a shared page gives the writer its own, in the top tier.
const FORKS: &[&str] = &["--forks", "4", "--store-percent", "0"];

/// Every cell. A shape that a source cannot see is missing here and explained in its README.
const CELLS: &[Cell] = &[
    cell(
        "accuracy_hint_fault_scattered",
        HINT_FAULT,
        "anon 4K scattered",
        SCATTERED,
    ),
    cell(
        "accuracy_hint_fault_contiguous",
        HINT_FAULT,
        "anon 4K contiguous",
        CONTIGUOUS,
    ),
    cell("accuracy_hint_fault_thp", HINT_FAULT, "THP", THP),
    cell(
        "accuracy_mglru_scattered",
        MGLRU,
        "anon 4K scattered",
        SCATTERED,
    ),
    cell(
        "accuracy_mglru_contiguous",
        MGLRU,
        "anon 4K contiguous",
        CONTIGUOUS,
    ),
    cell("accuracy_mglru_thp", MGLRU, "THP", THP),
    cell("accuracy_mglru_shared", MGLRU, "shared tmpfs", SHARED),
    cell("accuracy_mglru_forks", MGLRU, "forked", FORKS),
];

/// The cells as tests.
pub fn tests() -> impl Iterator<Item = &'static Test> {
    CELLS.iter().map(|cell| &cell.test)
}

static ROWS: Mutex<Vec<Row>> = Mutex::new(Vec::new());

fn measure(ctx: &mut Ctx) -> Result<()> {
    let cell = CELLS.iter().find(|cell| cell.test.name == ctx.test);
    let cell = cell.expect("only cells are run by this");
    let daemon = Daemon::start(&ctx.vm, &["--enabled-sources", cell.bit])?;
    let mut flags = vec!["--hot-percent", "10", "--cold-sweep-seconds", "20"];
    flags.extend(["--seconds", SECONDS, "--report-ms", "1000"]);
    if !cell.flags.contains(&"--size-mib") {
        flags.extend(["--size-mib", "128"]);
    }
    flags.extend(cell.flags);
    let run = hotset(&ctx.vm, &flags)?;
    let status = daemon.status()?;
    let row = Row {
        source: cell.source,
        kernel: ctx.kernel.name.clone(),
        shape: cell.shape,
        recall: number(&run, "/recall")?,
        precision: run["precision"].as_f64().unwrap_or(0.0),
        seconds: run["t95_s"].as_f64(),
    };
    let is_good = row.recall >= GOOD && row.precision >= GOOD;
    let said = format!("recall {:.3}, precision {:.3}", row.recall, row.precision);
    ROWS.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(row);
    ensure!(is_good, "{said}: {run}\n{status:#}");
    daemon.stop()?;
    Ok(())
}

/// Shows and writes the table, if any of it was measured.
pub fn publish(root: &Path) -> Result<()> {
    let mut rows = ROWS.lock().unwrap_or_else(PoisonError::into_inner);
    if rows.is_empty() {
        return Ok(());
    }
    rows.sort_by(|a, b| (a.source, a.shape, &a.kernel).cmp(&(b.source, b.shape, &b.kernel)));
    println!(
        "{:<12} {:<20} {:<6} {:>7} {:>9} {:>8}",
        "source", "shape", "kernel", "recall", "precision", "seconds"
    );
    for row in rows.iter() {
        let seconds = row.seconds.map_or("never".into(), |s| format!("{s:.1}"));
        println!(
            "{:<12} {:<20} {:<6} {:>7.3} {:>9.3} {:>8}",
            row.source, row.shape, row.kernel, row.recall, row.precision, seconds
        );
    }
    let out = root.join("out");
    fs::create_dir_all(&out)?;
    let path = out.join("sources.json");
    fs::write(&path, serde_json::to_string_pretty(&*rows)? + "\n")?;
    println!("all values: {}", path.display());
    Ok(())
}
