//! `make demo`: three ways to get a workload's hot pages into the top tier, compared in one guest.
//!
//! One stock kernel is booted; then, round after round, the same workload runs under each system in
//! turn (see `systems.rs`). It ends with a table, `demo.json` with every single value, and
//! `demo.html`, a page that tells and plots the same.

mod flags;
mod metrics;
mod numbers;
mod page;
mod plot;
mod progress;
mod results;
mod run;
mod statistics;
mod systems;
mod table;

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use pghot_testbed::{Error, Kernel, Machine, Spec, Vm, guest_binaries};

use flags::Flags;
use progress::Progress;
use results::{Report, Run};
use run::Workload;
use systems::System;

/// The machine: 1 GiB a node, so that the kernel's free-space shortcut stays out of the picture.
const MACHINE: &str = "tiered3";

/// The kernel unless `PGHOT_KERNEL` names another image.
const KERNEL: &str = "6.12";

/// How long one run may take before something must be wrong.
const RUN_LIMIT: Duration = Duration::from_secs(90);

fn main() -> ExitCode {
    let flags = match Flags::parse(std::env::args().skip(1)) {
        Ok(flags) => flags,
        Err(problem) => {
            eprintln!("demo: {problem}\n{}", flags::USAGE);
            return ExitCode::from(2);
        }
    };
    match demo(&flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn demo(flags: &Flags) -> Result<(), Error> {
    let report = match &flags.from {
        Some(path) => Report::load(path)?,
        None => measure(flags)?,
    };
    print!("{}", table::render(&report));
    let json = flags.out.join("demo.json");
    let html = flags.out.join("demo.html");
    fs::create_dir_all(&flags.out).map_err(io_error(&flags.out))?;
    fs::write(&json, report.to_json()?).map_err(io_error(&json))?;
    fs::write(&html, page::render(&report)).map_err(io_error(&html))?;
    let shown = fs::canonicalize(&html).unwrap_or(html);
    println!(
        "\nall values: {}\nthe page:   {}",
        json.display(),
        shown.display()
    );
    Ok(())
}

/// Boots the machine and runs everything; the first round only warms the emulator up.
fn measure(flags: &Flags) -> Result<Report, Error> {
    let machine = Machine::load(MACHINE)?;
    let kernel = Kernel::from_env_or(KERNEL)?;
    let workload = Workload::on(&machine);
    let mut progress = Progress::new(&flags.systems, flags.rounds);

    progress.say(&format!(
        "booting kernel {} on machine {}",
        kernel.name, machine.name
    ));
    let vm = Vm::boot(&Spec::new(&machine, &kernel, &guest_binaries()?))?;
    let release = vm.read("/proc/sys/kernel/osrelease")?.trim().to_owned();

    let mut runs: Vec<Run> = Vec::new();
    for round in 0..=flags.rounds {
        for system in order(&flags.systems, round) {
            vm.set_limit(RUN_LIMIT);
            progress.begin(round, system);
            let run = run::run(&vm, &workload, system, round, &mut progress)?;
            progress.end(&run);
            if round > 0 {
                runs.push(run);
            }
        }
    }
    progress.finish();
    vm.power_off()?;
    Ok(Report::new(
        release,
        &machine,
        flags.rounds,
        workload.pages(),
        runs,
    ))
}

/// The systems of a round: whoever goes first changes, so that no one always follows the same other.
fn order(systems: &[System], round: u32) -> impl Iterator<Item = System> {
    let first = round as usize % systems.len();
    systems
        .iter()
        .copied()
        .cycle()
        .skip(first)
        .take(systems.len())
}

/// For `map_err` on an operation on `path`.
fn io_error(path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Io {
        path: path.to_owned(),
        source,
    }
}
