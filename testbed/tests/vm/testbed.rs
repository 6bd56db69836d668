//! The testbed tests itself: what the other tests believe about it must hold.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use pghot_testbed::{Error, Status, Vm};

use crate::{Ctx, Test};

pub const TESTS: &[Test] = &[
    Test::new(
        "nodes_and_tiers_are_as_declared",
        "tiered3",
        nodes_and_tiers_are_as_declared,
    )
    .each_kernel(),
    Test::new(
        "nodes_and_tiers_are_as_declared",
        "tiered3-roomy",
        nodes_and_tiers_are_as_declared,
    ),
    Test::new(
        "nodes_and_tiers_are_as_declared",
        "tiered3-la48",
        nodes_and_tiers_are_as_declared,
    ),
    Test::new(
        "nodes_and_tiers_are_as_declared",
        "flat",
        nodes_and_tiers_are_as_declared,
    ),
    Test::new(
        "four_level_page_tables",
        "tiered3-la48",
        four_level_page_tables,
    ),
    Test::new(
        "exec_returns_status_and_output",
        "tiered3",
        exec_returns_status_and_output,
    ),
    Test::new(
        "output_comes_while_running",
        "tiered3",
        output_comes_while_running,
    ),
    Test::new(
        "large_files_and_output_survive",
        "tiered3",
        large_files_and_output_survive,
    ),
    Test::new(
        "sweep_finds_what_is_left",
        "tiered3",
        sweep_finds_what_is_left,
    ),
    Test::new("a_panic_fails_at_once", "tiered3", a_panic_fails_at_once).fresh(),
    Test::new(
        "a_killed_guest_fails_at_once",
        "tiered3",
        a_killed_guest_fails_at_once,
    )
    .fresh(),
    Test::new(
        "a_hang_is_cut_by_the_limit",
        "tiered3",
        a_hang_is_cut_by_the_limit,
    )
    .fresh(),
    Test::new(
        "power_off_ends_the_emulator",
        "tiered3",
        power_off_ends_the_emulator,
    )
    .fresh(),
];

/// A failure must show within this time, which a busy host can keep.
const AT_ONCE: Duration = Duration::from_secs(10);

fn nodes_and_tiers_are_as_declared(ctx: &mut Ctx) -> Result<()> {
    let Ctx {
        vm,
        machine,
        kernel,
        ..
    } = ctx;
    let release = vm.read("/proc/sys/kernel/osrelease")?;
    ensure!(
        release.starts_with(&format!("{}.", kernel.name)),
        "kernel {release}"
    );

    for (id, node) in machine.nodes.iter().enumerate() {
        let dir = format!("/sys/devices/system/node/node{id}");
        let cpus = number_list(&vm.read(&format!("{dir}/cpulist"))?)?;
        ensure!(
            cpus.len() == node.cpus as usize,
            "node {id} has CPUs {cpus:?}"
        );

        let distances = vm.read(&format!("{dir}/distance"))?;
        let distances: Vec<u8> = distances
            .split_whitespace()
            .map(str::parse)
            .collect::<Result<_, _>>()?;
        ensure!(
            distances == machine.distances[id],
            "node {id} has distances {distances:?}"
        );

        // Firmware and the kernel's own image and page structures take their part of each node.
        let meminfo = vm.read(&format!("{dir}/meminfo"))?;
        let total = meminfo
            .split_whitespace()
            .skip_while(|word| *word != "MemTotal:")
            .nth(1);
        let total_mib = total.context("no MemTotal")?.parse::<u64>()? / 1024;
        let all = node.memory_mib;
        ensure!(
            (all * 3 / 4..=all).contains(&total_mib),
            "node {id} has {total_mib} MiB"
        );
    }

    let mut tiers = Vec::new();
    let tier_dir = "/sys/devices/virtual/memory_tiering";
    for name in vm.list(tier_dir)? {
        if let Some(rank) = name.strip_prefix("memory_tier") {
            let nodes = number_list(&vm.read(&format!("{tier_dir}/{name}/nodelist"))?)?;
            tiers.push((rank.parse::<u32>()?, nodes));
        }
    }
    tiers.sort();
    let tiers: Vec<_> = tiers.into_iter().map(|(_, nodes)| nodes).collect();
    ensure!(
        tiers == machine.tiers(),
        "the kernel sees the tiers {tiers:?}"
    );
    Ok(())
}

fn four_level_page_tables(ctx: &mut Ctx) -> Result<()> {
    let cpuinfo = ctx.vm.read("/proc/cpuinfo")?;
    ensure!(
        !cpuinfo.split_whitespace().any(|flag| flag == "la57"),
        "the CPU has la57"
    );
    Ok(())
}

fn exec_returns_status_and_output(ctx: &mut Ctx) -> Result<()> {
    let vm = &ctx.vm;
    let script = r#"cat; echo "$GREETING" >&2; exit 3"#;
    let output = vm.exec_with(&["sh", "-c", script], &[("GREETING", "hello")], b"in\n")?;
    ensure!(output.status == Status::Code(3), "{output:?}");
    ensure!(
        (output.stdout.as_str(), output.stderr.as_str()) == ("in\n", "hello\n"),
        "{output:?}"
    );

    let output = vm.exec(&["sh", "-c", "kill -9 $$"])?;
    ensure!(output.status == Status::Signal(libc::SIGKILL), "{output:?}");

    let missing = vm.exec(&["no-such-program"]);
    ensure!(matches!(missing, Err(Error::Refused { .. })), "{missing:?}");
    Ok(())
}

