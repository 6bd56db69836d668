//! `pghot top` beside a real daemon: what it shows is what the kernel says.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pghot_testbed::{Vm, documents};
use serde_json::Value;

use crate::rig::{Daemon, finish, go, hold_hotset_in, outcome, promotes_all, refused};
use crate::{Ctx, Test};

pub const TESTS: &[Test] = &[
    Test::new(
        "top_shows_who_has_far_memory_and_what_moves",
        "tiered3",
        shows,
    ),
    Test::new("a_group_reads_and_changes_nothing", "tiered3", readers),
];

/// The workload's cgroup.
const GROUP: &str = "/sys/fs/cgroup/far";

/// One frame, as a terminal of so many columns would have it.
fn frame(vm: &Vm) -> Result<String> {
    frame_of(vm, "110")
}

fn frame_of(vm: &Vm, width: &str) -> Result<String> {
    let argv = ["pghot", "top", "--once", "--width", width];
    let output = vm.exec_with(&argv, &[("LC_ALL", "C.UTF-8")], b"")?;
    Ok(output.success()?.stdout)
}

/// The line of a frame that has a word in it.
fn line<'a>(frame: &'a str, word: &str) -> Result<&'a str> {
    let found = frame.lines().find(|line| line.contains(word));
    found.with_context(|| format!("no line of {word}:\n{frame}"))
}

/// MiB of node 2 in the cgroup, as the kernel says.
fn far_mib(vm: &Vm) -> Result<f64> {
    let stat = vm.read(&format!("{GROUP}/memory.numa_stat"))?;
    let kinds = stat
        .lines()
        .filter(|line| line.starts_with("anon ") || line.starts_with("file "));
    let bytes = kinds.flat_map(|line| line.split(' ').filter_map(|word| word.strip_prefix("N2=")));
    let bytes: Result<Vec<u64>, _> = bytes.map(str::parse).collect();
    Ok(bytes?.iter().sum::<u64>() as f64 / (1 << 20) as f64)
}

/// The memory of a cgroup is seen in the lower tier, then on its way up, and then up.
fn shows(ctx: &mut Ctx) -> Result<()> {
    let vm = &ctx.vm;
    let daemon = Daemon::start(vm, &["--promote-rate-limit-MBps", "8"])?;
    vm.write("/sys/fs/cgroup/cgroup.subtree_control", "+memory")?;
    vm.mkdir(GROUP)?;
    let flags = ["--size-mib", "128", "--until-promoted", "--seconds", "90"];
    let hot = hold_hotset_in(vm, GROUP, &flags)?;
    let before = frame(vm)?;
    let row = line(&before, " /far")?;
    let shown: f64 = row.split_whitespace().next().unwrap_or("").parse()?;
    let told = far_mib(vm)?;
    ensure!(
        told > 120.0 && (shown - told).abs() < 2.0,
        "{told} MiB:\n{before}"
    );
    let up = |frame: &str| -> Option<u64> {
        let rate = line(frame, "▲ up").ok()?.split_whitespace().nth(2)?;
        rate.replace(',', "").parse().ok()
    };
    // A page of another program may go.
    ensure!(up(&before).is_some_and(|per_s| per_s < 100), "{before}");

    go(vm)?;
    let mut moving = String::new();
    vm.wait_until("pages on their way up", Duration::from_secs(60), || {
        moving = frame(vm).unwrap_or_default();
        // 8 MiB/s are 2048 pages/s.
        Ok(up(&moving).is_some_and(|pages_per_s| pages_per_s > 500))
    })?;
    println!("{moving}");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operations.md");
    documents::put_sample(&page, "top", &frame_of(vm, "72")?)?;
    ensure!(line(&moving, "hint_fault")?.contains("running"), "{moving}");
    vm.exec(&["pghot", "set", "promote_rate_limit_MBps", "1024"])?
        .success()?;
    let done = finish(hot)?;
    ensure!(done["hot_left"] == 0, "{done}");
    let after = frame(vm)?;
    let moved = outcome(&daemon.status()?, "moved")?;
    let said = line(&after, "moved ")?
        .split_whitespace()
        .nth(1)
        .unwrap_or("");
    let said: f64 = said.replace(',', "").parse()?;
    ensure!(said <= moved && said >= 32_768.0, "{moved} moved:\n{after}");
    vm.exec(&["rmdir", GROUP])?.success()?;
    vm.write("/sys/fs/cgroup/cgroup.subtree_control", "-memory")?;
    daemon.stop()?;
    Ok(())
}

/// Members of the group pghot see what happens, and no more; others see nothing.
fn readers(ctx: &mut Ctx) -> Result<()> {
    const GROUPS: &str = "/etc/group";
    let vm = &ctx.vm;
    let before = vm.read(GROUPS).unwrap_or_default();
    if !vm.list("/")?.iter().any(|name| name == "etc") {
        vm.mkdir("/etc")?;
    }
    vm.write(GROUPS, format!("{before}pghot:x:990:\n"))?;
    let daemon = Daemon::start(vm, &["--freq-threshold", "1"])?;
    promotes_all(vm, &daemon)?;
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534"];
    let run =
        |groups, command: &[&str]| vm.exec(&[&nobody[..], &[groups, "pghot"], command].concat());
    let member = "--groups=990";
    let status = run(member, &["status", "--json"])?.success()?.stdout;
    let status: Value = serde_json::from_str(&status)?;
    ensure!(outcome(&status, "moved")? >= 8192.0, "{status:#}");
    for by in ["cgroup", "process"] {
        let told = run(member, &["status", "--by", by])?.success()?.stdout;
        ensure!(told.contains("PROMOTED"), "{told}");
    }
    let frame = run(member, &["top", "--once"])?.success()?.stdout;
    ensure!(line(&frame, "hint_fault")?.contains("running"), "{frame}");
    let metrics = run(member, &["metrics"])?.success()?.stdout;
    let promoted = line(&metrics, "pghot_promoted_pages_total{nid=\"2\"}")?;
    let promoted: f64 = promoted.rsplit(' ').next().unwrap_or("").parse()?;
    ensure!(promoted >= 8192.0, "{promoted}");
    let decisions = run(member, &["explain", "--last", "9", "--json"])?
        .success()?
        .stdout;
    let decisions: Value = serde_json::from_str(&decisions)?;
    let decisions = decisions["decisions"].as_array().context("no list")?;
    let is_silent = |decision: &Value| decision["pfn"].is_null() && decision["address"].is_null();
    ensure!(
        decisions.len() == 9 && decisions.iter().all(is_silent),
        "{decisions:#?}"
    );

    refused(run(member, &["set", "freq_threshold", "2"])?, "as root")?;
    refused(run(member, &["explain", "1", "7f0000000000"])?, "as root")?;
    for command in ["status", "metrics"] {
        refused(run("--clear-groups", &[command])?, "join the group pghot")?;
    }
    daemon.stop()?;
    vm.write(GROUPS, &before)?;
    Ok(())
}
