//! `pghot`: hot-page tracking and promotion for tiered memory on stock Linux kernels.

mod args;
mod commands;
mod generate;
mod progress;
mod record;
mod record_beside;
mod show_doctor;
mod show_explain;
mod show_status;
mod sim;
mod sim_replay;
mod sim_sweep;
mod top;
mod units;

use std::process::ExitCode;

/// Something on the command line is wrong; the sentence says what.
#[derive(Debug)]
struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

fn main() -> ExitCode {
    let matches = args::command().get_matches();
    match commands::dispatch(&matches) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("pghot: {error}");
            // As clap's own: 2 for a wrong command line, 1 for everything else.
            ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
        }
    }
}
