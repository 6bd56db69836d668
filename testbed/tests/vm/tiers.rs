//! What becomes of the tiers under a running daemon: full, offline, absent, or promoted to by the
//! kernel itself.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use pghot_testbed::{Process, Vm};

use crate::rig::{
    Daemon, LowerTier, end_hog, go, hog, hold_hotset, hotset, number, outcome, promotes_all,
    refused,
};
use crate::{Ctx, Test};

const DEMOTION: &str = "/sys/kernel/mm/numa/demotion_enabled";
const VMSTAT: &str = "/proc/vmstat";

/// Base pages.
const MIB: f64 = 256.0;

/// Whatever room node 1 has.
const TO_NODE_0: &[&str] = &["--freq-threshold", "1", "--target-nid", "0"];

pub const TESTS: &[Test] = &[
    Test::new(
        "a_full_node_is_passed_over",
        "tiered3",
        a_full_node_is_passed_over,
    ),
    Test::new(
        "a_full_top_tier_is_left_in_peace",
        "tiered3",
        a_full_top_tier,
    ),
    Test::new(
        "a_full_top_tier_makes_room",
        "tiered3",
        a_full_top_tier_makes_room,
    )
    .each_kernel(),
    Test::new(
        "what_goes_up_is_looked_at_again",
        "tiered3",
        what_goes_up_is_looked_at_again,
    )
    .long()
    .fresh(),
    Test::new("demotion_never_swaps", "tiered3-disk", demotion_never_swaps)
        .each_kernel()
        .limit(Duration::from_secs(400))
        .fresh(),
    Test::new(
        "an_offlined_node_is_let_go",
        "tiered3",
        an_offlined_node_is_let_go,
    )
    .each_kernel()
    .fresh(),
    Test::new(
        "without_a_lower_tier_it_says_so",
        "flat",
        without_a_lower_tier,
    ),
    Test::new(
        "doctor_reports_the_machine",
        "tiered3",
        doctor_reports_the_machine,
    )
    .each_kernel(),
    Test::new(
        "the_kernels_shortcut_is_reported",
        "tiered3-roomy",
        the_kernels_shortcut,
    ),
];

/// Programs take nearly all that node 0 has free, and keep it. While one does, the kernel frees
/// more, on 7 up to 38 MiB: the next one takes that.
fn fill_node_0(vm: &Vm, daemon: &Daemon) -> Result<Vec<Process>> {
    const ROOM: &str = "/top_tier/0/room_pages";
    /// Longer than a status stays the same.
    const SETTLED: Duration = Duration::from_secs(3);
    let mut hogs = Vec::new();
    while hogs.len() < 4 {
        hogs.push(hog(vm, 0, daemon.number(ROOM)? / MIB - 16.0, "anon")?);
        let is_full = vm.wait_until("node 0 is full", SETTLED, || {
            Ok(daemon.number(ROOM).is_ok_and(|room| room < 24.0 * MIB))
        });
        if is_full.is_ok() {
            return Ok(hogs);
        }
    }
    bail!("node 0 is not full: {:#}", daemon.status()?)
}

/// Ends them, and waits until their memory is free.
fn empty_node_0(vm: &Vm, hogs: Vec<Process>) -> Result<()> {
    hogs.into_iter().try_for_each(|hog| end_hog(vm, hog))
}

/// Waits until so many MiB are promoted.
fn promotes(vm: &Vm, daemon: &Daemon, mib: f64, seconds: u64) -> Result<()> {
    let what = format!("{mib} MiB are promoted");
    let promoted = vm.wait_until(&what, Duration::from_secs(seconds), || {
        let moved = outcome(&daemon.status().unwrap_or_default(), "moved");
        Ok(moved.is_ok_and(|moved| moved >= mib * MIB))
    });
    promoted.with_context(|| format!("{:#}", daemon.status().unwrap_or_default()))
}

