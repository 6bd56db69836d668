//! How often the kernel's scanner visits threads, those that are older than pghot and new ones.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::rig::{Daemon, finish, kernel_settings, number, start_hotset, start_hotset_anywhere};
use crate::{Ctx, Test};

pub const TESTS: &[Test] = &[
    Test::new("old_threads_are_visited_often", "tiered3", old_threads).each_kernel(),
    Test::new("new_threads_need_no_pulse", "tiered3", new_threads),
    Test::new(
        "normal_balancing_keeps_its_pace",
        "tiered3",
        normal_balancing_keeps_its_pace,
    )
    .each_kernel(),
    Test::new("huge_pages_are_told_apart", "tiered3", huge_pages).each_kernel(),
    Test::new("huge_pages_change_places", "bench", huge_exchange).each_kernel(),
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

/// Two threads touch all of 128 huge pages within milliseconds, a tenth of them far more often.
/// Nothing is promoted, so all fault again at each visit. Hot ones fault within 16 us of their
/// marks, at least while the other thread marks; most others do not.
fn huge_pages(ctx: &mut Ctx) -> Result<()> {
    let vm = &ctx.vm;
    let flags = ["--enabled-sources", "0x1", "--promote-rate-limit-MBps", "0"];
    let daemon = Daemon::start(vm, &flags)?;
    let mut argv = vec!["load", "skewed", "--size-mib", "256", "--home", "2"];
    argv.extend(["--backing", "thp", "--threads", "2"]);
    argv.extend(["--accesses", "10000000000"]);
    let mut program = vm.spawn(&argv)?;
    let mut said = String::new();
    let seen = vm.wait_until("faults tell", Duration::from_secs(60), || {
        let status = daemon.status()?;
        let times: Vec<f64> =
            serde_json::from_value(status["marking"]["fault_times"].clone()).unwrap_or_default();
        let all: f64 = times.iter().sum();
        said = format!("{times:?}");
        Ok(all >= 1000.0 && times[0] >= 0.01 * all && times[0] <= 0.5 * all)
    });
    program.kill()?;
    ensure!(seen.is_ok(), "of all classes: {said}");
    println!("{said}");
    daemon.stop()?;
    Ok(())
}

/// The top tier is full of huge pages, all touched within milliseconds; of those below some are
/// touched nine times as often as all others together. So they change places, whole, and when the
/// daemon ends the kernel's setting is as before.
fn huge_exchange(ctx: &mut Ctx) -> Result<()> {
    const BALANCING: &str = "/proc/sys/kernel/numa_balancing";
    const EXCHANGED_MIN: f64 = 2.0 * 512.0;
    let vm = &ctx.vm;
    let before = vm.read(BALANCING)?;
    vm.write("/sys/kernel/mm/numa/demotion_enabled", "1")?;
    let mut program = vm.spawn(&[
        "load",
        "phase",
        "--size-mib",
        "256",
        "--near-mib",
        "160",
        "--home",
        "1",
        "--backing",
        "thp",
        "--threads",
        "2",
        "--accesses",
        "100000000000",
    ])?;
    vm.wait_until("it has its memory", Duration::from_secs(60), || {
        Ok(program.lines()?.iter().any(|line| line.contains("ready")))
    })?;
    fill_top_tier(ctx)?;
    let splits = || vm.vmstat("thp_migration_split");
    let wholes = || vm.vmstat("thp_migration_success");
    let (split, whole) = (splits()?, wholes()?);
    let daemon = Daemon::start(vm, &[])?;
    let mut said = String::new();
    let exchanged = vm.wait_until("huge pages change places", Duration::from_secs(90), || {
        let demoter = daemon.status()?["demoter"].clone();
        said = demoter.to_string();
        let pages = demoter["huge_promoted_pages"].as_f64();
        Ok(pages.is_some_and(|pages| pages >= EXCHANGED_MIN))
    });
    program.kill()?;
    daemon.stop()?;
    ensure!(exchanged.is_ok(), "{said}");
    let (split, whole) = (splits()? - split, wholes()? - whole);
    // The kernel splits some when it demotes on its own.
    ensure!(
        whole >= 4 * split.max(1),
        "{split} split, {whole} moved whole"
    );
    ensure!(vm.read(BALANCING)? == before, "the setting is left changed");
    Ok(())
}

/// Reserves all but a little of what is free on node 0, as huge pages that never move.
fn fill_top_tier(ctx: &Ctx) -> Result<()> {
    const RESERVED: &str = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages";
    let meminfo = ctx.vm.read("/sys/devices/system/node/node0/meminfo")?;
    let free = meminfo.lines().find(|line| line.contains("MemFree:"));
    let kib = free.and_then(|line| line.split_ascii_whitespace().nth(3));
    let free_mib = kib.context("no MemFree")?.parse::<u64>()? >> 10;
    let huge_pages = free_mib.saturating_sub(24) / 2;
    Ok(ctx.vm.write(RESERVED, huge_pages.to_string())?)
}

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

/// Where CPUs are on several nodes and normal balancing is on, as servers with two sockets have it,
/// the scanner goes by the kernel's settings: 256 MB at once, whose faults hold up each other, and
/// the next visit after up to a minute. Page tables show then what hint faults come too late for:
/// with hint faults alone these hot pages are not up when the process ends. To clear accessed bits
/// takes an emulator ten times as long as a machine, or longer, so scans get ten times the CPU
/// time, and the process is so small that a host that is busy with four other programs does not
/// make the sweep seem hot: 95 % take 6 to 8 s, and 11 s on such a host. What tells is whose faults
/// count, not the time. From none to 200,000 come late: page tables may be done before the kernel's
/// first visit.
fn normal_balancing_keeps_its_pace(ctx: &mut Ctx) -> Result<()> {
    const BALANCING: &str = "/proc/sys/kernel/numa_balancing";
    let vm = &ctx.vm;
    vm.write(BALANCING, "1")?;
    let settings = kernel_settings(vm)?;
    let daemon = Daemon::start(vm, &["--scan-cpu-max-percent", "50"])?;
    let flags = "--home 2 --fast 0,1 --cpus 0,2 --threads 2 --size-mib 384 --hot-percent 25 \
                 --cold-sweep-seconds 40 --report-ms 1000 --seconds 90 --until-good 80";
    let flags: Vec<&str> = flags.split_ascii_whitespace().collect();
    let done = finish(start_hotset_anywhere(vm, &flags)?.0)?;
    let status = daemon.status()?;
    let told = format!("{done}\n{status:#}");
    ensure!(done["t95_s"].as_f64().is_some_and(|s| s <= 60.0), "{told}");
    ensure!(number(&done, "/precision")? >= 0.8, "{told}");
    ensure!(status["marking"].is_null(), "{told}");
    let counted = number(&status, "/sources/0/stats/recorded")?;
    let quick = number(&status, "/sources/0/details/quick_faults")?;
    ensure!(counted <= quick, "late hint faults counted: {told}");
    let now = kernel_settings(vm)?;
    ensure!(now[3..] == settings[3..], "{now:?} instead of {settings:?}");
    daemon.stop()?;
    vm.write(BALANCING, "0")?;
    Ok(())
}
