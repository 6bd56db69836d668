//! What each source costs, on the same workload: CPU time of its thread and of its BPF programs per
//! million accesses recorded, and what a program feels of it. `make costs` runs just this and shows
//! the table, which is also written to `out/costs.json`.
//!
//! An emulator's times are good for comparing rows, not for a real machine's.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Serialize;
use serde_json::Value;

use crate::rig::{Daemon, finish, number, source, start_hotset, start_pagecache};
use crate::table::{self, Table};
use crate::{Ctx, Test};

pub const TESTS: &[Test] = &[Test::new("costs", "tiered3", measure)
    .limit(Duration::from_secs(300))
    .long()];

/// Length of the run with each source.
const SECONDS: &str = "15";

/// How much longer a page touch may take at p99 with a source than without. It is the same but for
/// noise, 2 to 4 µs in an emulator; a source that makes programs wait adds tens.
const TOUCH_P99_MORE_NS: f64 = 10e3;

/// One row of the table.
#[derive(Debug, Serialize)]
struct Row {
    source: &'static str,
    kernel: String,
    /// Accesses that got into records.
    accesses: f64,
    /// What it worked on: page table entries read (pgtscan), else accesses that it was told of.
    events: f64,
    /// CPU time of the source's thread, per million events; null without a thread.
    thread_s_per_million: Option<f64>,
    /// Time in its BPF programs, per million events; null if they were not run.
    bpf_s_per_million: Option<f64>,
    /// CPU time of the whole daemon, promotion included.
    daemon_s: f64,
    /// A touch of a hot page, as the program felt it; null if the workload reads a file.
    touch_p50_ns: Option<f64>,
    touch_p99_ns: Option<f64>,
    touch_p999_ns: Option<f64>,
    /// Mapping and touching new memory.
    map_p99_ns: Option<f64>,
    map_max_ns: Option<f64>,
}

static ROWS: Mutex<Vec<Row>> = Mutex::new(Vec::new());

/// Sources by name and bit, and what their threads and programs may take per million events, in
/// seconds: twice what they took in an emulator when this was written. hw_sample has no hardware
/// here.
const SOURCES: [(&str, &str, f64); 6] = [
    ("none", "0", 0.0),
    ("hint_fault", "0x1", 8.0),
    ("pgtscan", "0x4", 10.0),
    ("mglru", "0x10", 48.0),
    ("app_hint", "0x20", 70.0),
    ("page_cache", "0x8", 0.6),
];

fn measure(ctx: &mut Ctx) -> Result<()> {
    ctx.vm.write("/proc/sys/kernel/bpf_stats_enabled", "1")?;
    let (mut rows, mut touch_p99_ns) = (Vec::new(), None);
    for (name, bit, most_s) in SOURCES {
        let row = run(ctx, name, bit)?;
        // Of the first row, without sources.
        let none = *touch_p99_ns.get_or_insert(row.touch_p99_ns.unwrap_or(0.0));
        ensure!(
            row.touch_p99_ns
                .is_none_or(|p99| p99 <= none + TOUCH_P99_MORE_NS),
            "a touch takes {none} ns at p99 without sources: {row:?}"
        );
        ensure!(name == "none" || row.accesses > 0.0, "{row:?}");
        let spent = [row.thread_s_per_million, row.bpf_s_per_million];
        let spent_s: f64 = spent.iter().flatten().sum();
        ensure!(name == "none" || spent_s > 0.0, "it costs nothing: {row:?}");
        ensure!(spent_s <= most_s, "more than {most_s} s: {row:?}");
        rows.push(row);
    }
    ROWS.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .extend(rows);
    ctx.vm.write("/proc/sys/kernel/bpf_stats_enabled", "0")?;
    Ok(())
}

fn run(ctx: &Ctx, name: &'static str, bit: &str) -> Result<Row> {
    let daemon = Daemon::start(&ctx.vm, &["--enabled-sources", bit])?;
    let mut flags = vec![
        "--size-mib",
        "128",
        "--hot-percent",
        "10",
        "--seconds",
        SECONDS,
    ];
    flags.extend(["--cold-sweep-seconds", "20"]);
    let done = if name == "page_cache" {
        flags.extend(["--file", "/run/file", "--encode-handle"]);
        finish(start_pagecache(&ctx.vm, &flags)?.0)?
    } else {
        flags.extend(["--report-ms", "1000", "--probe"]);
        if name == "app_hint" {
            flags.extend(["--hint", "/run/pghot/hint.sock"]);
        }
        finish(start_hotset(&ctx.vm, &flags)?.0)?
    };
    let status = daemon.status()?;
    daemon.stop()?;
    let of_source = match name {
        "none" => Value::Null,
        name => source(&status, name)?.clone(),
    };
    let of = |pointer: &str| of_source.pointer(pointer).and_then(Value::as_f64);
    let accesses = of("/stats/recorded").unwrap_or(0.0);
    let told = accesses + of("/stats/not_tracked").unwrap_or(0.0);
    let events = of("/details/entries_read").unwrap_or(told);
    let per_million = |ns: Option<f64>| Some(ns.filter(|ns| *ns > 0.0)? / 1e3 / events.max(1.0));
    let felt = |pointer: &str| number(&done["felt"], pointer).ok();
    Ok(Row {
        source: name,
        kernel: ctx.kernel.name.clone(),
        accesses,
        events,
        thread_s_per_million: per_million(of("/cost/thread_cpu_ns")),
        bpf_s_per_million: per_million(of("/cost/bpf_ns")),
        daemon_s: number(&status, "/cpu_s")?,
        touch_p50_ns: felt("/touch/p50_ns"),
        touch_p99_ns: felt("/touch/p99_ns"),
        touch_p999_ns: felt("/touch/p999_ns"),
        map_p99_ns: felt("/map/p99_ns"),
        map_max_ns: felt("/map/max_ns"),
    })
}

/// The table, if it was measured.
pub fn table() -> Result<Option<Table>> {
    let rows = ROWS.lock().unwrap_or_else(PoisonError::into_inner);
    table::of("costs.json", &rows)
}
