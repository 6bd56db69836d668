//! Workloads are right by themselves: what they do, count and find is what it has to be, with
//! nobody else at work.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pghot_testbed::{Vm, documents};
use serde_json::{Value, json};

use crate::rig::number;
use crate::{Ctx, Test};

pub const TESTS: &[Test] = &[
    Test::new("moved_pages_come_back_whole", "tiered3", moved_pages),
    Test::new("autonuma_leaves_zeros", "tiered3", autonuma),
    Test::new("threads_search_alike", "tiered3", searches),
    Test::new("touched_pages_are_marked_again", "tiered3", small_tlbs),
    Test::new("workloads_print_what_is_documented", "tiered3", samples),
];

/// Runs a workload to its end and returns its lines.
fn lines(vm: &Vm, command: &str) -> Result<Vec<Value>> {
    let argv: Vec<&str> = command.split(' ').collect();
    let output = vm.exec(&argv)?.success()?;
    let lines: Vec<Value> = output
        .stdout
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let done = lines.last().context("it said nothing")?;
    ensure!(done["event"] == "done" && done["errors"] == 0, "{done}");
    Ok(lines)
}

/// All pages go there and come back, many in a call go faster than one, the first folio's wait is
/// seen, and tracing is left as it was.
fn moved_pages(ctx: &mut Ctx) -> Result<()> {
    const INSTANCES: &str = "/sys/kernel/tracing/instances";
    let vm = &ctx.vm;
    let before = vm.list(INSTANCES)?;
    let base = "migrate --from 2 --to 0 --size-mib 2 --batch 1,512 --repeat 2 --threads 1,2";
    let huge = "migrate --from 2 --to 0 --size-mib 8 --batch 4 --repeat 2 --folio thp";
    for (command, pages) in [(base, 512), (huge, 2048)] {
        let lines = lines(vm, command)?;
        let (done, moves) = lines[1..].split_last().context("no line but `ready`")?;
        for line in moves {
            ensure!(line["moved_pages"] == 2 * pages, "{line}");
            ensure!(
                line["refused"] == json!({}) && line["untold"] == 0,
                "{line}"
            );
            let samples = 2.0 * number(line, "/threads")?;
            ensure!(number(line, "/first_folio_samples")? == samples, "{line}");
            ensure!(number(line, "/first_folio_us/min")? > 0.0, "{line}");
        }
        ensure!(
            done["nodes"] == json!({ "2": pages }) && done["split"] == 0,
            "{done}"
        );
        for pair in moves.chunks_exact(2) {
            let speed = |line| number(line, "/gb_per_s/median");
            ensure!(speed(&pair[1])? > speed(&pair[0])?, "{pair:?}");
        }
    }
    ensure!(vm.list(INSTANCES)? == before, "a trace instance is left");
    Ok(())
}

/// Each program has the processes and threads that it should have, and says truly where memory is:
/// nothing moves here, so it stays where it is put.
fn autonuma(ctx: &mut Ctx) -> Result<()> {
    let programs = [
        ("numa01", 2, None),
        ("numa01-threadlocal", 2, Some(2)),
        ("numa02", 1, Some(4)),
        ("numa02-smt", 1, Some(2)),
    ];
    for (program, processes, slices) in programs {
        let command = format!("autonuma {program} --process-mib 8 --rounds 2");
        // Node 2 has no CPUs, so nothing there is local; and all is, where CPUs of one node alone
        // make the pages.
        for (flags, node, local) in [("--home 2", "2", 0.0), ("--cpus 0-1", "0", 1.0)] {
            let lines = lines(&ctx.vm, &format!("{command} {flags}"))?;
            let done = &lines[1];
            let all = done["processes"].as_array().context("no processes")?;
            ensure!(all.len() == processes, "{done}");
            for process in all {
                ensure!(process["nodes"] == json!({ node: 2048 }), "{done}");
            }
            let share = slices.map_or(Value::Null, |_| json!(local));
            ensure!(done["local_share"] == share, "{done}");
            if flags == "--home 2" {
                let of_each = all[0]["slices"].as_array().map_or(0, Vec::len);
                ensure!(of_each == slices.unwrap_or(0), "{done}");
            }
        }
    }
    Ok(())
}

