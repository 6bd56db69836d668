//! All sources at once while processes, mappings and files come and go: for ten minutes in the long
//! form.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::rig::{Daemon, is_long, outcome};
use crate::{Ctx, Test};

/// Length of the churn.
const SECONDS: u64 = 20;
const LONG_SECONDS: u64 = 600;

/// What the daemon may grow by after the first churn: its buffers are as large as its largest pass,
/// some 60 bytes a ready page. A leak would show in the long run.
const GROWTH_MAX_KIB: u64 = 8192;

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
    &[Test::new("stress", "tiered3", stress).limit(Duration::from_secs(1200))];

/// Nothing is lost, nothing is stuck, nothing leaks, and the kernel does not complain.
fn stress(ctx: &mut Ctx) -> Result<()> {
    let flags = ["--freq-threshold", "1", "--enabled-sources", "0x3f"];
    // What the kernel said at boot is none of this test's business.
    ctx.vm.exec(&["dmesg", "--clear"])?.success()?;
    let daemon = Daemon::start(&ctx.vm, &flags)?;
    churn(ctx, 15)?;
    let before_kib = resident_kib(ctx, &daemon)?;
    churn(ctx, if is_long() { LONG_SECONDS } else { SECONDS })?;
    let after_kib = resident_kib(ctx, &daemon)?;
    let status = daemon.status()?;
    ensure!(
        after_kib <= before_kib + GROWTH_MAX_KIB,
        "the daemon grew from {before_kib} to {after_kib} KiB: {status:#}"
    );
    ensure!(
        outcome(&status, "moved")? > 0.0,
        "nothing moved: {status:#}"
    );
    ensure!(
        outcome(&status, "failed")? == 0.0,
        "moves failed: {status:#}"
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
    daemon.stop()?;
    Ok(())
}

fn churn(ctx: &Ctx, seconds: u64) -> Result<()> {
    let seconds_text = seconds.to_string();
    let argv = [
        "churn",
        "--home",
        "2",
        "--workers",
        "3",
        "--seconds",
        &seconds_text,
    ];
    let limit = Duration::from_secs(2 * seconds + 60);
    let output = ctx.vm.spawn(&argv)?.wait(limit)?.success()?;
    let done: Value = serde_json::from_str(&output.stdout)?;
    ensure!(done["errors"] == 0, "pages lost their content: {done}");
    for what in ["mappings", "forks", "execs", "files", "remaps", "discards"] {
        ensure!(done[what].as_u64() > Some(0), "no {what}: {done}");
    }
    Ok(())
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