/// Waits until so many MiB are demoted. A round is counted when it ends; pages may be promoted into
/// the room that it makes before that.
fn demotes(vm: &Vm, daemon: &Daemon, mib: f64) -> Result<()> {
    let what = format!("{mib} MiB are demoted");
    let demoted = vm.wait_until(&what, Duration::from_secs(30), || {
        let demoted = daemon.number("/demoter/demoted_pages");
        Ok(demoted.is_ok_and(|demoted| demoted >= mib * MIB))
    });
    demoted.with_context(|| format!("{:#}", daemon.status().unwrap_or_default()))
}

/// With no free memory above its watermark, and demotion off, the top tier is not pushed into
/// reclaim: hot pages wait, `status` says why, and no allocation stalls.
fn a_full_top_tier(ctx: &mut Ctx) -> Result<()> {
    let mut hot = hold_hotset(&ctx.vm, &["--size-mib", "128", "--seconds", "600"])?;
    let daemon = Daemon::start(&ctx.vm, TO_NODE_0)?;
    let hogs = fill_node_0(&ctx.vm, &daemon)?;
    let stalls = stalls(ctx)?;
    go(&ctx.vm)?;
    ctx.vm
        .wait_until("pages wait for room", Duration::from_secs(60), || {
            let status = daemon.status().unwrap_or_default();
            Ok(number(&status, "/lower_tier/0/last_pass/held/no_room")
                .is_ok_and(|pages| pages > 0.0))
        })?;
    let status = daemon.status()?;
    hot.kill()?;
    empty_node_0(&ctx.vm, hogs)?;
    // Giving up most of a node takes the kernel a while.
    ctx.vm
        .wait_until("node 0 is free again", Duration::from_secs(60), || {
            Ok(daemon
                .number("/top_tier/0/room_pages")
                .is_ok_and(|room| room > 400.0 * MIB))
        })?;
    ensure!(
        outcome(&status, "no_memory")? == 0.0,
        "the node was overdrawn: {status:#}"
    );
    let more = self::stalls(ctx)? - stalls;
    ensure!(more == 0, "{more} allocations stalled: {status:#}");
    let why = status
        .pointer("/lower_tier/0/why")
        .map(|why| why.to_string())
        .unwrap_or_default();
    ensure!(why.contains("watermark"), "{why}");
    daemon.stop()?;
    Ok(())
}

/// Node 0 is full, and node 1 as near to the lower tier: what node 0 has no room for goes there,
/// with the defaults, and nothing is demoted.
fn a_full_node_is_passed_over(ctx: &mut Ctx) -> Result<()> {
    let vm = &ctx.vm;
    let mut hot = hold_hotset(vm, &["--size-mib", "128", "--seconds", "600"])?;
    let daemon = Daemon::start(vm, &[])?;
    let hogs = fill_node_0(vm, &daemon)?;
    let before = daemon.number("/top_tier/1/room_pages")?;
    go(vm)?;
    promotes(vm, &daemon, 100.0, 90)?;
    let status = daemon.status()?;
    let taken = before - number(&status, "/top_tier/1/room_pages")?;
    ensure!(taken > 50.0 * MIB, "node 1 took {taken} pages: {status:#}");
    ensure!(
        number(&status, "/demoter/demoted_pages")? == 0.0,
        "{status:#}"
    );
    hot.kill()?;
    empty_node_0(vm, hogs)?;
    daemon.stop()?;
    Ok(())
}

/// With demotion on, the top tier is full of memory that nobody touches: it goes down, hot pages
/// take its place, and no allocation stalls.
fn a_full_top_tier_makes_room(ctx: &mut Ctx) -> Result<()> {
    let vm = &ctx.vm;
    vm.write(DEMOTION, "true")?;
    let mut hot = hold_hotset(vm, &["--size-mib", "128", "--seconds", "600"])?;
    let daemon = Daemon::start(vm, TO_NODE_0)?;
    let hogs = fill_node_0(vm, &daemon)?;
    let stalls = stalls(ctx)?;
    go(vm)?;
    promotes(vm, &daemon, 100.0, 90)?;
    demotes(vm, &daemon, 50.0)?;
    let more = self::stalls(ctx)? - stalls;
    ensure!(more == 0, "{more} allocations stalled");
    hot.kill()?;
    empty_node_0(vm, hogs)?;
    daemon.stop()?;
    vm.write(DEMOTION, "false")?;
    Ok(())
}