/// The same graph and the same levels, whatever the number of threads, and other ones by other
/// seeds.
fn searches(ctx: &mut Ctx) -> Result<()> {
    let search = |flags: &str| -> Result<Value> {
        let command = format!("bfs --home 2 --scale 10 --searches 4 {flags}");
        let mut lines = lines(&ctx.vm, &command)?;
        let pages = lines[0]["pages"].take();
        let done = lines[1].take();
        ensure!(done["checked"] == true, "{done}");
        ensure!(done["nodes"] == json!({ "2": pages }), "{done}");
        ensure!(number(&done, "/traversed_edges_per_s")? > 0.0, "{done}");
        Ok(done["checksum"].clone())
    };
    let one = search("--threads 1")?;
    let two = search("--threads 2")?;
    ensure!(one == two, "{one} by one thread, {two} by two");
    ensure!(one != search("--seed 2")?, "seeds make no difference");
    Ok(())
}

/// Pages that are touched all the time are marked again after their accessed bits were cleared
/// without a flush, though nobody else runs on the workload's CPU: by `flushtlb`, and not without.
fn small_tlbs(ctx: &mut Ctx) -> Result<()> {
    const REGION_KIB: f64 = 2048.0;
    const AGENT: (&str, &str) = ("/sys/fs/cgroup/agent", "1");
    let vm = &ctx.vm;
    let command = "hotset --home 2 --fast 0,1 --size-mib 2 --hot-percent 100 --cpus 1 \
                   --report-ms 30000 --seconds 60";
    let workload = vm.spawn(&command.split_whitespace().collect::<Vec<_>>())?;
    let file = |name: &str| format!("/proc/{}/{name}", workload.pid());
    // Of everything that it maps; the region is nearly all of that.
    let referenced_kib = || -> Result<f64> {
        let rollup = vm.read(&file("smaps_rollup"))?;
        let line = rollup.lines().find(|line| line.starts_with("Referenced:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1));
        Ok(kib.context("no `Referenced`")?.parse()?)
    };
    vm.wait_until("the region to be there", Duration::from_secs(20), || {
        Ok(referenced_kib().is_ok_and(|kib| kib > REGION_KIB))
    })?;
    vm.write("/sys/fs/cgroup/cgroup.subtree_control", "+cpuset")?;
    vm.mkdir(AGENT.0)?;
    vm.write(&format!("{}/cpuset.cpus", AGENT.0), "0")?;
    let marked_again = || -> Result<f64> {
        vm.write(&format!("{}/cgroup.procs", AGENT.0), AGENT.1)?;
        // Until all is in the TLB.
        std::thread::sleep(Duration::from_millis(500));
        vm.write(&file("clear_refs"), "1")?;
        std::thread::sleep(Duration::from_millis(20));
        let kib = referenced_kib()?;
        vm.write("/sys/fs/cgroup/cgroup.procs", AGENT.1)?;
        Ok(kib / REGION_KIB)
    };
    // The emulator's TLB grows when it is flushed, so the look without comes afterwards.
    let flusher = vm.spawn(&["flushtlb", "--seconds", "60"])?;
    let with = marked_again()?;
    vm.kill(flusher.pid(), libc::SIGKILL)?;
    let without = marked_again()?;
    ensure!(with > 0.95 && without < 0.5, "{with:.3}, then {without:.3}");
    vm.kill(workload.pid(), libc::SIGKILL)?;
    vm.exec(&["rmdir", AGENT.0])?.success()?;
    Ok(())
}

/// Each command in the page of workloads runs, and prints the fields that are shown below it.
fn samples(ctx: &mut Ctx) -> Result<()> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/workloads.md");
    let samples = documents::samples(&std::fs::read_to_string(page)?);
    ensure!(samples.len() >= 6, "{samples:#?}");
    for sample in samples {
        let command = &sample.command;
        let argv: Vec<&str> = command.split(' ').collect();
        let printed = ctx.vm.exec(&argv)?.success()?.stdout;
        ensure!(!sample.fields.is_empty(), "{command}: no field is shown");
        for field in &sample.fields {
            ensure!(printed.contains(field), "{command}: no {field}: {printed}");
        }
    }
    Ok(())
}
