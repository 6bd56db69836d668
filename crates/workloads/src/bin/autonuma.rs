//! `autonuma`: runs one of the programs of autonumabench, and says how long it took and where
//! memory is.

use std::path::Path;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use pghot_workloads::autonuma::{self, PROGRAMS, ProcessDone, Program};
use pghot_workloads::forked::{Forked, Parent};
use pghot_workloads::list::IdList;
use pghot_workloads::numa_maps::{self, NodePages};
use pghot_workloads::region::{Backing, Region};
use pghot_workloads::report;
use pghot_workloads::sys;
use serde::Serialize;

/// Run one of the programs of autonumabench: threads that zero memory again and again, unbound.
///
/// Prints JSON lines: `ready` with what will run, and `done` with times and where pages are. All
/// page counts are in base pages.
#[derive(Clone, Debug, Parser)]
#[command(name = "autonuma", version, after_help = programs())]
struct Args {
    /// The program; see below
    #[arg(value_parser = known)]
    program: String,

    /// Memory of each process; without the flag as much as the original has
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=8 << 20))]
    process_mib: Option<u32>,

    /// Passes over the memory; without the flag as many as the original makes
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,

    /// How many CPUs to make threads for, or a list (`0-3`, `0,2`) of the only ones to run on;
    /// without the flag all
    #[arg(long, value_name = "N|LIST")]
    cpus: Option<Cpus>,

    /// Node of the lower tier, to make all pages on first; without the flag they are made by who
    /// zeroes them
    #[arg(long, value_name = "NODE")]
    home: Option<u32>,

    /// Kind of memory
    #[arg(long, value_enum, default_value_t = Backing::Anon)]
    backing: Backing,

    /// Seed of what the pages on --home hold before they are zeroed
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What `--cpus` takes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cpus {
    Count(u32),
    Only(IdList),
}

impl FromStr for Cpus {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if text.contains(['-', ',']) {
            return Ok(Cpus::Only(text.parse()?));
        }
        let count = text.parse().context("neither a number nor a list")?;
        ensure!((1..=1024).contains(&count), "1 to 1024 CPUs are possible");
        Ok(Cpus::Count(count))
    }
}

fn programs() -> String {
    let line = |p: &Program| format!("  {:<19} {}\n", p.name, p.doc);
    let lines: String = PROGRAMS.iter().map(line).collect();
    format!("Programs:\n{lines}")
}

fn known(name: &str) -> Result<String, String> {
    let names: Vec<_> = PROGRAMS.iter().map(|p| p.name).collect();
    match autonuma::find(name) {
        Some(_) => Ok(name.to_owned()),
        None => Err(format!("there are {}", names.join(", "))),
    }
}

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event<'a> {
    Ready {
        program: &'a str,
        pids: Vec<i32>,
        threads_per_process: u32,
        process_pages: u64,
        rounds: u32,
        /// Pages of each process per node; none yet without `--home`.
        nodes: Vec<NodePages>,
    },
    Done {
        /// Until the last process was through; they begin together.
        elapsed_s: f64,
        user_s: f64,
        kernel_s: f64,
        /// Of all slices, the share that is on the node of its thread; null without slices.
        local_share: Option<f64>,
        errors: u64,
        processes: Vec<ProcessDone>,
    },
}

fn main() -> ExitCode {
    report::exit_code("autonuma", run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    let program = autonuma::find(&args.program).context("no such program")?;
    let cpus = match &args.cpus {
        Some(Cpus::Count(count)) => *count,
        Some(Cpus::Only(list)) => {
            sys::run_on(list.ids())?;
            list.ids().len() as u32
        }
        None => sys::allowed_cpus()?.len() as u32,
    };
    let threads = program.threads(cpus);
    let rounds = args.rounds.unwrap_or(program.rounds);
    let bytes = (args.process_mib.unwrap_or(program.process_mib) as usize) << 20;
    let life = |parent: &mut Parent| {
        let region = made(args, bytes)?;
        parent.say_and_wait(&numa_maps::read(&region.range())?)?;
        program.run(&region, threads, rounds)
    };

    let mut processes: Vec<Forked> = Vec::new();
    let mut nodes = Vec::new();
    for _ in 0..program.processes {
        // One after the other, so that the second sees how much room the first has left.
        let mut process = Forked::spawn(life)?;
        nodes.push(process.hear()?);
        processes.push(process);
    }
    report::print(&Event::Ready {
        program: program.name,
        pids: processes.iter().map(Forked::pid).collect(),
        threads_per_process: threads,
        process_pages: (bytes / sys::page_bytes()) as u64,
        rounds,
        nodes,
    })?;

    for process in &mut processes {
        process.go()?;
    }
    let processes: Vec<ProcessDone> = processes
        .iter_mut()
        .map(Forked::hear)
        .collect::<Result<_>>()?;
    let elapsed_s = processes
        .iter()
        .map(|process| process.elapsed_s)
        .fold(0.0, f64::max);
    let errors = processes.iter().map(|process| process.errors).sum();
    report::print(&Event::Done {
        elapsed_s,
        user_s: processes.iter().map(|process| process.user_s).sum(),
        kernel_s: processes.iter().map(|process| process.kernel_s).sum(),
        local_share: local_share(&processes),
        errors,
        processes,
    })?;
    ensure!(errors == 0, "{errors} pages are not zero");
    Ok(())
}

/// The memory of one process, on its home if it has one.
fn made(args: &Args, bytes: usize) -> Result<Region> {
    let dir = Path::new("/tmp");
    let Some(home) = args.home else {
        return Region::map_anywhere(bytes, args.backing, dir);
    };
    let region = Region::map(bytes, args.backing, home, dir)?;
    region.populate(args.seed)?;
    region.release()?;
    Ok(region)
}

fn local_share(processes: &[ProcessDone]) -> Option<f64> {
    let slices = || processes.iter().flat_map(|process| &process.slices);
    let pages: u64 = slices().map(|slice| slice.pages).sum();
    let local: u64 = slices().map(|slice| slice.local_pages).sum();
    (pages > 0).then(|| local as f64 / pages as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_a_number_or_a_list() {
        let parse = |text: &str| text.parse::<Cpus>().ok();
        assert_eq!(parse("8"), Some(Cpus::Count(8)));
        assert_eq!(parse("0,2"), "0,2".parse().ok().map(Cpus::Only));
        assert_eq!(parse("3-3"), "3".parse().ok().map(Cpus::Only));
        for wrong in ["", "0", "1025", "x", "1-", "-1"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
