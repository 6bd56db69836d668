//! Each hotness source alone finds a known hot set: a tenth of the pages, among cold ones that are
//! touched once in 20 s. One cell per source and shape of memory; `make accuracy` runs just these
//! and shows the table, which is also written to `out/sources.json`. In the long form every run
//! goes on until all cold pages have been touched; else it ends when it is decided.

use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::rig::{Daemon, UNHURRIED, finish, go, hold_hotset, number, until_good, until_precise};
use crate::table::{self, Table};
use crate::{Ctx, Test, page_cache};

/// Recall and precision that every cell must reach, but for the precision of hint faults.
const GOOD: f64 = 0.95;

/// What is touched within `quick_fault_ms` of its first mark is taken for hot, and of pages that
/// are swept in 20 s one in 160 is, by chance. There are nine cold pages to a hot one, so that
/// precision is 0.947 at best; of 54 cold huge pages beside 6 hot ones, one may be among them.
const QUICK_GOOD: f64 = 0.9;
const QUICK_GOOD_THP: f64 = 0.85;

/// Length of a run at most. Everything cold has been touched by then.
const SECONDS: &str = "22";

/// A tenth of it is 6 huge pages.
const SIZE_MIB: &str = "128";

/// One row of the table, before it is measured.
pub struct Cell {
    test: Test,
    source: &'static Alone,
    shape: &'static Shape,
}

/// A source that runs alone.
struct Alone {
    name: &'static str,
    bit: &'static str,
    env: &'static [(&'static str, &'static str)],
}

/// A kind of memory.
struct Shape {
    name: &'static str,
    machine: &'static str,
    /// What makes `hotset` that shape; without any it is `pagecache` that reads a file.
    flags: Option<&'static [&'static str]>,
}

/// One row of the table.
#[derive(Debug, Serialize)]
pub struct Row {
    pub source: &'static str,
    pub kernel: String,
    pub shape: &'static str,
    /// Share of the hot pages that was promoted.
    pub recall: f64,
    /// Share of the promoted pages that was hot.
    pub precision: f64,
    /// Until the recall was good, from the first access; null for never.
    pub seconds: Option<f64>,
}

impl Row {
    /// Puts it into the table; fails if it is not good enough. `more` says what is known besides.
    pub fn judge(self, more: &str) -> Result<()> {
        let precision_min = match (self.source, self.shape) {
            ("hint_fault", "THP") => QUICK_GOOD_THP,
            ("hint_fault", _) => QUICK_GOOD,
            _ => GOOD,
        };
        let is_good = self.recall >= GOOD && self.precision >= precision_min;
        let said = format!("{self:?}: {more}");
        let mut rows = ROWS.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |row: &Row| {
            (row.source, row.shape, &row.kernel) == (self.source, self.shape, &self.kernel)
        };
        // Measured again.
        rows.retain(|row| !is_same(row));
        rows.push(self);
        ensure!(is_good, "{said}");
        Ok(())
    }
}

const fn cell(name: &'static str, source: &'static Alone, shape: &'static Shape) -> Cell {
    Cell {
        test: Test::new(name, shape.machine, measure),
        source,
        shape,
    }
}

impl Cell {
    /// The same on each kernel also in the short form.
    const fn each_kernel(self) -> Cell {
        Cell {
            test: self.test.each_kernel(),
            ..self
        }
    }

    /// The same in the long form alone: to its source the shape is like another one.
    const fn long(self) -> Cell {
        Cell {
            test: self.test.long(),
            ..self
        }
    }

    /// The same on one kernel alone, because on others the source is blind there.
    const fn only_on(self, kernel: &'static str) -> Cell {
        Cell {
            test: self.test.only_on(kernel),
            ..self
        }
    }
}

const fn alone(name: &'static str, bit: &'static str) -> Alone {
    Alone {
        name,
        bit,
        env: &[],
    }
}

static HINT_FAULT: Alone = alone("hint_fault", "0x1");
static PGTSCAN: Alone = alone("pgtscan", "0x4");
static PAGE_CACHE: Alone = alone("page_cache", "0x8");
static MGLRU: Alone = alone("mglru", "0x10");
/// As on a kernel that has no function to hook.
static GENERATIONS: Alone = Alone {
    env: &[("PGHOT_MGLRU_HOOK", "none")],
    ..alone("mglru_generations", "0x10")
};

