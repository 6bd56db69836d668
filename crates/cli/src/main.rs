//! `pghot`: hot-page tracking and promotion for tiered memory on stock Linux kernels.

mod advise;
mod args;
mod ask;
mod change;
mod commands;
mod daemon;
mod doctor;
mod exit;
mod generate;
mod heatmap;
mod json;
mod output;
mod profile;
mod progress;
mod record;
mod record_beside;
mod shell;
mod show_explain;
mod show_owners;
mod show_status;
mod sim;
mod sim_compare;
mod sim_replay;
mod sim_sweep;
mod status_page;
mod top;
mod units;

use std::process::ExitCode;

fn main() -> ExitCode {
    let matches = commands::command().get_matches();
    match commands::dispatch(&matches) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("pghot: {error}");
            ExitCode::from(exit::status(&error))
        }
    }
}
