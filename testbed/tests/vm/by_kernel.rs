//! The frame of a test that takes minutes and a guest of its own on each kernel, and so runs in
//! `make test-long` only.

use std::process::ExitCode;

use anyhow::Result;
use libtest_mimic::{Arguments, Failed, Trial};
use pghot_testbed::Kernel;

/// Runs it, by this name, on each kernel of `kernels.toml`, one after the other.
pub fn main(name: &str, run: fn(&str) -> Result<()>) -> ExitCode {
    let mut trials = Vec::new();
    if std::env::var_os("PGHOT_LONG").is_some() {
        for kernel in Kernel::names().unwrap_or_default() {
            let trial = format!("{kernel}::{name}");
            let run = move || run(&kernel).map_err(|error| Failed::from(format!("{error:#}")));
            trials.push(Trial::test(trial, run));
        }
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(1);
    libtest_mimic::run(&arguments, trials).exit_code()
}
