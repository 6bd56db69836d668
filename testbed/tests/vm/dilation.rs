//! A slower clock: the guest's time passes at the rate that was asked for, the guest works, and the
//! delays of memory are guest time.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use pghot_testbed::{Spec, Vm, Watch, guest_binaries};
use pghot_witness::report::Report;
use serde_json::Value;

use crate::rig::number;
use crate::{Ctx, Test};

pub const TESTS: &[Test] =
    &[Test::new("time_and_delays_are_slowed_as_asked", "bench", slowed).long()];

const DILATION: u32 = 10;

/// How far off the guest may be: it measures the rate of its time stamp counter when it boots, for
/// some milliseconds, against clocks that a busy host reads late.
const TOLERANCE: f64 = 0.05;

/// A file of proc counts hundredths of a second.
const UPTIME_STEP_S: f64 = 0.01;

/// The delay of far memory.
const FAR_NS: u64 = 1000;

/// Accesses of a run: 0.3 s of the guest with the delay, 3 s of the host.
const ACCESSES: u64 = 300_000;

/// Of so many runs the best counts.
const RUNS: usize = 2;

fn boot(ctx: &Ctx, delay_ns: Vec<u64>, out: PathBuf) -> Result<Vm> {
    let mut binaries = guest_binaries()?;
    binaries.push("/bin/sleep".into());
    let spec = Spec {
        dilation: DILATION,
        watch: Some(Watch {
            delay_ns,
            out,
            ..Watch::default()
        }),
        ..Spec::new(&ctx.machine, &ctx.kernel, &binaries)
    };
    let vm = Vm::boot(&spec)?;
    vm.write("/proc/sys/kernel/numa_balancing", "0")?;
    Ok(vm)
}

/// The guest's monotonic clock; it is never suspended, so uptime is the same.
fn guest_s(vm: &Vm) -> Result<f64> {
    let uptime = vm.read("/proc/uptime")?;
    let first = uptime.split_ascii_whitespace().next();
    Ok(first.context("uptime is empty")?.parse()?)
}

/// Two guests: one without a delay, which tells the time, and one with it.
fn slowed(ctx: &mut Ctx) -> Result<()> {
    for delay_ns in [0, FAR_NS] {
        let dir = tempfile::tempdir()?;
        let out = dir.path().join("witness.json");
        let vm = &boot(ctx, vec![0, delay_ns], out.clone())?;
        if delay_ns == 0 {
            time_passes_at_a_tenth(vm)?;
        }
        delay_is_guest_time(vm, &out, delay_ns)?;
    }
    Ok(())
}

/// Each reading of the guest's clock lies between two of the host's, so a busy host makes the
/// bounds wider and nothing wrong.
fn time_passes_at_a_tenth(vm: &Vm) -> Result<()> {
    const HOST_INTERVAL: Duration = Duration::from_secs(10);
    let read = || -> Result<_> {
        let asked = Instant::now();
        let guest_s = guest_s(vm)?;
        Ok((asked, guest_s, Instant::now()))
    };
    let (asked_first, first_s, told_first) = read()?;
    // The interval is what is measured.
    std::thread::sleep(HOST_INTERVAL);
    let (asked_last, last_s, told_last) = read()?;

    let passed_s = last_s - first_s;
    let by = f64::from(DILATION);
    let least_s = (asked_last - told_first).as_secs_f64() / by * (1.0 - TOLERANCE) - UPTIME_STEP_S;
    let most_s = (told_last - asked_first).as_secs_f64() / by * (1.0 + TOLERANCE) + UPTIME_STEP_S;
    ensure!(
        (least_s..=most_s).contains(&passed_s),
        "{passed_s} s passed in the guest, expected {least_s:.3} to {most_s:.3}"
    );

    // A sleep ends by the guest's clock: timers are slowed as clocks are.
    let asked = Instant::now();
    vm.exec(&["sleep", "1"])?.success()?;
    let slept_s = asked.elapsed().as_secs_f64();
    ensure!(
        slept_s >= by * (1.0 - TOLERANCE),
        "a second took {slept_s} s"
    );
    Ok(())
}

/// What an access takes, in ns of the guest.
struct Access {
    /// By the guest's clock, in which a busy host takes part.
    elapsed_ns: f64,
    /// By the emulator's CPU time, which is nearly the same on a busy host.
    cpu_ns: f64,
}

/// CPU time of all threads of the emulator, in host time.
fn emulator_s(vm: &Vm) -> Result<f64> {
    /// Fields of stat are in hundredths of a second, whatever the kernel's own tick.
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", vm.host_pid()))?;
    // Fields are counted from behind the name, which may hold spaces.
    let (_, fields) = stat.rsplit_once(')').context("stat has no name")?;
    let times = fields.split_ascii_whitespace().skip(11).take(2);
    let ticks: u64 = times.map(str::parse::<u64>).sum::<Result<_, _>>()?;
    Ok(ticks as f64 / TICKS)
}

/// The best of some runs on memory of a node, none of it in any cache.
fn access(vm: &Vm, out: &Path, node: &str) -> Result<Access> {
    let accesses = ACCESSES.to_string();
    let mut argv = vec!["load", "promote", "--home", node, "--size-mib", "32"];
    argv.extend(["--cpus", "0", "--witness", "--accesses", &accesses]);
    let (mut elapsed_s, mut cpu_s) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..RUNS {
        let before_s = emulator_s(vm)?;
        let output = vm.exec(&argv)?.success()?;
        cpu_s = cpu_s.min((emulator_s(vm)? - before_s) / f64::from(DILATION));
        let last = output.stdout.lines().last().context("load said nothing")?;
        let done: Value = serde_json::from_str(last)?;
        elapsed_s = elapsed_s.min(number(&done, "/elapsed_s")?);

        let report: Report = serde_json::from_slice(&std::fs::read(out)?)?;
        ensure!(report.is_complete && report.unknown == 0, "{report:?}");
        let node: usize = node.parse()?;
        ensure!(
            report.nodes[node].misses == ACCESSES && report.nodes[1 - node].accesses() == 0,
            "{:?}",
            report.nodes
        );
    }
    let each_ns = 1e9 / ACCESSES as f64;
    Ok(Access {
        elapsed_ns: elapsed_s * each_ns,
        cpu_ns: cpu_s * each_ns,
    })
}

/// A busy host makes accesses slower, never faster, so the guest's clock tells that a delay is long
/// enough, and the emulator's CPU time that it is not too long. In host time it would be a tenth,
/// and if it were dilated twice, ten times as long.
fn delay_is_guest_time(vm: &Vm, out: &Path, delay_ns: u64) -> Result<()> {
    let far = FAR_NS as f64;
    let (near_node, far_node) = (access(vm, out, "0")?, access(vm, out, "1")?);
    let more_ns = far_node.cpu_ns - near_node.cpu_ns;
    let is_right = match delay_ns {
        0 => more_ns.abs() < far / 2.0,
        _ => far_node.elapsed_ns > far * (1.0 - TOLERANCE) && more_ns < far * 1.5,
    };
    let Access { elapsed_ns, cpu_ns } = far_node;
    ensure!(
        is_right,
        "with a delay of {delay_ns} ns, far takes {elapsed_ns:.0} ns, {cpu_ns:.0} of the CPU, and \
         near {:.0} ns, {:.0} of the CPU",
        near_node.elapsed_ns,
        near_node.cpu_ns
    );
    Ok(())
}
