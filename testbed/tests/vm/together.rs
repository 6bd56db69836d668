//! Several sources at once: each access counts once, and the right source works at each moment.

use std::time::Duration;

use anyhow::{Result, ensure};
use pghot_testbed::Vm;
use serde_json::Value;

use crate::rig::{
    Daemon, end_hog, finish, hog, hotset, kernel_settings, number, promotes_all, source,
    start_hotset, until_good, until_precise,
};
use crate::{Ctx, Test};

pub const TESTS: &[Test] = &[
    Test::new(
        "faults_stand_by_while_there_is_room",
        "tiered3-roomy",
        faults_stand_by_while_there_is_room,
    )
    .limit(Duration::from_secs(300)),
    Test::new("each_access_counts_once", "tiered3", |ctx| {
        each_access_counts_once(ctx, "0x5")
    }),
    Test::new("all_sources_count_it_once", "tiered3", |ctx| {
        each_access_counts_once(ctx, ALL)
    })
    .each_kernel(),
    Test::new(
        "page_tables_see_what_hint_faults_do_not",
        "tiered3",
        page_tables_see_the_rest,
    ),
    Test::new("one_reader_of_accessed_bits", "tiered3", one_reader),
    Test::new(
        "switched_off_they_leave_nothing",
        "tiered3",
        switched_off_they_leave_nothing,
    ),
];

const BALANCING: &str = "/proc/sys/kernel/numa_balancing";
/// All sources but hw_sample, which has no hardware here.
const ALL: &str = "0x3d";
/// A tenth is hot, and each cold page is touched once in 20 s.
const KNOWN: [&str; 8] = [
    "--size-mib",
    "128",
    "--hot-percent",
    "10",
    "--cold-sweep-seconds",
    "20",
    "--report-ms",
    "1000",
];

/// Of the pages that are promoted so many percent are hot at least. If accesses counted twice, it
/// would be ten. Hint faults alone take a cold page for hot that is touched right after its mark:
/// in the 125 ms after all of memory was marked the sweep comes to 180 pages beside 3277 hot ones,
/// and to twice as many if it meets a scanner that a busy host has slowed down.
const PRECISION_PERCENT: &str = "80";

/// A cold page that is touched once is seen by hint faults, and its accessed bit is set: if both
/// counted, it would be hot, and of ten promoted pages nine would be cold. The kernel's own monitor
/// reads and clears accessed bits meanwhile, where there is one.
fn each_access_counts_once(ctx: &mut Ctx, mask: &str) -> Result<()> {
    let vm = &ctx.vm;
    // Since 6.17; Debian has it on.
    let damon_stat = "/sys/module/damon_stat/parameters/enabled";
    if vm.exists(damon_stat)? {
        ensure!(vm.read(damon_stat)?.trim() == "Y", "DAMON_STAT is off");
    }
    let daemon = Daemon::start(vm, &["--enabled-sources", mask])?;
    let until = until_precise(PRECISION_PERCENT);
    let flags = [&KNOWN[..], &until, &["--seconds", "22"]].concat();
    let (process, ready) = start_hotset(vm, &flags)?;
    let pid = number(&ready, "/pid")?;
    let done = finish(process)?;
    let status = daemon.status()?;
    let (recall, precision) = (number(&done, "/recall")?, number(&done, "/precision")?);
    ensure!(
        recall >= 0.95 && precision >= 0.8,
        "recall {recall}, precision {precision}: {done}\n{status:#}"
    );
    ensure!(
        pid > 0.0 && moved_twice(vm, pid)?.is_empty(),
        "moved twice: {status:#}"
    );
    daemon.stop()?;
    Ok(())
}

/// Addresses of a process that were promoted more than once, as far as the journal is shown.
fn moved_twice(vm: &Vm, pid: f64) -> Result<Vec<f64>> {
    let explain = ["pghot", "explain", "--last", "4096", "--json"];
    let told: Value = serde_json::from_str(&vm.exec(&explain)?.success()?.stdout)?;
    let decisions = told["decisions"].as_array().into_iter().flatten();
    let of_process =
        decisions.filter(|d| d["pid"].as_f64() == Some(pid) && d["outcome"] == "moved");
    let mut addresses: Vec<f64> = of_process.filter_map(|d| d["address"].as_f64()).collect();
    // At its end the workload looks at all its pages, most of which then become ready in vain.
    ensure!(addresses.len() > 100, "only {} decisions", addresses.len());
    addresses.sort_by(f64::total_cmp);
    let twice = addresses.windows(2).filter(|pair| pair[0] == pair[1]);
    Ok(twice.map(|pair| pair[0]).collect())
}

/// Hint faults see no page that several processes share; page tables do, and report just these.
fn page_tables_see_the_rest(ctx: &mut Ctx) -> Result<()> {
    let vm = &ctx.vm;
    let flags = ["--enabled-sources", "0x5", "--scan-stall-max-ms", "300"];
    let daemon = Daemon::start(vm, &flags)?;
    let forks = ["--forks", "2", "--store-percent", "0", "--seconds", "22"];
    let done = hotset(vm, &[&KNOWN[..], until_good(), &forks].concat())?;
    let status = daemon.status()?;
    let (recall, precision) = (number(&done, "/recall")?, number(&done, "/precision")?);
    ensure!(
        recall >= 0.95 && precision >= 0.95,
        "recall {recall}, precision {precision}: {done}\n{status:#}"
    );
    let recorded = |name| number(source(&status, name)?, "/stats/recorded");
    let (faults, tables) = (recorded("hint_fault")?, recorded("pgtscan")?);
    ensure!(
        tables > 10.0 * faults,
        "{faults} hint faults and {tables} accessed bits: {status:#}"
    );
    daemon.stop()?;
    Ok(())
}

