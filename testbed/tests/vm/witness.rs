//! The witness is right: it counts what a workload counts itself, on the node where the pages are,
//! whatever moves them meanwhile.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use pghot_testbed::{Spec, Vm, Watch, guest_binaries, guest_binary};
use pghot_witness::counts::NodeCounts;
use pghot_witness::report::Report;
use serde_json::Value;

use crate::rig::{Daemon, hotset, number};
use crate::{Ctx, Test};

pub const TESTS: &[Test] = &[
    Test::new("the_witness_counts_every_access", "tiered3", |ctx| {
        watched(ctx, still)
    }),
    Test::new("the_witness_follows_pages_that_move", "tiered3", |ctx| {
        watched(ctx, moving)
    }),
    Test::new("the_witness_tells_programs_apart", "tiered3", |ctx| {
        watched_on(ctx, 1, beside_another)
    }),
];

/// Runs a test in a guest of its own, which has the plugin.
fn watched(ctx: &mut Ctx, test: fn(&Vm, &Path) -> Result<()>) -> Result<()> {
    watched_on(ctx, 0, test)
}

/// The same where all accesses of so many CPUs count, ticks of the kernel included: so the clock is
/// slowed then, as it is in the comparison.
fn watched_on(
    ctx: &mut Ctx,
    program_cpus: usize,
    test: fn(&Vm, &Path) -> Result<()>,
) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let out = dir.path().join("witness.json");
    let mut binaries = guest_binaries()?;
    binaries.push(guest_binary("mark")?);
    let spec = Spec {
        watch: Some(Watch {
            out: out.clone(),
            program_cpus,
            ..Watch::default()
        }),
        dilation: if program_cpus > 0 { 10 } else { 1 },
        ..Spec::new(&ctx.machine, &ctx.kernel, &binaries)
    };
    let vm = Vm::boot(&spec)?;
    vm.write("/proc/sys/kernel/numa_balancing", "0")?;
    vm.set_limit(Duration::from_secs(200));
    test(&vm, &out)
}

fn report(out: &Path) -> Result<Report> {
    let report: Report = serde_json::from_slice(&std::fs::read(out)?)?;
    ensure!(report.is_complete && report.unknown == 0, "{report:?}");
    Ok(report)
}

fn accesses(nodes: &[NodeCounts]) -> Vec<u64> {
    nodes.iter().map(NodeCounts::accesses).collect()
}

/// Fails unless the witness counted as the workload did.
fn agrees(report: &Report, done: &Value) -> Result<()> {
    let seen: u64 = accesses(&report.nodes).iter().sum();
    let made = number(done, "/accesses")? as u64;
    ensure!(seen == made, "{seen} accesses were seen and {made} made");
    Ok(())
}

/// A program that knows of no witness, alone and beside one that reads 64 MiB over and over on
/// another CPU: what is charged to it is the same, but for a tick or two of the kernel.
fn beside_another(vm: &Vm, out: &Path) -> Result<()> {
    let marked = ["mark", "--cpus", "0", "load", "skewed", "--size-mib", "16"];
    let marked = [&marked[..], &["--home", "2", "--accesses", "3000000"]].concat();
    let other = ["load", "uniform", "--size-mib", "64", "--home", "2"];
    let other = [&other[..], &["--cpus", "2", "--accesses", "100000000"]].concat();
    let charged = || -> Result<f64> {
        vm.exec(&marked)?.success()?;
        // The kernel accesses devices, too, which are on no node.
        let report: Report = serde_json::from_slice(&std::fs::read(out)?)?;
        ensure!(report.is_complete, "{report:?}");
        let seen: u64 = accesses(&report.nodes).iter().sum();
        Ok(seen as f64)
    };
    let alone = charged()?;
    let mut other = vm.spawn(&other)?;
    // Until its memory is in place it runs on any CPU.
    vm.wait_until("the other to be ready", Duration::from_secs(20), || {
        Ok(!other.lines()?.is_empty())
    })?;
    let beside = charged()?;
    other.kill()?;
    ensure!(alone > 3e6, "{alone} accesses, and 3,000,000 were made");
    let more = beside / alone - 1.0;
    ensure!(
        more.abs() < 0.03,
        "{alone} accesses alone, {beside} beside another"
    );
    Ok(())
}

/// One thread and several, loads and stores, on a node where nothing moves.
fn still(vm: &Vm, out: &Path) -> Result<()> {
    for (threads, stores) in [("1", "0"), ("3", "100"), ("2", "50")] {
        let mut flags = vec!["--size-mib", "16", "--hot-percent", "50", "--seconds", "3"];
        flags.extend(["--cold-sweep-seconds", "2", "--witness"]);
        flags.extend(["--threads", threads, "--store-percent", stores]);
        let done = hotset(vm, &flags)?;
        let report = report(out)?;
        agrees(&report, &done)?;
        let nodes = accesses(&report.nodes);
        ensure!(nodes[0] == 0 && nodes[1] == 0, "elsewhere: {nodes:?}");
        let touched: Vec<usize> = report.physical_accesses.iter().map(Vec::len).collect();
        ensure!(touched == [0, 0, 4096], "physical pages: {touched:?}");
        let by_page: u64 = report.page_accesses.iter().copied().map(u64::from).sum();
        ensure!(by_page == nodes[2], "{by_page} accesses are of known pages");
        let loads = report.nodes[2].loads;
        match stores {
            "0" => ensure!(report.nodes[2].stores == 0, "{:?}", report.nodes),
            "100" => ensure!(loads == 0, "{:?}", report.nodes),
            _ => {
                let share = loads as f64 / nodes[2] as f64;
                ensure!(
                    (0.4..0.6).contains(&share),
                    "{share} of the accesses are loads"
                );
            }
        }
        // A witness that miscounts by one is found out.
        let mut wrong = report.clone();
        wrong.nodes[2].loads += 1;
        ensure!(agrees(&wrong, &done).is_err(), "a wrong count passes");
    }
    Ok(())
}

/// All pages are promoted in the middle of the phase.
fn moving(vm: &Vm, out: &Path) -> Result<()> {
    let daemon = Daemon::start(vm, &["--freq-threshold", "1"])?;
    let mut flags = vec![
        "--size-mib",
        "16",
        "--until-promoted",
        "--linger-ms",
        "2000",
    ];
    flags.extend(["--seconds", "60", "--witness"]);
    let done = hotset(vm, &flags)?;
    daemon.stop()?;
    let report = report(out)?;
    agrees(&report, &done)?;
    let nodes = accesses(&report.nodes);
    ensure!(nodes[0] > 0 && nodes[2] > 0, "nothing moved: {nodes:?}");
    ensure!(number(&done, "/hot_left")? == 0.0, "{done}");
    let moves = &report.moves;
    ensure!(
        moves.by_nodes[2][0] == 4096 && moves.returned == 0,
        "{moves:?}"
    );
    let at_end = report.page_nodes.iter().flatten();
    ensure!(at_end.clone().count() == 4096, "{} pages", at_end.count());
    ensure!(
        report.page_nodes.iter().all(|node| *node == Some(0)),
        "the last accesses were elsewhere"
    );
    Ok(())
}