/// The top tier is full of memory that is in use, but less than a hot set below: pages change
/// places, and those that went up are seen to be touched again.
fn what_goes_up_is_looked_at_again(ctx: &mut Ctx) -> Result<()> {
    let vm = &ctx.vm;
    vm.write(DEMOTION, "true")?;
    // Or pages that are touched all the time would look as if they were not.
    let mut flusher = vm.spawn(&["flushtlb", "--seconds", "300"])?;
    let mut hot = hold_hotset(vm, &["--size-mib", "128", "--seconds", "600"])?;
    let daemon = Daemon::start(vm, TO_NODE_0)?;
    let size_mib = daemon.number("/top_tier/0/room_pages")? / MIB - 16.0;
    // Some times a second each: too often to count as idle for seconds, and seldom enough to be
    // told from what is below by an emulator's agings, of which one takes half a second.
    let busy =
        format!("hotset --home 0 --fast 1 --size-mib {size_mib:.0} --busy-percent 30 --cpus 2");
    let busy = format!("{busy} --seconds 600 --report-ms 60000");
    let mut busy = vm.spawn(&busy.split_whitespace().collect::<Vec<_>>())?;
    vm.wait_until("node 0 is full", Duration::from_secs(60), || {
        let room = daemon.number("/top_tier/0/room_pages");
        Ok(room.is_ok_and(|room| room < 40.0 * MIB))
    })?;
    go(vm)?;
    let looked_at = || daemon.number("/demoter/looked_pages");
    let seen = vm.wait_until("pages are looked at", Duration::from_secs(150), || {
        Ok(looked_at().is_ok_and(|pages| pages >= 64.0))
    });
    let status = daemon.status()?;
    seen.with_context(|| format!("{status:#}"))?;
    let share = number(&status, "/demoter/touched_again_pages")? / looked_at()?;
    ensure!(share > 0.5, "{share:.2} were touched again: {status:#}");
    for process in [&mut hot, &mut busy, &mut flusher] {
        process.kill()?;
    }
    daemon.stop()?;
    vm.write(DEMOTION, "false")?;
    Ok(())
}

/// With swap on and both tiers all but full, pages change places, and none is written to swap.
fn demotion_never_swaps(ctx: &mut Ctx) -> Result<()> {
    const DISK: &str = "/dev/nvme0n1";
    let vm = &ctx.vm;
    vm.write(DEMOTION, "true")?;
    vm.exec(&["mkswap", DISK])?.success()?;
    vm.exec(&["swapon", DISK])?.success()?;
    let _hot = hold_hotset(vm, &["--size-mib", "128", "--seconds", "600"])?;
    let free_below_mib = || {
        vm.node_vmstat(2, "nr_free_pages")
            .map(|pages| pages as f64 / MIB)
    };
    // Before the daemon, which would promote what it touches.
    let _below = hog(vm, 2, free_below_mib()? - 64.0, "anon")?;
    vm.wait_until("node 2 is full", Duration::from_secs(60), || {
        Ok(free_below_mib()? < 80.0)
    })?;
    let daemon = Daemon::start(vm, TO_NODE_0)?;
    let _above = fill_node_0(vm, &daemon)?;
    let before = vm.vmstat("pswpout")?;
    ensure!(before == 0, "{before} pages were swapped out without pghot");
    let counters = vm.read(VMSTAT)?;
    go(vm)?;
    promotes(vm, &daemon, 64.0, 240)?;
    demotes(vm, &daemon, 8.0)?;
    let swapped = vm.vmstat("pswpout")?;
    let who = reclaimed(&counters, &vm.read(VMSTAT)?);
    ensure!(swapped == 0, "{swapped} pages were swapped out: {who}");
    daemon.stop()?;
    Ok(())
}

