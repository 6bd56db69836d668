//! Real programs run in a guest, their memory starts in the lower tier, and what they answer is
//! right. `testbed/setup.sh --bench` brings them; a test fails if it did not.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pghot_bench::programs::{self, Size};
use pghot_bench::systems;
use pghot_testbed::{Kernel, Machine, Spec, Vm, guest_binaries, program};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(300);

/// A guest of the machine of all cells. `PGHOT_TEST_KERNEL` names another kernel than the usual
/// one.
fn boot(more: &[PathBuf]) -> Result<Vm> {
    let binaries = [guest_binaries()?, more.to_vec()].concat();
    let kernel = std::env::var("PGHOT_TEST_KERNEL").unwrap_or_else(|_| "6.12".to_owned());
    let (machine, kernel) = (Machine::load("bench")?, Kernel::find(&kernel)?);
    let vm = Vm::boot(&Spec {
        limit: LIMIT,
        ..Spec::new(&machine, &kernel, &binaries)
    })?;
    vm.write("/proc/sys/kernel/numa_balancing", "0")?;
    Ok(vm)
}

/// Runs a program under a system, which starts when the data is in place.
fn run(name: &str, system: &str, size: &Size) -> Result<Value> {
    let program = programs::find(name).context("no such program")?;
    let system = systems::find(system).context("no such system")?;
    let vm = boot(&program.binaries()?)?;
    let prepared = (program.prepare)(&vm, size, 1)?;
    let running = (system.start)(&vm)?;
    let result = prepared.run()?;
    running.stop()?;
    println!("{result:#}");

    let run = &result["run"];
    ensure!(run["operations"] == size.operations, "{run:#}");
    ensure!(run["errors"] == 0, "{run:#}");
    ensure!(run["p99_us"].as_f64() >= run["p50_us"].as_f64(), "{run:#}");
    let start = &result["nodes_start"];
    let (upper, lower) = (pages(start, "0"), pages(start, "1"));
    ensure!(upper * 10 <= lower, "not in the lower tier: {start}");
    let data = i64::try_from(size.mib << 20)? / 4096;
    ensure!(lower * 10 >= data * 9, "{start} for {data} pages");
    Ok(result)
}

/// Pages on a node; none is the same as 0.
fn pages(nodes: &Value, nid: &str) -> i64 {
    nodes[nid].as_i64().unwrap_or(0)
}

#[test]
fn redis_answers_what_was_set_while_its_pages_move() -> Result<()> {
    let size = Size {
        mib: 48,
        operations: 80_000,
    };
    let result = run("redis-server", "numab2", &size)?;
    ensure!(result["run"]["misses"] == 0, "{result:#}");
    let on_top = |when: &str| pages(&result[when], "0");
    let moved = on_top("nodes_free") - on_top("nodes_bound");
    ensure!(moved < 64, "widening the cpuset moved pages: {result:#}");
    let promoted = on_top("nodes_end") - on_top("nodes_start");
    ensure!(promoted > 200, "they are not free to move: {result:#}");
    Ok(())
}

#[test]
fn fio_reads_what_was_written() -> Result<()> {
    let size = Size {
        mib: 48,
        operations: 20_000,
    };
    let result = run("fio", "none", &size)?;
    let growth = &result["cache_growth"];
    ensure!(
        pages(growth, "1").abs() < 500,
        "it was read again: {growth}"
    );
    Ok(())
}

#[test]
fn memtierd_moves_pages_or_says_why_it_is_missing() -> Result<()> {
    let memtierd = systems::find("memtierd").context("no such system")?;
    let found = program("memtierd");
    let binaries: Vec<PathBuf> = found.as_ref().ok().cloned().into_iter().collect();
    let vm = boot(&binaries)?;
    let started = (memtierd.start)(&vm);
    if let Err(missing) = found {
        let error = started
            .err()
            .context("it was started without a binary")?
            .to_string();
        ensure!(error == missing.to_string(), "{error}");
        ensure!(error.contains("memtierd is missing ("), "{error}");
        ensure!(error.ends_with("run `testbed/setup.sh --bench`"), "{error}");
        return Ok(());
    }
    let running = started?;
    let flags = [
        "--size-mib",
        "64",
        "--hot-percent",
        "25",
        "--layout",
        "contiguous",
    ];
    let place = ["--home", "1", "--fast", "0", "--seconds", "60"];
    let argv = [&["hotset"][..], &flags, &place].concat();
    let output = vm.exec(&argv)?.success()?;
    running.stop()?;
    let last = output
        .stdout
        .lines()
        .last()
        .context("hotset said nothing")?;
    let done: Value = serde_json::from_str(last)?;
    ensure!(done["errors"] == 0, "{done:#}");
    ensure!(
        done["hot_promoted"].as_u64() > Some(0),
        "nothing moved: {done:#}"
    );
    Ok(())
}
