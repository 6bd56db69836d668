//! All sources at once while processes, mappings, files, cgroups, CPUs and memory come and go: for
//! half an hour in the long form.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::rig::{Daemon, LowerTier, outcome, rounds};
use crate::{Ctx, Test};

/// Length of the churn.
const SECONDS: u64 = 30;
const LONG_SECONDS: u64 = 1800;

/// Between two things that come or go beside it.
const PAUSE: Duration = Duration::from_secs(1);

/// The CPU that comes and goes.
const CPU: &str = "/sys/devices/system/cpu/cpu3/online";

/// A cgroup that comes, and goes after a program has run in it.
const CGROUP: &str = "/sys/fs/cgroup/stress";
const RUN: &str = "echo $$ > /sys/fs/cgroup/stress/cgroup.procs && \
    exec churn --home 2 --workers 1 --seconds 1 --dir /run";

/// What the daemon may have for itself, beside the records. Its buffers are as large as its largest
/// pass since memory last came or went, some 60 bytes a ready page, so they grow and shrink; a leak
/// would show in the long run.
const MOST_KIB: u64 = 32 << 10;

/// Words of the kernel's log that mean that something went wrong in it.
const COMPLAINTS: [&str; 6] = [
    "WARNING:",
    "BUG:",
    "Oops",
    "INFO: task",
    "rcu: INFO",
    "Bad page",
];

pub const TESTS: &[Test] =
    &[Test::new("stress", "tiered3", stress).limit(Duration::from_secs(7200))];

/// Nothing is lost, nothing is stuck, nothing leaks, and the kernel does not complain.
fn stress(ctx: &mut Ctx) -> Result<()> {
    let flags = ["--freq-threshold", "1", "--enabled-sources", "0x3f"];
    // What the kernel said at boot is none of this test's business.
    ctx.vm.exec(&["dmesg", "--clear"])?.success()?;
    let daemon = Daemon::start(&ctx.vm, &flags)?;
    let lower_tier = LowerTier::of(&ctx.vm)?;
    let seconds = rounds(SECONDS, LONG_SECONDS);
    let done = churn(ctx, &daemon, &lower_tier, seconds)?;
    let resident_kib = resident_kib(ctx, &daemon)?;
    ensure!(
        resident_kib <= MOST_KIB,
        "the daemon has {resident_kib} KiB: {:#}",
        daemon.status()?
    );
    // Whose pages are gone is forgotten, not asked for again and again.
    ctx.vm
        .wait_until("nothing is ready any more", Duration::from_secs(60), || {
            Ok(daemon
                .number("/lower_tier/0/last_pass/ready")
                .is_ok_and(|ready| ready == 0.0))
        })?;
    let log = ctx.vm.exec(&["dmesg"])?.success()?.stdout;
    let complaint = log
        .lines()
        .find(|line| COMPLAINTS.iter().any(|word| line.contains(word)));
    ensure!(complaint.is_none(), "the kernel complains:\n{log}");
    let all = lower_tier.pages(lower_tier.blocks());
    let soon = Duration::from_secs(30);
    ctx.vm.wait_until("all has records again", soon, || {
        let pages = daemon.number("/lower_tier/0/pages");
        Ok(pages.is_ok_and(|pages| pages == all))
    })?;
    println!("campaign: {seconds} {done} most_kib={resident_kib}");
    daemon.stop()?;
    Ok(())
}

/// Returns how often each came and went.
fn churn(ctx: &Ctx, daemon: &Daemon, lower_tier: &LowerTier, seconds: u64) -> Result<String> {
    let vm = &ctx.vm;
    let seconds_text = seconds.to_string();
    let argv = ["churn", "--home", "2", "--workers", "3"];
    let mut process = vm.spawn(&[&argv[..], &["--seconds", &seconds_text]].concat())?;
    let (mut cgroups, mut cpus, mut blocks) = (0, 0, 0);
    let (mut promoted, mut last) = (0.0, 0.0);
    while process.try_wait()?.is_none() {
        vm.mkdir(CGROUP)?;
        vm.exec(&["sh", "-c", RUN])?.success()?;
        vm.exec(&["rmdir", CGROUP])?.success()?;
        cgroups += 1;
        // The daemon counts anew when memory comes or goes, so that this is the least that it did.
        if let Ok(status) = daemon.status() {
            let moved = outcome(&status, "moved").unwrap_or(0.0);
            promoted += if moved < last { moved } else { moved - last };
            last = moved;
            let failed = outcome(&status, "failed").unwrap_or(0.0);
            ensure!(failed == 0.0, "moves failed: {status:#}");
        }
        vm.write(CPU, "0")?;
        cpus += 1;
        // The kernel's own memory does not go.
        blocks += usize::from(lower_tier.offline_one(vm, cgroups)?);
        std::thread::sleep(PAUSE);
        vm.write(CPU, "1")?;
        lower_tier.online(vm)?;
    }
    let limit = Duration::from_secs(2 * seconds + 60);
    let output = process.wait(limit)?.success()?;
    let done: Value = serde_json::from_str(&output.stdout)?;
    ensure!(done["errors"] == 0, "pages lost their content: {done}");
    let mut text =
        format!("cgroups={cgroups} cpus={cpus} memory_blocks={blocks} promoted_pages={promoted}");
    ensure!(blocks > 0 && promoted > 0.0, "{text}");
    for what in ["mappings", "forks", "execs", "files", "remaps", "discards"] {
        let count = done[what].as_u64().unwrap_or(0);
        ensure!(count > 0, "no {what}: {done}");
        text += &format!(" {what}={count}");
    }
    Ok(text)
}

fn resident_kib(ctx: &Ctx, daemon: &Daemon) -> Result<u64> {
    let status = ctx.vm.read(&format!("/proc/{}/status", daemon.pid()))?;
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let words = line.and_then(|line| line.split_whitespace().nth(1));
    words
        .context("no RssAnon")?
        .parse()
        .context("RssAnon is no number")
}
