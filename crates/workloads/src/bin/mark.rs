//! `mark`: runs a program as a measured phase, for a witness that watches everything. The program
//! needs to know of no witness.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use pghot_workloads::list::IdList;
use pghot_workloads::marks::{self, Marks};
use pghot_workloads::sys;

/// Run a program and tell the witness, a plugin of the emulator, when it begins and ends.
///
/// Ends as the program does.
#[derive(Debug, Parser)]
#[command(name = "mark", version)]
struct Args {
    /// Time between two slices of the witness's report
    #[arg(long, value_name = "N", default_value_t = 250)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    slice_ms: u64,

    /// CPUs that the program runs on
    #[arg(long, value_name = "LIST")]
    cpus: Option<IdList>,

    /// The program and its arguments
    #[arg(required = true, num_args = 1.., trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<String>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("mark: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<u8> {
    if let Some(cpus) = &args.cpus {
        // The program has them from this thread.
        sys::run_on(cpus.ids())?;
    }
    let marks = Marks::open_alone()?;
    let slice = Duration::from_millis(args.slice_ms);
    let (name, arguments) = args.program.split_first().context("no program")?;
    let mut program = Command::new(name);
    program.args(arguments);
    let status = marks::watched(Some(&marks), slice, || program.status());
    let status = status.with_context(|| format!("cannot run {name}"))?;
    // As a shell does it.
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
