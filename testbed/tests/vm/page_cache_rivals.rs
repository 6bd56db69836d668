//! The seeds' page-cache benchmark at the testbed's size: random preads of a file whose cache lies
//! in the lower tier, again and again, under pghot, the kernel's own tiering, and DAMON. The table
//! is written to `out/page_cache.json`.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pghot_testbed::Vm;
use pghot_testbed::damon::{Damon, Scheme};
use serde::Serialize;

use crate::page_cache::{ALONE, FILE, mount_disk, unmount};
use crate::rig::{Daemon, finish, number, start_pagecache};
use crate::table::{self, Table};
use crate::{Ctx, Test};

pub const TESTS: &[Test] = &[Test::new("page_cache_rivals", "tiered3-disk", rivals)
    .limit(Duration::from_secs(240))
    .long()];

/// One row of the table.
#[derive(Debug, Serialize)]
struct Row {
    /// Who promotes.
    source: &'static str,
    kernel: String,
    /// Pages of the file.
    pages: f64,
    /// Of those, in the top tier at the end.
    promoted: f64,
    /// Until 90 % were; null for never.
    t90_s: Option<f64>,
}

/// DAMON over the lower tier's physical memory, promoting whatever it saw accessed: the most eager
/// setting that its interface has.
const EAGER: Scheme<'_> = Scheme {
    node: 2,
    action: "migrate_hot",
    target: 0,
    accesses: (1, 1000),
    age_min: 0,
    settings: &[],
};

static ROWS: Mutex<Vec<Row>> = Mutex::new(Vec::new());

fn rivals(ctx: &mut Ctx) -> Result<()> {
    let kernel = ctx.kernel.name.clone();
    let vm = &ctx.vm;
    mount_disk(vm)?;
    let daemon = Daemon::start(vm, &ALONE)?;
    let ours = read_file(vm, "pghot", &kernel, || Ok(()))?;
    daemon.stop()?;

    vm.write("/proc/sys/kernel/numa_balancing", "2")?;
    let kernels = read_file(vm, "numa_balancing=2", &kernel, || Ok(()))?;
    vm.write("/proc/sys/kernel/numa_balancing", "0")?;

    // Only now, because it promotes pages while the file is being written.
    let mut damon = None;
    let start_damon = || {
        damon = Some(Damon::start(vm, &[EAGER])?);
        Ok(())
    };
    let damons = read_file(vm, "DAMON migrate_hot", &kernel, start_damon)?;
    damon.context("it was started")?.stop()?;
    unmount(vm)?;

    // The seeds: 524242 of 524288.
    ensure!(ours.promoted >= ours.pages * 0.9999, "{ours:?}");
    // It sees accesses by page tables, and these are system calls.
    ensure!(kernels.promoted == 0.0, "{kernels:?}");
    // What DAMON does is shown, not judged.
    let mut rows = ROWS.lock().unwrap_or_else(PoisonError::into_inner);
    rows.extend([ours, kernels, damons]);
    Ok(())
}

fn read_file(
    vm: &Vm,
    source: &'static str,
    kernel: &str,
    once_ready: impl FnOnce() -> Result<()>,
) -> Result<Row> {
    let flags = ["--file", FILE, "--size-mib", "64", "--seconds", "20"];
    let (reader, _) = start_pagecache(vm, &flags)?;
    once_ready()?;
    let done = finish(reader)?;
    let promoted = number(&done, "/hot_promoted")?;
    Ok(Row {
        source,
        kernel: kernel.to_owned(),
        pages: promoted + number(&done, "/hot_left")?,
        promoted,
        t90_s: done["t90_s"].as_f64(),
    })
}

/// The table, if it was measured.
pub fn table() -> Result<Option<Table>> {
    let rows = ROWS.lock().unwrap_or_else(PoisonError::into_inner);
    table::of("page_cache.json", &rows)
}
