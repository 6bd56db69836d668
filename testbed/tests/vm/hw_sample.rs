//! The source `hw_sample`, with minor page faults in place of the hardware that guests lack: all
//! behind the event is the same code.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pghot_testbed::{Process, Vm};
use serde_json::Value;

use crate::accuracy::Row;
use crate::rig::{
    Daemon, UNHURRIED, finish, go, hold_hotset, number, open_objects, refused, source,
    start_hotset, start_hotset_anywhere, until_good,
};
use crate::{Ctx, Test};

pub const TESTS: &[Test] = &[
    Test::new("accuracy_hw_sample_scattered", "tiered3", |ctx| {
        find_hot(ctx, "anon 4K scattered", &[])
    })
    .each_kernel(),
    Test::new("accuracy_hw_sample_contiguous", "tiered3", |ctx| {
        find_hot(ctx, "anon 4K contiguous", &["--layout", "contiguous"])
    })
    .long(),
    Test::new("accuracy_hw_sample_shared", "tiered3", |ctx| {
        find_hot(ctx, "shared tmpfs", &["--backing", "shared"])
    })
    .long(),
    Test::new("accuracy_hw_sample_thp", "tiered3", |ctx| {
        find_hot(ctx, "THP", &["--backing", "thp"])
    })
    // On 7.2 a huge page whose soft-dirty bit was cleared seldom faults again.
    .only_on("6.12"),
    Test::new("hw_samples_know_the_node", "tiered3", know_the_node),
    Test::new("hw_samples_leave_nothing_behind", "tiered3", leave_nothing),
    Test::new(
        "hw_samples_that_do_not_fit_are_counted",
        "tiered3",
        overflow,
    ),
    Test::new("hw_samples_need_a_pmu_and_rights", "tiered3", needs),
];

const PAGE_FAULTS: [(&str, &str); 1] = [("PGHOT_HW_SAMPLE_EVENT", "page-faults")];

fn start(vm: &Vm, flags: &[&str]) -> Result<Daemon> {
    let flags: Vec<&str> = ["--enabled-sources", "0x2"]
        .iter()
        .chain(flags)
        .copied()
        .collect();
    Ok(Daemon::start_with(vm, &flags, &PAGE_FAULTS)?)
}

/// Makes the next store to each page of a process fault, and so be sampled.
fn protect(vm: &Vm, process: &Process) -> Result<()> {
    Ok(vm.write(&format!("/proc/{}/clear_refs", process.pid()), "4")?)
}

fn detail(status: &Value, name: &str) -> Result<f64> {
    number(source(status, "hw_sample")?, &format!("/details/{name}"))
}

/// A tenth of the pages is hot; each cold page is stored to once in 20 s. Three samples within the
/// window promote a page, because the sweep may be sampled twice while it is inside one huge page.
fn find_hot(ctx: &mut Ctx, shape: &'static str, more: &[&str]) -> Result<()> {
    let mut flags = vec![
        "--size-mib",
        "128",
        "--hot-percent",
        "10",
        "--seconds",
        "60",
    ];
    flags.extend(["--cold-sweep-seconds", "20", "--store-percent", "100"]);
    flags.extend(["--report-ms", "1000"]);
    flags.extend(until_good());
    flags.extend(UNHURRIED);
    flags.extend(more);
    let process = hold_hotset(&ctx.vm, &flags)?;
    // A slow emulator needs a second for each round of faults, and every other fault is a sample:
    // three of one page take longer than the usual window.
    let rule = ["--freq-threshold", "3", "--mode", "precision"];
    let window = ["--freq-window-ms", "15000"];
    let daemon = start(&ctx.vm, &[&rule[..], &window].concat())?;
    go(&ctx.vm)?;
    // A handful of huge pages takes few faults, and of those only some are sampled.
    let pause_ms = if shape == "THP" { 100 } else { 500 };
    loop {
        let protected = protect(&ctx.vm, &process);
        if process.try_wait()?.is_some() {
            break;
        }
        protected?;
        sleep(Duration::from_millis(pause_ms));
    }
    let done = finish(process)?;
    let status = daemon.status()?;
    let of_source = source(&status, "hw_sample")?;
    let row = Row {
        source: "hw_sample",
        kernel: ctx.kernel.name.clone(),
        shape,
        recall: number(&done, "/recall")?,
        precision: done["precision"].as_f64().unwrap_or(0.0),
        seconds: done["t95_s"].as_f64(),
    };
    row.judge(&format!("{done}\n{of_source:#}"))?;
    ensure!(number(of_source, "/stats/lost")? == 0.0, "{of_source:#}");
    let accesses = number(of_source, "/stats/recorded")?;
    let pages = number(of_source, "/stats/recorded_pages")?;
    ensure!((pages > accesses) == (shape == "THP"), "{of_source:#}");
    daemon.stop()?;
    Ok(())
}

