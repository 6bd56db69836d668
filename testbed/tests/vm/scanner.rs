//! How often the kernel's scanner visits threads, those that are older than pghot and new ones.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde_json::Value;

use crate::rig::{Daemon, kernel_settings, number, start_hotset};
use crate::{Ctx, Test};

pub const TESTS: &[Test] = &[
    Test::new("old_threads_are_visited_often", "tiered3", old_threads).each_kernel(),
    Test::new("new_threads_need_no_pulse", "tiered3", new_threads),
];

/// Pages of the lower tier that are touched again and again, but too seldom to be promoted, so that
/// hint faults keep coming.
const FLAGS: &[&str] = &[
    "--size-mib",
    "128",
    "--hot-percent",
    "1",
    "--cold-sweep-seconds",
    "4",
    "--seconds",
    "300",
];

/// Hint faults by the daemon's count: all, and those of threads that are visited seldom.
fn faults(daemon: &Daemon) -> Result<(f64, f64)> {
    let status = daemon.status()?;
    let seldom = number(&status, "/sources/0/details/seldom_visited_faults")?;
    Ok((number(&status, "/sources/0/stats/recorded")?, seldom))
}

/// Waits until in five looks in a row hardly any hint fault comes from a thread that is visited
/// seldom. Looks without faults tell nothing: marks on pages that nobody touches stay, and the
/// sweep over cold pages comes in bursts.
fn wait_until_all_are_visited_often(daemon: &Daemon) -> Result<()> {
    const LOOKS: usize = 90;
    let mut before = faults(daemon)?;
    let mut good = 0;
    let mut looks = Vec::new();
    for _ in 0..LOOKS {
        std::thread::sleep(Duration::from_secs(2));
        let now = faults(daemon)?;
        let (came, seldom) = (now.0 - before.0, now.1 - before.1);
        if came >= 64.0 {
            good = if seldom <= came / 10.0 { good + 1 } else { 0 };
        }
        looks.push((came, seldom));
        if good >= 5 {
            return Ok(());
        }
        before = now;
    }
    bail!("all and seldom visited: {looks:?}\n{:#}", daemon.status()?);
}

/// The kernel is made to reckon their period anew, and has the settings back that it had before.
fn old_threads(ctx: &mut Ctx) -> Result<()> {
    let (mut hot, _) = start_hotset(&ctx.vm, FLAGS)?;
    let promoted = ctx.vm.vmstat("pgpromote_success")?;
    let daemon = Daemon::start(&ctx.vm, &["--enabled-sources", "0x1"])?;
    wait_until_all_are_visited_often(&daemon)?;
    let status: Value = daemon.status()?;
    let pulses = number(&status, "/marking/pulses")?;
    let seldom = number(&status, "/sources/0/details/seldom_visited_faults")?;
    ensure!(pulses >= 1.0 && seldom >= 16.0, "{status:#}");
    // In each pulse the kernel may promote 256 pages a second, and pulses are of two seconds.
    let promoted = (ctx.vm.vmstat("pgpromote_success")? - promoted) as f64;
    ensure!(
        (1.0..=pulses * 1024.0).contains(&promoted),
        "the kernel promoted {promoted} pages in {pulses} pulses"
    );
    ctx.vm
        .wait_until("a pulse ends", Duration::from_secs(20), || {
            let settings = kernel_settings(&ctx.vm);
            Ok(settings.is_ok_and(|now| now[1..4] == ["0", "0", "25"]))
        })?;
    hot.kill()?;
    daemon.stop()?;
    Ok(())
}

/// Threads that start later are visited often at once.
fn new_threads(ctx: &mut Ctx) -> Result<()> {
    let daemon = Daemon::start(&ctx.vm, &["--enabled-sources", "0x1"])?;
    let (mut hot, _) = start_hotset(&ctx.vm, FLAGS)?;
    wait_until_all_are_visited_often(&daemon)?;
    let status = daemon.status()?;
    ensure!(number(&status, "/marking/pulses")? == 0.0, "{status:#}");
    hot.kill()?;
    daemon.stop()?;
    Ok(())
}
