//! The seeds' page-cache benchmark at the testbed's size: random preads of a file whose cache lies in
//! the lower tier, again and again, under pghot, the kernel's own tiering, and DAMON. The table is
//! written to `out/page_cache.json`.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pghot_testbed::Vm;
use serde::Serialize;

use crate::page_cache::{ALONE, FILE, mount_disk, unmount};
use crate::rig::{Daemon, finish, number, start_pagecache};
use crate::table::{self, Table};
use crate::{Ctx, Test};

pub const TESTS: &[Test] =
    &[Test::new("page_cache_rivals", "tiered3-disk", rivals).limit(Duration::from_secs(240))];

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
        damon = Some(Damon::start(vm)?);
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

const DAMON_STAT: &str = "/sys/module/damon_stat/parameters/enabled";
const ADMIN: &str = "/sys/kernel/mm/damon/admin/kdamonds";

/// DAMON over the lower tier's physical memory, promoting whatever it saw accessed: the most eager
/// setting that its interface has.
struct Damon<'a> {
    vm: &'a Vm,
    had_stat: bool,
}

impl<'a> Damon<'a> {
    fn start(vm: &'a Vm) -> Result<Damon<'a>> {
        // It excludes all other users of DAMON.
        let had_stat = vm.exists(DAMON_STAT)? && vm.read(DAMON_STAT)?.trim() == "Y";
        if had_stat {
            vm.write(DAMON_STAT, "N")?;
        }
        let (start, end) = physical_range(vm, 2)?;
        let context = "0/contexts/0";
        let scheme = "0/contexts/0/schemes/0";
        for (file, value) in [
            ("nr_kdamonds".to_owned(), "1".to_owned()),
            ("0/contexts/nr_contexts".into(), "1".into()),
            (format!("{context}/operations"), "paddr".into()),
            (format!("{context}/targets/nr_targets"), "1".into()),
            (
                format!("{context}/targets/0/regions/nr_regions"),
                "1".into(),
            ),
            (format!("{context}/targets/0/regions/0/start"), start),
            (format!("{context}/targets/0/regions/0/end"), end),
            (format!("{context}/schemes/nr_schemes"), "1".into()),
            (format!("{scheme}/action"), "migrate_hot".into()),
            (format!("{scheme}/target_nid"), "0".into()),
            (
                format!("{scheme}/access_pattern/sz/max"),
                u64::MAX.to_string(),
            ),
            (
                format!("{scheme}/access_pattern/nr_accesses/min"),
                "1".into(),
            ),
            (
                format!("{scheme}/access_pattern/nr_accesses/max"),
                "1000".into(),
            ),
            (format!("{scheme}/access_pattern/age/max"), "1000".into()),
            ("0/state".into(), "on".into()),
        ] {
            vm.write(&format!("{ADMIN}/{file}"), value)
                .with_context(|| file)?;
        }
        Ok(Damon { vm, had_stat })
    }

    fn stop(self) -> Result<()> {
        self.vm.write(&format!("{ADMIN}/0/state"), "off")?;
        self.vm.write(&format!("{ADMIN}/nr_kdamonds"), "0")?;
        if self.had_stat {
            self.vm.write(DAMON_STAT, "Y")?;
        }
        Ok(())
    }
}

/// First byte and end of a node's memory.
fn physical_range(vm: &Vm, nid: u32) -> Result<(String, String)> {
    let size = vm.read("/sys/devices/system/memory/block_size_bytes")?;
    let size = u64::from_str_radix(size.trim(), 16)?;
    let node = format!("/sys/devices/system/node/node{nid}");
    let entries = vm.list(&node)?;
    let blocks = entries
        .iter()
        .filter_map(|entry| entry.strip_prefix("memory")?.parse().ok());
    let blocks: Vec<u64> = blocks.collect();
    let first = blocks.iter().min().context("the node has no memory")?;
    let last = blocks.iter().max().context("the node has no memory")?;
    Ok(((first * size).to_string(), ((last + 1) * size).to_string()))
}

/// The table, if it was measured.
pub fn table() -> Result<Option<Table>> {
    let rows = ROWS.lock().unwrap_or_else(PoisonError::into_inner);
    table::of("page_cache.json", &rows)
}