/// In precision mode a page goes to the node of the CPU that was sampled, not to target_nid.
fn know_the_node(ctx: &mut Ctx) -> Result<()> {
    // CPU 2 is the first of node 1.
    let mut flags = vec![
        "--home",
        "2",
        "--fast",
        "1",
        "--cpus",
        "2",
        "--size-mib",
        "32",
    ];
    flags.extend([
        "--store-percent",
        "100",
        "--until-promoted",
        "--seconds",
        "40",
    ]);
    let (process, _) = start_hotset_anywhere(&ctx.vm, &flags)?;
    let flags = [
        "--mode",
        "precision",
        "--freq-threshold",
        "1",
        "--target-nid",
        "0",
    ];
    let daemon = start(&ctx.vm, &flags)?;
    ctx.vm
        .wait_until("hotset ends", Duration::from_secs(60), || {
            // It may not run any more.
            let _ = protect(&ctx.vm, &process);
            Ok(process.try_wait()?.is_some())
        })?;
    let done = finish(process)?;
    ensure!(done["hot_left"] == 0, "{done}\n{:#}", daemon.status()?);
    daemon.stop()?;
    Ok(())
}

/// BPF objects and perf events, mapped rings, and threads of the daemon.
type Belongings = (Vec<String>, usize, Vec<String>);

fn belongings(vm: &Vm, pid: i32) -> Result<Belongings> {
    let mut objects = open_objects(vm, pid)?;
    objects.retain(|kind| kind.starts_with("anon_inode:"));
    let maps = vm.read(&format!("/proc/{pid}/maps"))?;
    let rings = maps.matches("[perf_event]").count();
    let mut threads = Vec::new();
    for thread in vm.list(&format!("/proc/{pid}/task"))? {
        // A connection's thread may end meanwhile.
        if let Ok(name) = vm.read(&format!("/proc/{pid}/task/{thread}/comm")) {
            threads.push(name.trim().to_owned());
        }
    }
    threads.retain(|name| name != "client");
    threads.sort();
    Ok((objects, rings, threads))
}

/// What it has for two seconds: a daemon that has only begun may not have named its last thread.
fn settled(vm: &Vm, pid: i32) -> Result<Belongings> {
    let mut last = belongings(vm, pid)?;
    vm.wait_until("nothing changes", Duration::from_secs(30), || {
        std::thread::sleep(Duration::from_secs(2));
        let now = belongings(vm, pid).unwrap_or_default();
        let is_settled = now == last;
        last = now;
        Ok(is_settled)
    })?;
    Ok(last)
}

