//! `flushtlb`: flushes the TLB of each CPU every few milliseconds, by switching the address space.
//!
//! A machine's TLB holds one or two thousand entries and evicts them. An emulator's holds all that
//! a program touches until the address space changes, and as long as an entry is cached, an
//! accessed bit that was cleared is not set again: pages look idle that are touched all the time.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use pghot_workloads::{report, sys};
use serde::Serialize;

/// Flush the TLB of each CPU again and again, by switching to another address space.
///
/// Prints one JSON line at the end: the number of CPUs, the flushes on all of them together, and
/// the longest time between two flushes of a CPU.
#[derive(Debug, Parser)]
#[command(name = "flushtlb", version)]
struct Args {
    /// How long to go on
    #[arg(long, value_name = "S", default_value_t = 60)]
    seconds: u64,

    /// Time between two flushes of a CPU
    #[arg(long, value_name = "MS", default_value_t = 4)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    every_ms: u64,
}

#[derive(Debug, Default, Serialize)]
struct Done {
    cpus: usize,
    flushes: u64,
    longest_ms: f64,
}

fn main() -> ExitCode {
    report::exit_code("flushtlb", run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    let (every, end) = (
        Duration::from_millis(args.every_ms),
        Instant::now() + Duration::from_secs(args.seconds),
    );
    let cpus = sys::allowed_cpus()?;
    let threads: Vec<_> = cpus
        .iter()
        .map(|&cpu| thread::spawn(move || flush(cpu, every, end)))
        .collect();
    let mut done = Done {
        cpus: cpus.len(),
        ..Done::default()
    };
    for thread in threads {
        let (flushes, longest) = thread.join().map_err(|_| anyhow!("a thread failed"))??;
        done.flushes += flushes;
        done.longest_ms = done.longest_ms.max(longest.as_secs_f64() * 1e3);
    }
    let line = serde_json::to_string(&done).context("cannot encode the result")?;
    println!("{line}");
    Ok(())
}

/// Flushes the TLB of one CPU; returns how often, and the longest time between two flushes.
fn flush(cpu: u32, every: Duration, end: Instant) -> Result<(u64, Duration)> {
    sys::run_on(&[cpu])?;
    // To preempt whatever runs there.
    sys::run_in_real_time()?;
    let (mut flushes, mut longest) = (0, Duration::ZERO);
    let mut last = Instant::now();
    while last < end {
        thread::sleep(every);
        let now = Instant::now();
        flushes += 1;
        longest = longest.max(now - last);
        last = now;
    }
    Ok((flushes, longest))
}
