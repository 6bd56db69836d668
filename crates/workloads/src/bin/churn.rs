//! `churn`: processes, mappings and files that come and go; see [`pghot_workloads::churn`].

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use pghot_workloads::churn::{Done, Worker};
use pghot_workloads::report;

/// Fork, exec, map, unmap, truncate and discard, at random, and check every page.
///
/// Prints one JSON line at the end: how often each was done, and the pages whose contents were
/// damaged.
#[derive(Clone, Debug, Parser)]
#[command(name = "churn", version)]
struct Args {
    /// How long to go on
    #[arg(long, value_name = "S", default_value_t = 60)]
    seconds: u64,

    /// Processes at the same time
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: u32,

    /// Node where all pages start
    #[arg(long, value_name = "NODE")]
    home: u32,

    /// Where files are made
    #[arg(long, value_name = "FOLDER", default_value = "/tmp")]
    dir: PathBuf,

    /// Seed of what is done
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Be one of the workers
    #[arg(long, hide = true)]
    worker: Option<u32>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let run = match args.worker {
        Some(number) => work(&args, number),
        None => lead(&args),
    };
    report::exit_code("churn", run)
}

/// Workers are programs of their own, so that each has one thread and may fork.
fn lead(args: &Args) -> Result<()> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let spawn = |number: u32| -> Result<Child> {
        Command::new(&program)
            .args(std::env::args_os().skip(1))
            .args(["--worker", &number.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a worker")
    };
    let workers: Vec<Child> = (0..args.workers).map(spawn).collect::<Result<_>>()?;
    let mut sum = Done::default();
    for mut worker in workers {
        let mut line = String::new();
        if let Some(stdout) = worker.stdout.take() {
            BufReader::new(stdout)
                .read_line(&mut line)
                .context("cannot read from a worker")?;
        }
        ensure!(
            worker.wait().context("cannot wait")?.success(),
            "a worker failed"
        );
        sum += serde_json::from_str(&line).context("a worker said nothing sensible")?;
    }
    println!(
        "{}",
        serde_json::to_string(&sum).context("cannot encode the result")?
    );
    Ok(())
}

fn work(args: &Args, number: u32) -> Result<()> {
    let mut worker = Worker::new(number, args.seed, args.home, args.dir.clone())?;
    let end = Instant::now() + Duration::from_secs(args.seconds);
    while Instant::now() < end {
        worker.step()?;
    }
    println!(
        "{}",
        serde_json::to_string(&worker.done()).context("cannot encode the result")?
    );
    Ok(())
}
