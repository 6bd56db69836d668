//! What the hook adds to a hint fault, in instructions: the guest's clock counts them.

use std::time::Duration;

use anyhow::{Result, ensure};
use pghot_testbed::{Spec, Vm, guest_binaries, guest_binary};
use serde_json::Value;

use crate::rig::{Daemon, KERNEL_SETTINGS, kernel_settings, number};
use crate::{Ctx, Test};

pub const TESTS: &[Test] = &[Test::new(
    "the_hook_adds_less_than_a_third_to_a_hint_fault",
    "tiered3",
    adds_less_than_a_third,
)
.long()];

/// Of the instructions of a touch that faults.
const MOST: f64 = 0.3;

/// Fewer faults tell nothing.
const FAULTS_MIN: f64 = 1000.0;

/// The same program under the same settings of the kernel, with the hook and without it.
fn adds_less_than_a_third(ctx: &mut Ctx) -> Result<()> {
    let mut binaries = guest_binaries()?;
    binaries.push(guest_binary("hintfault")?);
    let spec = Spec {
        counts_instructions: true,
        limit: Duration::from_secs(600),
        ..Spec::new(&ctx.machine, &ctx.kernel, &binaries)
    };
    let vm = &Vm::boot(&spec)?;
    // Nothing moves, so that all faults are alike.
    let flags = ["--enabled-sources", "0x1", "--promote-rate-limit-MBps", "0"];
    let daemon = Daemon::start(vm, &flags)?;
    let settings = kernel_settings(vm)?;
    let hooked = fault(vm)?;
    daemon.stop()?;
    for (path, value) in KERNEL_SETTINGS.iter().zip(settings) {
        vm.write(path, value)?;
    }
    let alone = fault(vm)?;
    let more = hooked - alone;
    let percent = 100.0 * more / alone;
    println!(
        "a hint fault has {alone} instructions, and {more} more with the hook, {percent:.1} %"
    );
    ensure!(
        more > 0.0,
        "{hooked} instructions with the hook, {alone} without"
    );
    ensure!(more <= MOST * alone, "{more} of {alone}");
    Ok(())
}

/// The median of its instructions, entry and return included.
fn fault(vm: &Vm) -> Result<f64> {
    let output = vm.exec(&["hintfault", "--home", "2"])?.success()?;
    let done: Value = serde_json::from_str(&output.stdout)?;
    let faults = number(&done, "/faults")?;
    ensure!(faults >= FAULTS_MIN, "{faults} faults: {done:#}");
    number(&done, "/fault_p50_ns")
}
