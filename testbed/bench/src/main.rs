//! `pghot-bench`: compares systems that move hot pages.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Parser;
use pghot_bench::cell::{self, Guest, Outcome, Setting};
use pghot_bench::kernel_tables::{self, KernelTables};
use pghot_bench::matrix::{Matrix, Store};
use pghot_bench::report::{self, Cell, Failure, Results, published};
use pghot_bench::score::Costs;
use pghot_bench::summary::summarize;
use pghot_bench::systems::{self, Home, SYSTEMS};
use pghot_bench::workloads;
use pghot_testbed::Kernel;

/// Accesses of a run of `--quick`: some seconds, in which systems begin to move pages.
const QUICK_ACCESSES: u64 = 12_000_000;

/// Left out of `--quick`: it is much like `pagecache`, and its many libraries take memory of guests.
const LEFT_OUT: &str = "fio";

/// Compare systems that move hot pages, in emulated machines with a witness of every access.
///
/// Cells that are finished are kept, and the same command goes on where it was. Writes bench.json,
/// bench.csv and bench.html.
#[derive(Debug, Parser)]
#[command(name = "pghot-bench", version, after_help = names())]
struct Args {
    /// Workloads; all of those below without
    #[arg(value_parser = workload)]
    workloads: Vec<String>,

    /// Systems, with commas; all of those below without
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = system)]
    systems: Vec<String>,

    /// Kinds of memory: anon, thp, shared; a workload that has none of them takes its own
    #[arg(
        long,
        value_name = "KINDS",
        value_delimiter = ',',
        value_parser = ["anon", "thp", "shared"],
        default_value = "anon"
    )]
    backings: Vec<String>,

    /// Kernels; the newest without
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    kernels: Vec<String>,

    /// Runs of each
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,

    /// Accesses of each run
    #[arg(long, value_name = "N", default_value_t = 20_000_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1000..))]
    accesses: u64,

    /// Threads of the workload
    #[arg(long, value_name = "T", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,

    /// Run the guests' clocks so many times slower than the host's: with 10, kernel work and accesses are
    /// in the proportion of a machine's, and everything takes 10 times as long
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    dilation: u32,

    /// Small, in about ten minutes: one run of each, without fio and the bound
    #[arg(long, conflicts_with_all = ["seeds", "accesses"])]
    quick: bool,

    /// Where results go
    #[arg(long, value_name = "FOLDER", default_value = "out")]
    out: PathBuf,
}

fn names() -> String {
    let line = |(name, doc): (&str, &str)| format!("  {name:<11} {doc}\n");
    let workloads: String = workloads::all().map(|w| line((w.name, w.doc))).collect();
    let systems: String = SYSTEMS.iter().map(|s| line((s.name, s.doc))).collect();
    format!("Workloads:\n{workloads}\nSystems:\n{systems}")
}

fn workload(name: &str) -> Result<String, String> {
    let names: Vec<_> = workloads::all().map(|workload| workload.name).collect();
    match workloads::find(name) {
        Some(_) => Ok(name.to_owned()),
        None => Err(format!("the workloads are {}", names.join(", "))),
    }
}

