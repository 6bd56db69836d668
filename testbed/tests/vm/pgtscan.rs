//! The source `pgtscan` loses nothing to the TLB, leaves alone what it should, and leaves nothing
//! behind. What else it finds is in the table of accuracy.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::rig::{Daemon, UNHURRIED, finish, hotset, number, start_hotset, until_good};
use crate::{Ctx, Test};

/// Those that count all scans are alone in a guest: an earlier test that filled the top tier has
/// pushed pages of the guest's agent into the lower one, where they are worth a scan.
pub const TESTS: &[Test] = &[
    Test::new("pgtscan_finds_scattered_pages", "tiered3-la48", scattered),
    Test::new("pgtscan_finds_what_the_tlb_holds", "tiered3", tiny_hot_set),
    Test::new(
        "pgtscan_survives_a_process_that_exits",
        "tiered3",
        a_process_that_exits,
    )
    .limit(Duration::from_secs(400)),
    Test::new("pgtscan_leaves_opted_out_alone", "tiered3", opted_out).fresh(),
    Test::new("pgtscan_heeds_cgroups", "tiered3", heeds_cgroups).fresh(),
    Test::new("pgtscan_switches_off", "tiered3", switches_off),
];

/// An emulator clears accessed bits some thirty times slower than a machine does.
const ALONE: &[&str] = &["--enabled-sources", "0x4", "--scan-stall-max-ms", "300"];

fn finds(ctx: &mut Ctx, flags: &[&str]) -> Result<()> {
    let daemon = Daemon::start(&ctx.vm, ALONE)?;
    let sweep = ["--cold-sweep-seconds", "20", "--seconds", "22"];
    let done = hotset(&ctx.vm, &[flags, &sweep, UNHURRIED, until_good()].concat())?;
    let status = daemon.status()?;
    let (recall, precision) = (number(&done, "/recall")?, number(&done, "/precision")?);
    ensure!(
        recall >= 0.95 && precision >= 0.95,
        "recall {recall}, precision {precision}: {done}\n{status:#}"
    );
    daemon.stop()?;
    Ok(())
}

fn scattered(ctx: &mut Ctx) -> Result<()> {
    finds(ctx, &["--size-mib", "128", "--hot-percent", "10"])
}

/// 655 pages, few enough to stay in the TLB: without a flush their accessed bits never come back.
fn tiny_hot_set(ctx: &mut Ctx) -> Result<()> {
    let daemon = Daemon::start(&ctx.vm, ALONE)?;
    let flags = ["--size-mib", "256", "--hot-percent", "1"];
    let done = hotset(
        &ctx.vm,
        &[&flags[..], until_good(), &["--seconds", "22"]].concat(),
    )?;
    let recall = number(&done, "/recall")?;
    ensure!(
        recall >= 0.95,
        "recall {recall}: {done}\n{:#}",
        daemon.status()?
    );
    daemon.stop()?;
    Ok(())
}

/// A second of an emulator's work on a busy host is soon together.
const PAID_LIMIT: Duration = Duration::from_secs(100);

fn scans(status: &Value) -> Result<f64> {
    let sources = status["sources"].as_array().into_iter().flatten();
    let own = sources
        .into_iter()
        .find(|source| source["name"] == "pgtscan");
    number(own.unwrap_or(&Value::Null), "/details/scans")
}

/// Processes end in the middle of their scans, and the source goes on with others.
fn a_process_that_exits(ctx: &mut Ctx) -> Result<()> {
    let daemon = Daemon::start(&ctx.vm, ALONE)?;
    for _ in 0..3 {
        let before = scans(&daemon.status()?)?;
        let (mut process, _) = start_hotset(&ctx.vm, &["--size-mib", "64", "--seconds", "120"])?;
        let mut status = Ok(Value::Null);
        // What the scans of the one before cost is paid first, twenty times as long as they took.
        ctx.vm.wait_until("it is scanned", PAID_LIMIT, || {
            status = daemon.status();
            let now = status.as_ref().ok().and_then(|status| scans(status).ok());
            Ok(now.is_none_or(|now| now > before))
        })?;
        status?;
        process.kill()?;
    }
    hotset(
        &ctx.vm,
        &["--size-mib", "64", "--until-promoted", "--seconds", "40"],
    )?;
    daemon.stop()?;
    Ok(())
}

/// The variable keeps it away, although the process has pages in the lower tier.
fn opted_out(ctx: &mut Ctx) -> Result<()> {
    let daemon = Daemon::start(&ctx.vm, ALONE)?;
    let argv = ["hotset", "--home", "2", "--fast", "0,1", "--size-mib", "64"];
    let argv: Vec<&str> = argv.into_iter().chain(["--seconds", "12"]).collect();
    let variables = [("PGHOT_SCAN", "off")];
    let done = finish(ctx.vm.spawn_with(&argv, &variables, b"")?)?;
    ensure!(done["hot_promoted"] == 0, "it was promoted: {done}");
    ensure!(scans(&daemon.status()?)? == 0.0, "it was scanned");
    daemon.stop()?;
    Ok(())
}

/// A cgroup's attribute keeps it away from all below, whether the cgroup stays or goes; without it
/// the same processes are scanned.
fn heeds_cgroups(ctx: &mut Ctx) -> Result<()> {
    let vm = &ctx.vm;
    let daemon = Daemon::start(vm, ALONE)?;
    let outer = "/sys/fs/cgroup/outer";
    let inner = "/sys/fs/cgroup/outer/inner";
    let base = ["hotset", "--home", "2", "--fast", "0,1", "--size-mib", "64"];
    let enter = format!("echo $$ > {inner}/cgroup.procs && exec \"$@\"");
    let enter = ["sh", "-c", &enter, "sh"];
    for is_off in [true, false] {
        vm.mkdir(outer)?;
        vm.mkdir(inner)?;
        if is_off {
            let off = ["setfattr", "-n", "user.pghot", "-v", "off", outer];
            vm.exec(&off)?.success()?;
        }
        let how_long: &[&str] = match is_off {
            true => &["--seconds", "10"],
            // On a busy host a look takes its time.
            false => &["--until-promoted", "--seconds", "60"],
        };
        let scans_before = scans(&daemon.status()?)?;
        let done = finish(vm.spawn(&[&enter[..], &base, how_long].concat())?)?;
        let was_scanned = scans(&daemon.status()?)? > scans_before;
        ensure!(was_scanned != is_off, "{done}\n{:#}", daemon.status()?);
        ensure!((done["hot_promoted"] == 0) == is_off, "{done}");
        vm.exec(&["rmdir", inner])?.success()?;
        vm.exec(&["rmdir", outer])?.success()?;
    }
    daemon.stop()?;
    Ok(())
}

/// Switched off, it leaves no thread behind.
fn switches_off(ctx: &mut Ctx) -> Result<()> {
    let daemon = Daemon::start(&ctx.vm, ALONE)?;
    let tasks = format!("/proc/{}/task", daemon.pid());
    let has_thread = || -> Result<bool> {
        for id in ctx.vm.list(&tasks)? {
            if ctx.vm.read(&format!("{tasks}/{id}/comm"))?.trim() == "pgtscan" {
                return Ok(true);
            }
        }
        Ok(false)
    };
    ensure!(has_thread()?, "it has no thread");
    let set = ["pghot", "set", "enabled_sources", "0"];
    ctx.vm.exec(&set)?.success()?;
    ensure!(!has_thread()?, "its thread is left");
    daemon.stop()?;
    Ok(())
}
