//! Real programs run in a guest, their memory starts in the lower tier, and what they answer is
//! right. `testbed/setup.sh --bench` brings them; a test fails if it did not.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Arguments, Failed, Trial};
use pghot_bench::guest::node_kib;
use pghot_bench::setting::{ALL_OF_IT, Setting};
use pghot_bench::workloads::{self, Job, Ran};
use pghot_bench::{room, systems};
use pghot_testbed::{Kernel, Machine, Spec, Vm, guest_binaries, program};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(300);
const MACHINE: &str = "bench";

/// A guest of the machine of all cells. `PGHOT_TEST_KERNEL` names another kernel than the usual
/// one.
fn boot(more: &[PathBuf]) -> Result<Vm> {
    let binaries = [guest_binaries()?, more.to_vec()].concat();
    let kernel = std::env::var("PGHOT_TEST_KERNEL").unwrap_or_else(|_| "6.12".to_owned());
    let (machine, kernel) = (Machine::load(MACHINE)?, Kernel::find(&kernel)?);
    let vm = Vm::boot(&Spec {
        limit: LIMIT,
        ..Spec::new(&machine, &kernel, &binaries)
    })?;
    vm.write("/proc/sys/kernel/numa_balancing", "0")?;
    Ok(vm)
}

/// Runs a program of 48 MiB under a system, which starts when the data is in place.
fn run(name: &str, system: &str, operations: u64) -> Result<Ran> {
    const MIB: u64 = 48;
    let workload = workloads::find(name).context("no such workload")?;
    let system = systems::find(system).context("no such system")?;
    let vm = boot(&workload.binaries()?)?;
    let setting = Setting {
        workload: name.to_owned(),
        system: system.name.to_owned(),
        seed: 1,
        accesses: operations,
        threads: 2,
        backing: workload.backings[0].to_owned(),
        machine: MACHINE.to_owned(),
        kernel: "6.12".to_owned(),
        dilation: 1,
        room_percent: ALL_OF_IT,
    };
    let prepared = workload.prepare(&Job {
        vm: &vm,
        setting: &setting,
        size_mib: MIB,
        room_mib: MIB,
        home: 1,
        fast: &[0],
    })?;
    let running = system.start(&vm)?;
    let ran = prepared.run(&mut |_| {})?;
    running.stop()?;
    println!("{ran:#?}");

    let done = &ran.done;
    ensure!(done["operations"] == operations, "{done:#}");
    ensure!(done["errors"] == 0, "{done:#}");
    ensure!(
        done["p99_us"].as_f64() >= done["p50_us"].as_f64(),
        "{done:#}"
    );
    let start = &ran.ready["nodes"];
    let (upper, lower) = (pages(start, "0"), pages(start, "1"));
    ensure!(upper * 10 <= lower, "not in the lower tier: {start}");
    let data = i64::try_from(MIB << 20)? / 4096;
    ensure!(lower * 10 >= data * 9, "{start} for {data} pages");
    Ok(ran)
}

/// Pages on a node; none is the same as 0.
fn pages(nodes: &Value, nid: &str) -> i64 {
    nodes[nid].as_i64().unwrap_or(0)
}

fn redis_answers_what_was_set_while_its_pages_move() -> Result<()> {
    let ran = run("redis", "numab2", 80_000)?;
    let (ready, done) = (&ran.ready, &ran.done);
    ensure!(done["misses"] == 0, "{done:#}");
    let moved = pages(&ready["nodes_free"], "0") - pages(&ready["nodes_bound"], "0");
    ensure!(moved < 64, "widening the cpuset moved pages: {ready:#}");
    let promoted = pages(&done["nodes_end"], "0") - pages(&ready["nodes"], "0");
    ensure!(
        promoted > 200,
        "they are not free to move: {ready:#}\n{done:#}"
    );
    Ok(())
}

fn fio_reads_what_was_written() -> Result<()> {
    let ran = run("fio", "none", 20_000)?;
    let growth = &ran.done["cache_growth"];
    ensure!(
        pages(growth, "1").abs() < 500,
        "it was read again: {growth}"
    );
    Ok(())
}

/// That a missing one is named is a test of the harness.
fn memtierd_moves_pages() -> Result<()> {
    let memtierd = systems::find("memtierd").context("no such system")?;
    let vm = boot(&[program("memtierd")?])?;
    let running = memtierd.start(&vm)?;
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

/// Two guests differ by what lies idle in their top tiers.
fn what_nobody_uses_leaves_the_top_tier() -> Result<()> {
    let vm = boot(&[])?;
    systems::allow_demotion(&vm)?;
    let lists = || -> Result<u64> {
        let fields = [
            "Active(anon)",
            "Inactive(anon)",
            "Active(file)",
            "Inactive(file)",
        ];
        let kib = fields.map(|field| node_kib(&vm, 0, field));
        Ok(kib.into_iter().sum::<Result<u64>>()? >> 10)
    };
    let before_mib = lists()?;
    room::level(&vm, 0, Machine::load(MACHINE)?.nodes[0].memory_mib, 30)?;
    let after_mib = lists()?;
    ensure!(
        before_mib >= 8 && after_mib * 8 <= before_mib,
        "{before_mib} MiB on lists, then {after_mib}"
    );
    Ok(())
}

fn main() -> ExitCode {
    let trial = |name: &str, test: fn() -> Result<()>| {
        Trial::test(name, move || {
            test().map_err(|error| Failed::from(format!("{error:#}")))
        })
    };
    // No Debian release has memtierd: where the host has none, that is a skip, and counted as one.
    let lacks_memtierd = program("memtierd").is_err();
    let trials = vec![
        trial(
            "redis_answers_what_was_set_while_its_pages_move",
            redis_answers_what_was_set_while_its_pages_move,
        ),
        trial("fio_reads_what_was_written", fio_reads_what_was_written),
        trial(
            "what_nobody_uses_leaves_the_top_tier",
            what_nobody_uses_leaves_the_top_tier,
        ),
        trial("memtierd_moves_pages", memtierd_moves_pages).with_ignored_flag(lacks_memtierd),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