fn system(name: &str) -> Result<String, String> {
    let names: Vec<_> = SYSTEMS.iter().map(|s| s.name).collect();
    match systems::find(name) {
        Some(_) => Ok(name.to_owned()),
        None => Err(format!("the systems are {}", names.join(", "))),
    }
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pghot-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Those that were asked for, or else all that this host has: what is missing is then left out, with a
/// word about it.
fn or_all<T>(
    chosen: &[String],
    all: impl Iterator<Item = T>,
    name: fn(&T) -> &'static str,
    needs: fn(&T) -> Result<Vec<PathBuf>>,
    left_out: &mut Vec<Failure>,
) -> Vec<String> {
    if !chosen.is_empty() {
        return chosen.to_vec();
    }
    let is_there = |item: &T| match needs(item) {
        Ok(_) => true,
        Err(why) => {
            eprintln!("{} is left out: {why:#}", name(item));
            left_out.push(Failure {
                cell: name(item).to_owned(),
                why: format!("{why:#}"),
            });
            false
        }
    };
    all.filter(is_there)
        .map(|item| name(&item).to_owned())
        .collect()
}

fn matrix(args: &Args, left_out: &mut Vec<Failure>) -> Result<Matrix> {
    let known = Kernel::names()?;
    for kernel in &args.kernels {
        ensure!(
            known.contains(kernel),
            "there is no kernel {kernel}: there are {}",
            known.join(", ")
        );
    }
    let newest = known.last().cloned();
    let systems = SYSTEMS
        .iter()
        .filter(|s| !args.quick || s.home == Home::Lower);
    let (seeds, accesses) = match args.quick {
        true => (1, QUICK_ACCESSES),
        false => (args.seeds, args.accesses),
    };
    Ok(Matrix {
        workloads: or_all(
            &args.workloads,
            workloads::all().filter(|workload| !args.quick || workload.name != LEFT_OUT),
            |workload| workload.name,
            |workload| (workload.binaries)(),
            left_out,
        ),
        systems: or_all(
            &args.systems,
            systems,
            |system| system.name,
            |system| system.binaries(),
            left_out,
        ),
        backings: args.backings.clone(),
        kernels: match args.kernels.is_empty() {
            true => newest.into_iter().collect(),
            false => args.kernels.clone(),
        },
        seeds,
        accesses,
        threads: args.threads,
        dilation: args.dilation,
    })
}

fn run(args: &Args) -> Result<()> {
    let mut left_out = Vec::new();
    let matrix = matrix(args, &mut left_out)?;
    let cells = matrix.cells();
    let store = Store::open(&args.out.join("bench-cells"))?;
    let (mut outcomes, mut failures) = (Vec::new(), Vec::new());
    let kept: Vec<Option<Outcome>> = cells.iter().map(|cell| store.get(cell)).collect();
    let mut progress = Progress::new(kept.iter().filter(|kept| kept.is_none()).count());
    let mut guest = None;
    for (setting, kept) in cells.iter().zip(kept) {
        if let Some(kept) = kept {
            outcomes.push(kept);
            continue;
        }
        progress.show(&setting.name());
        match run_cell(&mut guest, setting, &mut failures) {
            Ok(outcome) => {
                store.put(&outcome)?;
                outcomes.push(outcome);
            }
            Err(error) => {
                eprintln!("      failed: {error:#}");
                failures.push(Failure {
                    cell: setting.name(),
                    why: format!("{error:#}"),
                });
            }
        }
        progress.done += 1;
    }
    stop(guest, &mut failures);
    // Who asks for some workloads does not ask for these.
    let kernels = match args.workloads.is_empty() {
        true => matrix.kernels.as_slice(),
        false => &[],
    };
    let tables = kernel_tables(kernels, &store, &mut failures)?;
    let failed = failures.len();
    failures.extend(left_out);
    publish(args, &outcomes, &tables, &failures)?;
    ensure!(
        failed == 0,
        "{failed} of {} cells failed; run the same again to try them once more",
        cells.len()
    );
    Ok(())
}

fn kernel_tables(
    kernels: &[String],
    store: &Store,
    failures: &mut Vec<Failure>,
) -> Result<Vec<KernelTables>> {
    let mut tables = Vec::new();
    for kernel in kernels {
        if let Some(kept) = store.kernel_tables(kernel) {
            tables.push(kept);
            continue;
        }
        eprintln!("what kernel {kernel} does alone");
        match kernel_tables::measure(kernel) {
            Ok(measured) => {
                store.put_kernel_tables(&measured)?;
                tables.push(measured);
            }
            Err(error) => {
                eprintln!("      failed: {error:#}");
                failures.push(Failure {
                    cell: format!("{kernel}-kernel-tables"),
                    why: format!("{error:#}"),
                });
            }
        }
    }
    Ok(tables)
}

/// In the guest that is there, if it serves; one that failed serves no more.
fn run_cell(
    guest: &mut Option<Guest>,
    setting: &Setting,
    failures: &mut Vec<Failure>,
) -> Result<Outcome> {
    let serving = match guest.take() {
        Some(guest) if guest.serves(setting) => guest,
        other => {
            stop(other, failures);
            Guest::boot(setting)?
        }
    };
    let outcome = serving.run(setting)?;
    *guest = Some(serving);
    Ok(outcome)
}

/// A system that does not end well has failed, though its cells have not, nor has the next one.
fn stop(guest: Option<Guest>, failures: &mut Vec<Failure>) {
    let Some(guest) = guest else { return };
    let cell = format!("the end of {}", guest.system());
    if let Err(error) = guest.stop() {
        let why = format!("{error:#}");
        eprintln!("      {cell}: {why}");
        failures.push(Failure { cell, why });
    }
}

/// How far it is.
struct Progress {
    done: usize,
    all: usize,
    started: Instant,
}

impl Progress {
    fn new(all: usize) -> Progress {
        Progress {
            done: 0,
            all,
            started: Instant::now(),
        }
    }

    /// One line a cell, so that a log of it is of use too.
    fn show(&self, cell: &str) {
        const BAR: usize = 20;
        let Progress { done, all, started } = *self;
        let full = BAR * done / all.max(1);
        let left = match done {
            0 => String::new(),
            done => {
                let seconds = started.elapsed().as_secs_f64() / done as f64 * (all - done) as f64;
                format!("about {:.0} min left", (seconds / 60.0).ceil())
            }
        };
        let (full, empty) = ("#".repeat(full), ".".repeat(BAR - full));
        eprintln!("[{full}{empty}] {:>3}/{all}  {cell:<52} {left}", done + 1);
    }
}

fn publish(
    args: &Args,
    outcomes: &[Outcome],
    kernel_tables: &[KernelTables],
    failures: &[Failure],
) -> Result<()> {
    let costs = Costs::stated();
    let groups = summarize(outcomes, &costs);
    let results = Results {
        version: env!("CARGO_PKG_VERSION"),
        machine: cell::MACHINE,
        emulator: &pghot_testbed::emulator_version()?,
        costs: &costs,
        groups: &groups,
        published: &published::compare(&groups),
        kernel_tables,
        cells: outcomes.iter().map(|run| Cell::new(run, &costs)).collect(),
        failures,
    };
    report::write(&args.out, &results, outcomes)?;
    print!("{}", report::table(&groups));
    println!("\nall of it: {}", args.out.join("bench.html").display());
    Ok(())
}
