//! A mover that waits in `move_pages` for a server that has stopped: the settings go back all the
//! same, and the process is gone when the server goes on.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pghot_testbed::{Process, Status, Vm};
use serde_json::Value;

use crate::keeper::puts_back_in_time;
use crate::rig::{Daemon, finish, go, kernel_settings, start_workload};
use crate::{Ctx, Test};

pub const TESTS: &[Test] = &[Test::new(
    "a_mover_that_waits_for_a_dead_server_holds_nothing_up",
    "tiered3",
    waits_for_a_dead_server,
)
.limit(Duration::from_secs(300))];

const LIMIT: Duration = Duration::from_secs(60);

/// Looks in a row at which the mover waits: a move that ends does not take so long.
const LOOKS: u32 = 20;

fn waits_for_a_dead_server(ctx: &mut Ctx) -> Result<()> {
    let vm = &ctx.vm;
    vm.write("/proc/sys/kernel/numa_balancing", "1")?;
    let original = kernel_settings(vm)?;
    for (signal, status) in [
        ("TERM", Status::Code(1)),
        ("KILL", Status::Signal(libc::SIGKILL)),
    ] {
        let (daemon, server) = hang(vm)?;
        ensure!(kernel_settings(vm)? != original, "nothing was changed");
        puts_back_in_time(vm, daemon.pid(), signal, &original)?;
        // What is left of the process is the thread that waits.
        vm.wait_until("the daemon has ended but for the mover", LIMIT, || {
            Ok(state(vm, daemon.pid(), daemon.pid())?.starts_with('Z'))
        })?;
        ensure!(mover_waits(vm, daemon.pid())?, "the mover did not wait");
        go(vm)?;
        finish(server)?;
        let ended = daemon.ended()?;
        ensure!(ended.status == status, "SIG{signal}: {ended:?}");
        let is_told = ended.stderr.contains("the kernel keeps it waiting");
        ensure!(is_told == (signal == "TERM"), "{}", ended.stderr);
        ensure!(kernel_settings(vm)? == original);
    }
    Ok(())
}

/// A daemon whose mover waits, and the server that it waits for.
fn hang(vm: &Vm) -> Result<(Daemon, Process)> {
    let flags = ["--home", "2", "--hold", "/tmp/go"];
    let (mut server, ready) = start_workload(vm, "stalled", &flags)?;
    let daemon = Daemon::start(vm, &["--enabled-sources", "0x21", "--freq-threshold", "1"])?;
    go(vm)?;
    vm.wait_until("the server has stopped", LIMIT, || {
        let lines = server.lines()?;
        Ok(lines.iter().any(|line| line.contains("\"stalled\"")))
    })?;
    let hint = hint_of(&ready)?;
    let hint: Vec<&str> = hint.iter().map(String::as_str).collect();
    vm.exec(&hint)?.success()?;
    let mut looks = 0;
    let waited = vm.wait_until("the mover waits for the page", LIMIT, || {
        looks = match mover_waits(vm, daemon.pid()) {
            Ok(true) => looks + 1,
            _ => 0,
        };
        Ok(looks == LOOKS)
    });
    waited.with_context(|| format!("{:#}", daemon.status().unwrap_or_default()))?;
    Ok((daemon, server))
}

/// The command that says of all of its pages that they are in use.
fn hint_of(ready: &Value) -> Result<[String; 5]> {
    let base = ready["base"].as_str().context("no base")?;
    let base = base.trim_start_matches("0x").to_owned();
    let (pid, bytes) = (ready["pid"].to_string(), ready["bytes"].to_string());
    Ok(["pghot".into(), "hint".into(), pid, base, bytes])
}

/// The state of a thread, and what follows it in its `stat`.
fn state(vm: &Vm, pid: i32, tid: i32) -> Result<String, pghot_testbed::Error> {
    let stat = vm.read(&format!("/proc/{pid}/task/{tid}/stat"))?;
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    Ok(after_name.trim_start().to_owned())
}

/// Whether the migrator of node 2 is in a sleep that no signal ends.
fn mover_waits(vm: &Vm, pid: i32) -> Result<bool> {
    for tid in vm.list(&format!("/proc/{pid}/task"))? {
        let name = vm.read(&format!("/proc/{pid}/task/{tid}/comm"))?;
        if name.trim() == "migrator2" {
            return Ok(state(vm, pid, tid.parse()?)?.starts_with('D'));
        }
    }
    Ok(false)
}