/// The counters of reclaim that have changed between two readings of `/proc/vmstat`.
fn reclaimed(before: &str, after: &str) -> String {
    let is_reclaim = |line: &&str| {
        let names = [
            "allocstall",
            "kswapd",
            "pgdemote",
            "pgscan",
            "pgsteal",
            "psw",
        ];
        names.iter().any(|name| line.starts_with(name))
    };
    let lines = after.lines().filter(is_reclaim);
    let changed = lines.filter(|line| before.lines().all(|old| old != *line));
    changed.collect::<Vec<_>>().join(", ")
}

fn stalls(ctx: &Ctx) -> Result<u64> {
    Ok(ctx.vm.vmstat("allocstall_normal")? + ctx.vm.vmstat("allocstall_movable")?)
}

/// The memory of the lower tier that can goes offline under the daemon, and comes back: what there
/// is is tracked, and no more.
fn an_offlined_node_is_let_go(ctx: &mut Ctx) -> Result<()> {
    const PAGES: &str = "/lower_tier/0/pages";
    let daemon = Daemon::start(&ctx.vm, &["--freq-threshold", "1"])?;
    hotset(
        &ctx.vm,
        &["--size-mib", "32", "--until-promoted", "--seconds", "40"],
    )?;
    let lower_tier = LowerTier::of(&ctx.vm)?;
    let pages = daemon.number(PAGES)?;
    let offline = lower_tier.offline(&ctx.vm)?;
    ensure!(offline > 0, "no block of node 2 could be offlined");
    let left = lower_tier.pages(lower_tier.blocks() - offline);
    let limit = Duration::from_secs(60);
    ctx.vm.wait_until("they have no records", limit, || {
        Ok(match left {
            // Then there is no lower tier, and the daemon waits for one.
            0.0 => daemon.status().is_err(),
            left => daemon.number(PAGES).is_ok_and(|pages| pages == left),
        })
    })?;
    lower_tier.online(&ctx.vm)?;
    ctx.vm.wait_until("they have records again", limit, || {
        Ok(daemon.number(PAGES).is_ok_and(|now| now == pages))
    })?;
    promotes_all(&ctx.vm, &daemon)?;
    daemon.stop()?;
    Ok(())
}

fn without_a_lower_tier(ctx: &mut Ctx) -> Result<()> {
    refused(ctx.vm.exec(&["pghot", "run"])?, "lower memory tier")?;
    refused(ctx.vm.exec(&["pghot", "run"])?, "--wait-for-lower-tier")?;
    refused(ctx.vm.exec(&["pghot", "run"])?, "pghot doctor")
}

fn doctor_reports_the_machine(ctx: &mut Ctx) -> Result<()> {
    let release = ctx.vm.read("/proc/sys/kernel/osrelease")?;
    let output = ctx.vm.exec(&["pghot", "doctor"])?.success()?;
    for word in [release.trim(), "hint_fault", "lower tier", "numa_balancing"] {
        ensure!(
            output.stdout.contains(word),
            "doctor does not mention {word}:\n{}",
            output.stdout
        );
    }
    Ok(())
}

/// With 4 GiB of free top tier and hint faults alone, the kernel promotes at the fault whatever is
/// set; `status` says so.
fn the_kernels_shortcut(ctx: &mut Ctx) -> Result<()> {
    let daemon = Daemon::start(
        &ctx.vm,
        &["--enabled-sources", "0x1", "--freq-threshold", "1"],
    )?;
    let status = daemon.status()?;
    ensure!(
        status.pointer("/top_tier/0/free_space_shortcut") == Some(&true.into()),
        "{status:#}"
    );
    let promoted = ctx.vm.vmstat("pgpromote_success")?;
    hotset(
        &ctx.vm,
        &["--size-mib", "32", "--until-promoted", "--seconds", "30"],
    )?;
    ensure!(
        ctx.vm.vmstat("pgpromote_success")? > promoted,
        "the kernel's shortcut did not act"
    );
    let status = daemon.status()?;
    ensure!(
        status["warnings"].to_string().contains("by itself"),
        "{status:#}"
    );
    daemon.stop()?;
    Ok(())
}
