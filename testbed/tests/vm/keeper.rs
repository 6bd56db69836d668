//! The keeper puts the settings back when the daemon dies alone, and is missed when it dies.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pghot_testbed::{Status, Vm};

use crate::rig::{Daemon, KERNEL_SETTINGS, kernel_settings, promotes_all};
use crate::{Ctx, Test};

pub const TESTS: &[Test] = &[
    Test::new(
        "killed_alone_its_keeper_puts_settings_back",
        "tiered3",
        killed_alone,
    ),
    Test::new(
        "without_its_keeper_the_daemon_ends",
        "tiered3",
        without_its_keeper,
    ),
    Test::new("the_daemon_is_not_root", "tiered3", the_daemon_is_not_root),
];

/// By the guest's clock.
const BACK_WITHIN_MS: u64 = 1000;

/// Sends a process a signal, and says after how many ms all settings are as they were. A sysctl
/// gives its value to a single read, which the shell's own does not do.
const KILL_AND_WAIT: &str = r#"
pid=$1; wanted=$2; signal=$3
shift 3
now() { read up rest </proc/uptime; now=${up%.*}${up#*.}; }
now; began=$now
kill -"$signal" "$pid"
until [ "$(echo $(cat "$@"))" = "$wanted" ]; do
    now; [ $((now - began)) -lt 300 ] || exit 1
done
now; echo $((10 * (now - began)))
"#;

/// Sends the daemon a signal; all settings must be as they were within a second. Returns after how
/// many ms they are.
pub fn puts_back_in_time(vm: &Vm, pid: i32, signal: &str, original: &[String; 7]) -> Result<u64> {
    let (pid, wanted) = (pid.to_string(), original.join(" "));
    let kill = ["sh", "-c", KILL_AND_WAIT, "sh", &pid, &wanted, signal];
    let output = vm
        .exec(&[&kill[..], &KERNEL_SETTINGS].concat())?
        .success()
        .with_context(|| {
            let left = kernel_settings(vm);
            format!("{left:?} is left of {original:?}")
        })?;
    let took_ms: u64 = output.stdout.trim().parse()?;
    ensure!(
        took_ms <= BACK_WITHIN_MS,
        "settings are back {took_ms} ms after SIG{signal}"
    );
    Ok(took_ms)
}

fn killed_alone(ctx: &mut Ctx) -> Result<()> {
    ctx.vm.write("/proc/sys/kernel/numa_balancing", "1")?;
    let original = kernel_settings(&ctx.vm)?;
    for _ in 0..3 {
        let daemon = Daemon::start(&ctx.vm, &[])?;
        ensure!(
            kernel_settings(&ctx.vm)? != original,
            "the daemon changed nothing"
        );
        puts_back_in_time(&ctx.vm, daemon.pid(), "KILL", &original)?;
        ensure!(daemon.ended()?.status == Status::Signal(libc::SIGKILL));
        let soon = Duration::from_secs(10);
        ctx.vm.wait_until("the state file is gone", soon, || {
            Ok(!ctx.vm.exists("/run/pghot/state.json")?)
        })?;
    }
    // Nobody needs to wait for that.
    let mut daemon = ctx.vm.spawn(&["pghot", "run"])?;
    daemon.signal(libc::SIGKILL)?;
    ctx.vm.exec(&["pghot", "restore"])?.success()?;
    Daemon::start(&ctx.vm, &[])?.stop()?;
    ensure!(kernel_settings(&ctx.vm)? == original);
    daemon.wait(Duration::from_secs(10))?;
    Ok(())
}

/// It must not go on where nobody would put the settings back, and says who does it now.
fn without_its_keeper(ctx: &mut Ctx) -> Result<()> {
    let original = kernel_settings(&ctx.vm)?;
    let daemon = Daemon::start(&ctx.vm, &[])?;
    ctx.vm.kill(daemon.keeper()?, libc::SIGKILL)?;
    let ended = daemon.ended()?;
    ensure!(ended.status == Status::Code(1), "{ended:?}");
    ensure!(ended.stderr.contains("`pghot restore`"), "{}", ended.stderr);
    ensure!(kernel_settings(&ctx.vm)? != original, "who put them back?");
    ctx.vm.exec(&["pghot", "restore"])?.success()?;
    ensure!(kernel_settings(&ctx.vm)? == original);
    Ok(())
}

/// Capabilities of linux/capability.h, as docs/install.md lists them: DAC_READ_SEARCH, FOWNER,
/// SYS_PTRACE, SYS_ADMIN, SYS_NICE, SYSLOG, PERFMON, BPF.
const DAEMON_CAPABILITIES: [u32; 8] = [2, 3, 19, 21, 23, 34, 38, 39];
/// DAC_OVERRIDE for clear_refs, and SYS_ADMIN, which `kernel.numa_balancing` asks for.
const KEEPER_CAPABILITIES: [u32; 2] = [1, 21];

fn the_daemon_is_not_root(ctx: &mut Ctx) -> Result<()> {
    let daemon = Daemon::start(&ctx.vm, &["--enabled-sources", "0x3b"])?;
    let field = |pid: i32, name: &str| -> Result<String> {
        let status = ctx.vm.read(&format!("/proc/{pid}/status"))?;
        let mut lines = status.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(field, _)| *field == name);
        Ok(found.context("no such field")?.1.trim().to_owned())
    };
    let all_of = |capabilities: &[u32]| {
        let mask = capabilities.iter().fold(0u64, |mask, bit| mask | 1 << bit);
        format!("{mask:016x}")
    };
    let keeper = daemon.keeper()?;
    for (pid, uid, capabilities) in [
        (daemon.pid(), "990", all_of(&DAEMON_CAPABILITIES)),
        (keeper, "0", all_of(&KEEPER_CAPABILITIES)),
    ] {
        let ids = field(pid, "Uid")?;
        ensure!(ids.split('\t').all(|id| id == uid), "{pid} has {ids}");
        for set in ["CapPrm", "CapEff"] {
            ensure!(field(pid, set)? == capabilities, "{pid}: {set}");
        }
        ensure!(field(pid, "CapInh")? == all_of(&[]), "{pid}");
        ensure!(field(pid, "NoNewPrivs")? == "1", "{pid}");
    }
    let pid = daemon.pid();
    ensure!(field(pid, "Gid")?.split('\t').all(|id| id == "990"));
    ensure!(field(pid, "Groups")?.is_empty());
    ensure!(field(keeper, "Name")? == "pghot-keeper");
    let oom = ctx.vm.read(&format!("/proc/{pid}/oom_score_adj"))?;
    ensure!(oom.trim() == "-900", "{oom}");

    // Its memory is near, locked, and nothing of it lies in the lower tier.
    ensure!(field(pid, "VmLck")? != "0 kB");
    let maps = ctx.vm.read(&format!("/proc/{pid}/numa_maps"))?;
    let heap = maps.lines().find(|line| line.contains("heap"));
    let heap = heap.context("no heap")?;
    ensure!(heap.contains("prefer (many):0-1"), "{heap}");
    // Files lie where whoever read them first had them.
    let is_own = |line: &&str| line.contains(" N2=") && !line.contains(" file=");
    let lower: Vec<_> = maps.lines().filter(is_own).collect();
    ensure!(lower.is_empty(), "{lower:#?}");
    promotes_all(&ctx.vm, &daemon)?;
    daemon.stop()?;
    Ok(())
}
