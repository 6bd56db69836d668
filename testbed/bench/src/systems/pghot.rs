//! pghot.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use pghot_testbed::{Process, Status, Vm};

use super::Running;

/// Verifying BPF programs takes an emulator half a minute, and longer on a busy host.
const START_LIMIT: Duration = Duration::from_secs(180);
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// SIGTERM.
const TERMINATE: i32 = 15;

/// The same for all workloads. One access makes a page hot, as in the kernel proposal's benchmarks; and
/// the page cache that no process maps is watched too, besides the sources that are on by default.
const ARGUMENTS: [&str; 6] = [
    "pghot",
    "run",
    "--freq-threshold",
    "1",
    "--enabled-sources",
    "0xd",
];

struct Daemon(Process);

/// Starts the daemon and waits until it answers.
pub fn start(vm: &Vm) -> Result<Box<dyn Running>> {
    let mut process = vm.spawn(&ARGUMENTS)?;
    let mut ended = false;
    vm.wait_until("pghot answers", START_LIMIT, || {
        ended = process.try_wait()?.is_some();
        Ok(ended || vm.exec(&["pghot", "status", "--json"])?.status == Status::Code(0))
    })?;
    if ended {
        bail!("`pghot run` ended at once: {}", process.stderr()?);
    }
    Ok(Box::new(Daemon(process)))
}

impl Running for Daemon {
    fn stop(mut self: Box<Self>) -> Result<()> {
        self.0.signal(TERMINATE)?;
        let output = self.0.wait(STOP_LIMIT)?.success();
        output.context("pghot did not end well")?;
        Ok(())
    }
}