fn state(daemon: &Daemon, name: &str) -> Result<Value> {
    Ok(source(&daemon.status()?, name)?["state"].clone())
}

/// Of pgtscan and mglru one runs; when it is switched off, the other does.
fn one_reader(ctx: &mut Ctx) -> Result<()> {
    let daemon = Daemon::start(&ctx.vm, &["--enabled-sources", "0x14"])?;
    let states_are = |pgtscan: &str, mglru: &str| -> Result<()> {
        let status = daemon.status()?;
        let state = |name| Ok::<_, anyhow::Error>(source(&status, name)?["state"].clone());
        ensure!(
            state("pgtscan")? == pgtscan && state("mglru")? == mglru,
            "not {pgtscan} and {mglru}: {status:#}"
        );
        Ok(())
    };
    states_are("running", "standing_by")?;
    let set = ["pghot", "set", "enabled_sources", "0x10"];
    ctx.vm.exec(&set)?.success()?;
    states_are("disabled", "running")?;
    daemon.stop()?;
    Ok(())
}

/// BPF programs that are loaded, perf events, sockets below /run/pghot: what a source may leave.
fn traces(vm: &Vm, daemon: &Daemon) -> Result<(usize, usize, [String; 7])> {
    let (mut programs, mut events) = (0, 0);
    let dir = format!("/proc/{}/fdinfo", daemon.pid());
    for fd in vm.list(&dir)? {
        // A connection that asked may be gone meanwhile.
        let info = vm.read(&format!("{dir}/{fd}")).unwrap_or_default();
        programs += usize::from(info.contains("prog_id:") || info.contains("link_id:"));
    }
    let maps = vm.read(&format!("/proc/{}/maps", daemon.pid()))?;
    events += maps.matches("[perf_event]").count();
    Ok((programs, events, kernel_settings(vm)?))
}

fn switched_off_they_leave_nothing(ctx: &mut Ctx) -> Result<()> {
    let vm = &ctx.vm;
    let daemon = Daemon::start(vm, &["--enabled-sources", "0"])?;
    let set = |mask| {
        vm.exec(&["pghot", "set", "enabled_sources", mask])?
            .success()
    };
    let before = traces(vm, &daemon)?;
    for _ in 0..2 {
        set(ALL)?;
        let during = traces(vm, &daemon)?;
        ensure!(during.0 > before.0 && during.2 != before.2, "{during:?}");
        ensure!(
            vm.exec(&["stat", "/run/pghot/hint.sock"])?
                .success()
                .is_ok()
        );
        set("0")?;
        let after = traces(vm, &daemon)?;
        ensure!(after == before, "{after:?}, {before:?} before");
        let socket = vm.exec(&["stat", "/run/pghot/hint.sock"])?;
        ensure!(socket.success().is_err(), "the socket is left");
    }
    daemon.stop()?;
    Ok(())
}

/// With so much room that the kernel would promote in the fault, page tables tell what is hot: all
/// of it arrives, and nothing is promoted in a faulting thread. When room gets short, the hint
/// faults are back.
fn faults_stand_by_while_there_is_room(ctx: &mut Ctx) -> Result<()> {
    let vm = &ctx.vm;
    let flags = ["--enabled-sources", "0x5", "--freq-threshold", "2"];
    let daemon = Daemon::start(vm, &flags)?;
    let faults_are = |wanted: &str| {
        vm.wait_until(
            &format!("hint faults are {wanted}"),
            Duration::from_secs(120),
            || Ok(state(&daemon, "hint_fault").is_ok_and(|state| state == wanted)),
        )
    };
    ensure!(state(&daemon, "hint_fault")? == "standing_by");
    ensure!(vm.read(BALANCING)?.trim() == "0", "hint faults are on");
    let (promoted, faults) = (
        vm.vmstat("pgpromote_success")?,
        vm.vmstat("numa_hint_faults")?,
    );
    promotes_all(vm, &daemon)?;
    ensure!(
        vm.vmstat("pgpromote_success")? == promoted,
        "the kernel promoted pages"
    );
    ensure!(
        vm.vmstat("numa_hint_faults")? == faults,
        "threads took hint faults"
    );

    let room_mib = number(&daemon.status()?, "/top_tier/0/room_pages")? / 256.0;
    // Huge pages, because filling 3 GiB with base pages takes an emulator minutes.
    let hog = hog(vm, 0, room_mib - 700.0, "thp")?;
    faults_are("running")?;
    ensure!(vm.read(BALANCING)?.trim() == "2", "hint faults are off");
    end_hog(vm, hog)?;
    faults_are("standing_by")?;
    daemon.stop()?;
    ensure!(vm.read(BALANCING)?.trim() == "0", "not put back");
    Ok(())
}