fn leave_nothing(ctx: &mut Ctx) -> Result<()> {
    let daemon = Daemon::start_with(&ctx.vm, &["--enabled-sources", "0"], &PAGE_FAULTS)?;
    let set = |mask| {
        let set = ["pghot", "set", "enabled_sources", mask];
        ctx.vm.exec(&set)?.success()
    };
    let before = settled(&ctx.vm, daemon.pid())?;
    ensure!(before.1 == 0, "{before:?}");
    for _ in 0..3 {
        set("2")?;
        let during = belongings(&ctx.vm, daemon.pid())?;
        ensure!(during.1 == 4, "a ring for each of 4 CPUs: {during:?}");
        ensure!(
            during.2.iter().any(|name| name == "hw_sample"),
            "{during:?}"
        );
        ensure!(during.0.len() > before.0.len(), "{during:?}");
        set("0")?;
        let mut after = during;
        let closed = ctx
            .vm
            .wait_until("all is closed", Duration::from_secs(30), || {
                after = belongings(&ctx.vm, daemon.pid()).unwrap_or_default();
                Ok(after == before)
            });
        closed.with_context(|| format!("{after:?} instead of {before:?}"))?;
    }
    daemon.stop()?;
    Ok(())
}

/// Samples of a daemon that does not run for a while do not fit into its rings.
fn overflow(ctx: &mut Ctx) -> Result<()> {
    let flags = [
        "--size-mib",
        "64",
        "--store-percent",
        "100",
        "--seconds",
        "100",
    ];
    let (mut process, _) = start_hotset(&ctx.vm, &flags)?;
    let daemon = start(&ctx.vm, &["--dry-run"])?;
    let faults = || ctx.vm.vmstat("pgfault");
    let before = faults()?;
    ctx.vm.kill(daemon.pid(), libc::SIGSTOP)?;
    ctx.vm
        .wait_until("more faults than fit", Duration::from_secs(30), || {
            ctx.vm
                .write(&format!("/proc/{}/clear_refs", process.pid()), "4")?;
            Ok(faults()? - before > 32768)
        })?;
    ctx.vm.kill(daemon.pid(), libc::SIGCONT)?;
    let mut status = Value::Null;
    for _ in 0..20 {
        // The kernel says what it dropped before the next sample that fits.
        protect(&ctx.vm, &process)?;
        sleep(Duration::from_millis(500));
        status = daemon.status()?;
        if detail(&status, "lost_samples")? > 0.0 {
            break;
        }
    }
    ensure!(detail(&status, "lost_samples")? > 0.0, "{status:#}");
    // What is lost makes the period grow.
    process.kill()?;
    for _ in 0..20 {
        status = daemon.status()?;
        if detail(&status, "period_changes")? > 0.0 {
            break;
        }
        sleep(Duration::from_millis(500));
    }
    let of_source = source(&status, "hw_sample")?;
    ensure!(detail(&status, "period_changes")? > 0.0, "{of_source:#}");
    ensure!(detail(&status, "period_refusals")? == 0.0, "{of_source:#}");
    daemon.stop()?;
    Ok(())
}

/// What is missing is said, in `doctor` and by a daemon that has nothing else to run.
fn needs(ctx: &mut Ctx) -> Result<()> {
    let doctor = |argv: &[&str], env: &[(&str, &str)]| -> Result<String> {
        let argv: Vec<&str> = argv.iter().chain(&["pghot", "doctor"]).copied().collect();
        let said = ctx.vm.exec_with(&argv, env, b"")?.stdout;
        let line = said
            .lines()
            .find(|line| line.contains("hw_sample"))
            .unwrap_or("");
        Ok(line.to_owned())
    };
    let no_pmu = doctor(&[], &[])?;
    ensure!(no_pmu.contains("neither AMD IBS"), "{no_pmu}");
    let run = ctx.vm.exec(&["pghot", "run", "--enabled-sources", "0x2"])?;
    refused(run, "neither AMD IBS")?;

    let wrong = doctor(&[], &[("PGHOT_HW_SAMPLE_EVENT", "cycles")])?;
    ensure!(wrong.contains("`cycles`"), "{wrong}");
    let test = doctor(&[], &PAGE_FAULTS)?;
    ensure!(test.contains("for tests"), "{test}");
    let drop = ["setpriv", "--bounding-set=-sys_admin,-perfmon"];
    let closed = doctor(&drop, &PAGE_FAULTS)?;
    ensure!(closed.contains("CAP_PERFMON"), "{closed}");
    Ok(())
}