const fn shape(name: &'static str, flags: &'static [&'static str]) -> Shape {
    Shape {
        name,
        machine: "tiered3",
        flags: Some(flags),
    }
}

static SCATTERED: Shape = shape("anon 4K scattered", &[]);
static CONTIGUOUS: Shape = shape("anon 4K contiguous", &["--layout", "contiguous"]);
static THP: Shape = shape("THP", &["--backing", "thp"]);
static SHARED: Shape = shape("shared tmpfs", &["--backing", "shared"]);
/// Loads only: a store to a shared page gives the writer its own, in the top tier.
static FORKS: Shape = shape("forked", &["--forks", "4", "--store-percent", "0"]);
static FILE: Shape = Shape {
    name: "mapped file",
    machine: "tiered3-disk",
    flags: Some(&["--backing", "file", "--dir", page_cache::DIR]),
};
static READ: Shape = Shape {
    name: "unmapped file",
    machine: "tiered3-disk",
    flags: None,
};

/// Every cell. A shape that a source cannot see is missing here and explained in its README.
static CELLS: &[Cell] = &[
    cell("accuracy_hint_fault_scattered", &HINT_FAULT, &SCATTERED).each_kernel(),
    cell("accuracy_hint_fault_contiguous", &HINT_FAULT, &CONTIGUOUS).long(),
    cell("accuracy_hint_fault_thp", &HINT_FAULT, &THP).each_kernel(),
    cell("accuracy_pgtscan_scattered", &PGTSCAN, &SCATTERED).each_kernel(),
    cell("accuracy_pgtscan_contiguous", &PGTSCAN, &CONTIGUOUS).long(),
    cell("accuracy_pgtscan_thp", &PGTSCAN, &THP),
    cell("accuracy_pgtscan_shared", &PGTSCAN, &SHARED),
    cell("accuracy_pgtscan_forks", &PGTSCAN, &FORKS).long(),
    cell("accuracy_pgtscan_file", &PGTSCAN, &FILE),
    cell("accuracy_page_cache_read", &PAGE_CACHE, &READ).each_kernel(),
    cell("accuracy_mglru_scattered", &MGLRU, &SCATTERED).each_kernel(),
    cell("accuracy_mglru_contiguous", &MGLRU, &CONTIGUOUS).long(),
    cell("accuracy_mglru_thp", &MGLRU, &THP).each_kernel(),
    cell("accuracy_mglru_shared", &MGLRU, &SHARED),
    cell("accuracy_mglru_forks", &MGLRU, &FORKS).long(),
    cell("accuracy_mglru_file", &MGLRU, &FILE).each_kernel(),
    cell("accuracy_generations_scattered", &GENERATIONS, &SCATTERED).each_kernel(),
    cell("accuracy_generations_thp", &GENERATIONS, &THP).only_on("6.12"),
    cell("accuracy_generations_file", &GENERATIONS, &FILE).only_on("6.12"),
];

/// The cells as tests.
pub fn tests() -> impl Iterator<Item = &'static Test> {
    CELLS.iter().map(|cell| &cell.test)
}

static ROWS: Mutex<Vec<Row>> = Mutex::new(Vec::new());

fn measure(ctx: &mut Ctx) -> Result<()> {
    let cell = CELLS.iter().find(|cell| cell.test.name == ctx.test);
    let cell = cell.context("only cells are measured")?;
    let vm = &ctx.vm;
    let needs_disk = cell.shape.machine == "tiered3-disk";
    if needs_disk {
        page_cache::mount_disk(vm)?;
    }
    // The emulator clears accessed bits some thirty times slower than a machine does.
    let start = [
        "--enabled-sources",
        cell.source.bit,
        "--scan-stall-max-ms",
        "300",
    ];
    let mut flags = vec!["--size-mib", SIZE_MIB, "--hot-percent", "10"];
    flags.extend(["--cold-sweep-seconds", "20", "--seconds", SECONDS]);
    let (daemon, run) = match cell.shape.flags {
        Some(more) => {
            flags.extend(["--report-ms", "1000"]);
            match (cell.source.bit == HINT_FAULT.bit, cell.shape.name) {
                (true, "THP") => flags.extend(until_precise("85")),
                (true, _) => flags.extend(until_precise("90")),
                (false, _) => flags.extend([until_good(), UNHURRIED].concat()),
            }
            flags.extend(more);
            let held = hold_hotset(vm, &flags)?;
            let daemon = Daemon::start_with(vm, &start, cell.source.env)?;
            go(vm)?;
            (daemon, finish(held)?)
        }
        None => {
            flags.extend(["--file", page_cache::FILE]);
            flags.extend(UNHURRIED);
            let daemon = Daemon::start_with(vm, &start, cell.source.env)?;
            (daemon, page_cache::pagecache(vm, &flags)?)
        }
    };
    let status = daemon.status()?;
    let row = Row {
        source: cell.source.name,
        kernel: ctx.kernel.name.clone(),
        shape: cell.shape.name,
        recall: number(&run, "/recall")?,
        precision: run["precision"].as_f64().unwrap_or(0.0),
        // `pagecache` looks where its pages are at the end only.
        seconds: run.get("t95_s").unwrap_or(&run["elapsed_s"]).as_f64(),
    };
    row.judge(&format!("{run}\n{status:#}"))?;
    daemon.stop()?;
    if needs_disk {
        page_cache::unmount(vm)?;
    }
    Ok(())
}

/// The table, if any of it was measured.
pub fn table() -> Result<Option<Table>> {
    let rows = ROWS.lock().unwrap_or_else(PoisonError::into_inner);
    table::of("sources.json", &rows)
}
