//! `pghot`: hot-page tracking and promotion for tiered memory on stock Linux kernels.

mod args;
mod ask;
mod commands;
mod daemon;
mod doctor;
mod generate;
mod output;
mod progress;
mod record;
mod record_beside;
mod show_explain;
mod show_owners;
mod show_status;
mod sim;
mod sim_compare;
mod sim_replay;
mod sim_sweep;
mod top;
mod units;

use std::process::ExitCode;

fn main() -> ExitCode {
    let matches = commands::command().get_matches();
    match commands::dispatch(&matches) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("pghot: {error}");
            // As clap's own: 2 for a wrong command line, 1 for everything else.
            ExitCode::from(if error.is::<args::Usage>() { 2 } else { 1 })
        }
    }
}