fn output_comes_while_running(ctx: &mut Ctx) -> Result<()> {
    let vm = &ctx.vm;
    let script = "trap 'echo caught; exit 5' TERM; echo ready; while :; do sleep 0.05; done";
    let mut process = vm.spawn(&["sh", "-c", script])?;
    let mut lines = Vec::new();
    vm.wait_until("the first line", AT_ONCE, || {
        lines.extend(process.lines()?);
        Ok(!lines.is_empty())
    })?;
    ensure!(lines == ["ready"], "{lines:?}");
    ensure!(process.try_wait()?.is_none(), "ended early");

    process.signal(libc::SIGTERM)?;
    let output = process.wait(AT_ONCE)?;
    ensure!(output.status == Status::Code(5), "{output:?}");
    ensure!(
        process.lines()? == ["caught"] && output.stdout == "ready\ncaught\n",
        "{output:?}"
    );
    Ok(())
}

fn large_files_and_output_survive(ctx: &mut Ctx) -> Result<()> {
    let vm = &ctx.vm;
    let data: Vec<u8> = (0..100_000u32)
        .map(|number| (number * 7 % 251) as u8)
        .collect();
    vm.write("/tmp/data", &data)?;
    ensure!(
        vm.read_bytes("/tmp/data")? == data,
        "the file came back changed"
    );

    let text: String = (0..20_000).map(|number| format!("{number}\n")).collect();
    vm.write("/tmp/text", &text)?;
    let output = vm.exec(&["cat", "/tmp/text"])?;
    ensure!(output.stdout == text, "the output came back changed");
    Ok(())
}

fn sweep_finds_what_is_left(ctx: &mut Ctx) -> Result<()> {
    let vm = &ctx.vm;
    vm.exec(&["sh", "-c", "sleep 1000 >/dev/null 2>&1 &"])?;
    let left = vm.sweep()?;
    ensure!(
        matches!(&left[..], [name] if name.ends_with(" sleep")),
        "{left:?}"
    );
    ensure!(vm.sweep()?.is_empty(), "something survived");
    Ok(())
}

fn a_panic_fails_at_once(ctx: &mut Ctx) -> Result<()> {
    let console = gone(&ctx.vm, || ctx.vm.write("/proc/sysrq-trigger", "c"))?;
    ensure!(
        console.contains("Kernel panic"),
        "the reason is not shown:\n{console}"
    );
    Ok(())
}

fn a_killed_guest_fails_at_once(ctx: &mut Ctx) -> Result<()> {
    ctx.vm.write("/dev/kmsg", "<3>about to be killed\n")?;
    let mut process = ctx.vm.spawn(&["sleep", "1000"])?;
    signal_emulator(&ctx.vm, libc::SIGKILL)?;
    let console = gone(&ctx.vm, || process.wait(Duration::from_secs(100)).map(drop))?;
    ensure!(console.contains("about to be killed"), "{console}");
    Ok(())
}

fn signal_emulator(vm: &Vm, signal: i32) -> Result<()> {
    let pid = i32::try_from(vm.host_pid())?;
    // SAFETY: takes two numbers; the emulator is a child that nobody has waited for yet.
    let done = unsafe { libc::kill(pid, signal) } == 0;
    ensure!(
        done,
        "no signal to {pid}: {}",
        std::io::Error::last_os_error()
    );
    Ok(())
}

/// The console's end in the error of a call that cannot come back.
fn gone(vm: &Vm, call: impl FnOnce() -> Result<(), Error>) -> Result<String> {
    let start = Instant::now();
    let console = match call() {
        Err(Error::Gone { console, .. }) => console,
        other => bail!("expected the guest to be gone, not {other:?}"),
    };
    ensure!(start.elapsed() < AT_ONCE, "it took {:?}", start.elapsed());
    ensure!(
        matches!(vm.read("/proc/uptime"), Err(Error::Gone { .. })),
        "it still answers"
    );
    Ok(console)
}

fn a_hang_is_cut_by_the_limit(ctx: &mut Ctx) -> Result<()> {
    let limit = Duration::from_secs(1);
    signal_emulator(&ctx.vm, libc::SIGSTOP)?;
    let start = Instant::now();
    ctx.vm.set_limit(limit);
    let result = ctx.vm.read("/proc/uptime");
    ensure!(
        matches!(result, Err(Error::Hang { .. })),
        "expected a hang, not {result:?}"
    );
    ensure!(
        start.elapsed() < limit + AT_ONCE,
        "it took {:?}",
        start.elapsed()
    );
    Ok(())
}

fn power_off_ends_the_emulator(ctx: &mut Ctx) -> Result<()> {
    ctx.vm.power_off()?;
    ensure!(
        matches!(ctx.vm.read("/proc/uptime"), Err(Error::Gone { .. })),
        "it still answers"
    );
    Ok(())
}

/// "0-1,3" as numbers.
fn number_list(text: &str) -> Result<Vec<usize>> {
    let mut numbers = Vec::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        numbers.extend(first.parse::<usize>()?..=last.parse()?);
    }
    Ok(numbers)
}
