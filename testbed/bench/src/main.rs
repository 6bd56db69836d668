//! `pghot-bench`: compares systems that move hot pages.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use pghot_bench::advice;
use pghot_bench::cell::{Guest, Outcome};
use pghot_bench::kernel_tables::{self, KernelTables};
use pghot_bench::matrix::{Matrix, Store};
use pghot_bench::measures;
use pghot_bench::model;
use pghot_bench::preset::Preset;
use pghot_bench::progress::Progress;
use pghot_bench::report::{self, Cell, Failure, Results, published};
use pghot_bench::score::Costs;
use pghot_bench::setting::Setting;
use pghot_bench::summary::{Runs, summarize};
use pghot_bench::systems::{self, SYSTEMS};
use pghot_bench::workloads;
use pghot_testbed::{Kernel, Machine};
use serde_json::Value;

/// Compare systems that move hot pages, in emulated machines with a witness of every access.
///
/// Cells that are finished are kept, and the same command goes on where it was, but for the demo.
/// Writes bench.json, bench.csv and bench.html; the demo writes demo.json and demo.html.
#[derive(Debug, Parser)]
#[command(name = "pghot-bench", version, after_help = names())]
struct Args {
    /// Workloads; those of the preset without
    #[arg(value_parser = workload)]
    workloads: Vec<String>,

    /// What is compared if nothing else is said
    #[arg(long, value_enum, default_value = "full")]
    preset: Preset,

    /// Systems, with commas; those of the preset without
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = system)]
    systems: Vec<String>,

    /// Kinds of memory: anon, thp, shared, file (mapped); a workload that has none of them takes
    /// its own
    #[arg(
        long,
        value_name = "KINDS",
        value_delimiter = ',',
        value_parser = ["anon", "thp", "shared", "file"],
        default_value = "anon"
    )]
    backings: Vec<String>,

    /// Kernels; without, the newest, in the demo 6.12
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    kernels: Vec<String>,

    /// Runs of each; without, as the preset says
    #[arg(long, value_name = "N", visible_alias = "rounds")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,

    /// The seed of the first of them; with `--store`, runs of other seeds that are stored stay, so
    /// that more can be added to them on another day
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1000))]
    first_seed: u64,

    /// About how long a run lasts by the guest's clock, which says how much a workload does;
    /// without, as the preset says
    #[arg(long, value_name = "S")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3600))]
    guest_s: Option<u64>,

    /// Threads of the workload
    #[arg(long, value_name = "T", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,

    /// Run the guests' clocks so many times slower than the host's: with 10, kernel work and
    /// accesses are in the proportion of a machine's, and everything takes 10 times as long;
    /// without, as the preset says
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    dilation: Option<u32>,

    /// Where results go
    #[arg(long, value_name = "FOLDER", default_value = "out")]
    out: PathBuf,

    /// Run nothing, and report of what is finished
    #[arg(long)]
    finished: bool,

    /// Run each cell in the simulator too, and say how far it predicts the guest
    #[arg(long)]
    model: bool,

    /// What the top tier has room for, in percent of what is usual: the same workloads with less of
    /// it; without balancing only the first
    #[arg(
        long,
        value_name = "PERCENT",
        value_delimiter = ',',
        default_value = "100"
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(20..=100))]
    rooms: Vec<u32>,

    /// Compare the slowdown of each cell with the interval that `pghot advise` gives; with
    /// `--store` that is what is stored
    #[arg(long)]
    advice: bool,

    /// Take the results into the repository: as data in this folder, and as tables of bench.md and
    /// the README; of the demo, as that of the README
    #[arg(long, value_name = "DOCS", value_parser = docs)]
    store: Option<PathBuf>,
}

fn names() -> String {
    let line = |(name, doc): (&str, &str)| format!("  {name:<16} {doc}\n");
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

/// Asked before anything is measured.
fn docs(folder: &str) -> Result<PathBuf, String> {
    let folder = PathBuf::from(folder);
    match folder.join("bench.md").is_file() {
        true => Ok(folder),
        false => Err("it takes the folder of bench.md: docs of the repository".to_owned()),
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

/// Those that were asked for, or else all that this host has: what is missing is then left out,
/// with a word about it.
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
    let (preset, known) = (args.preset, Kernel::names()?);
    for kernel in &args.kernels {
        ensure!(
            known.contains(kernel),
            "there is no kernel {kernel}: there are {}",
            known.join(", ")
        );
    }
    let usual = match preset.kernel() {
        Some(kernel) => kernel.to_owned(),
        None => known.last().context("kernels.toml is empty")?.clone(),
    };
    Ok(Matrix {
        machine: preset.machine().to_owned(),
        workloads: or_all(
            &args.workloads,
            preset.workloads(),
            |workload| workload.name,
            |workload| workload.binaries(),
            left_out,
        ),
        systems: or_all(
            &args.systems,
            preset.systems(),
            |system| system.name,
            |system| system.binaries(),
            left_out,
        ),
        backings: args.backings.clone(),
        kernels: match args.kernels.is_empty() {
            true => vec![usual],
            false => args.kernels.clone(),
        },
        seeds: args.seeds.unwrap_or(preset.seeds()),
        first_seed: args.first_seed,
        warms_up: preset == Preset::Demo,
        guest_s: args.guest_s.unwrap_or(preset.guest_s()),
        threads: args.threads,
        dilation: args.dilation.unwrap_or(preset.dilation()),
        rooms_percent: args.rooms.clone(),
    })
}

fn run(args: &Args) -> Result<()> {
    let mut failures = Vec::new();
    let mut left_out = Vec::new();
    let matrix = matrix(args, &mut left_out)?;
    let mut cells = matrix.cells();
    // Who starts the demo wants to see it.
    let store = match args.preset {
        Preset::Demo => None,
        Preset::Full | Preset::Quick => Some(Store::open(&args.out.join("bench-cells"))?),
    };
    if let (Some(store), true) = (&store, args.finished) {
        cells.retain(|cell| store.get(cell).is_some());
    }
    let outcomes = run_cells(&cells, store.as_ref(), &mut failures)?;
    let failed = failures.len();
    match &store {
        None => demo(args, &matrix, &outcomes)?,
        Some(store) => {
            // Who asks for some workloads does not ask for these.
            let kernels = match args.workloads.is_empty() {
                true => matrix.kernels.as_slice(),
                false => &[],
            };
            let tables = kernel_tables(kernels, store, &mut failures)?;
            failures.extend(left_out);
            publish(args, &matrix, &outcomes, &tables, &failures)?;
        }
    }
    ensure!(
        failed == 0,
        "{failed} of {} cells failed; run the same again to try them once more",
        cells.len()
    );
    Ok(())
}

/// Runs what is not kept already.
fn run_cells(
    cells: &[Setting],
    store: Option<&Store>,
    failures: &mut Vec<Failure>,
) -> Result<Vec<Outcome>> {
    let kept = cells
        .iter()
        .map(|cell| store.and_then(|store| store.get(cell)));
    let kept: Vec<Option<Outcome>> = kept.collect();
    let mut outcomes = Vec::new();
    let progress = Progress::new(kept.iter().filter(|kept| kept.is_none()).count());
    let mut guest = None;
    for (setting, kept) in cells.iter().zip(kept) {
        if let Some(kept) = kept {
            outcomes.push(kept);
            continue;
        }
        progress.begin(&setting.title());
        match run_cell(&mut guest, setting, &progress, failures) {
            Ok(outcome) => {
                progress.end(&in_short(&outcome));
                if let Some(store) = store {
                    store.put(&outcome)?;
                }
                if !setting.is_warm_up() {
                    outcomes.push(outcome);
                }
            }
            Err(error) => {
                progress.end(&format!("failed: {error:#}"));
                failures.push(Failure {
                    cell: setting.name(),
                    why: format!("{error:#}"),
                });
            }
        }
    }
    progress.finish();
    stop(guest, failures);
    Ok(outcomes)
}

/// What came of a cell, for who waits.
fn in_short(outcome: &Outcome) -> String {
    let said = |name: &str| outcome.done[name].as_f64();
    match (said("hot_promoted"), said("t100_s")) {
        (Some(pages), when) => {
            let pages = measures::with_commas(pages);
            let elapsed_s = said("elapsed_s").unwrap_or_default();
            let when = when.map(|t100_s| format!("all promoted after {t100_s:.2} s"));
            let when = when.unwrap_or(format!("not all promoted within {elapsed_s:.1} s"));
            format!("{pages:>6} pages, {when}")
        }
        (None, _) => format!("{:.0} s", outcome.wall_s),
    }
}

/// In the guest that is there, if it serves; one that failed serves no more.
fn run_cell(
    guest: &mut Option<Guest>,
    setting: &Setting,
    progress: &Progress,
    failures: &mut Vec<Failure>,
) -> Result<Outcome> {
    let mut serving = match guest.take() {
        Some(guest) if guest.serves(setting) => guest,
        other => {
            stop(other, failures);
            Guest::boot(setting)?
        }
    };
    let outcome = serving.run(setting, &mut |event: &Value| {
        if let Some(pages) = event["hot_fast"].as_f64() {
            progress.tell(format!("{} pages promoted", measures::with_commas(pages)));
        }
    })?;
    *guest = Some(serving);
    Ok(outcome)
}

/// A system that does not end well has failed, though its cells have not, nor has the next one.
fn stop(guest: Option<Guest>, failures: &mut Vec<Failure>) {
    let Some(mut guest) = guest else { return };
    if let Err(error) = guest.stop() {
        let cell = format!("the end of {}", guest.system());
        let why = format!("{error:#}");
        eprintln!("      {cell}: {why}");
        failures.push(Failure { cell, why });
    }
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

fn demo(args: &Args, matrix: &Matrix, outcomes: &[Outcome]) -> Result<()> {
    let groups = summarize(outcomes, &Costs::stated());
    let group = groups
        .first()
        .context("no run of the demo came to its end")?;
    let machine = Machine::load(&matrix.machine)?;
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot make {}", args.out.display()))?;
    let table = report::demo::write(&args.out, &machine, outcomes, group, matrix.seeds)?;
    if let Some(docs) = &args.store {
        report::docs::store_demo(&args.out.join("demo.json"), docs)?;
    }
    print!("{table}");
    let html = args.out.join("demo.html");
    println!(
        "\nall values: {}\nthe page:   {}",
        args.out.join("demo.json").display(),
        std::fs::canonicalize(&html).unwrap_or(html).display()
    );
    Ok(())
}

fn publish(
    args: &Args,
    matrix: &Matrix,
    outcomes: &[Outcome],
    kernel_tables: &[KernelTables],
    failures: &[Failure],
) -> Result<()> {
    let costs = Costs::stated();
    let groups = summarize(outcomes, &costs);
    let results = Results {
        version: env!("CARGO_PKG_VERSION"),
        machine: &matrix.machine,
        emulator: &pghot_testbed::emulator_version()?,
        costs: &costs,
        groups: &groups,
        published: &published::compare(&groups),
        kernel_tables,
        cells: outcomes.iter().map(Cell::new).collect(),
        failures,
    };
    report::write(&args.out, &results, outcomes)?;
    let mut tell = |cell: &Setting| eprintln!("in the model: {}", cell.title());
    let pairs = match args.model {
        true => model::compare(outcomes, &mut tell)?,
        false => Vec::new(),
    };
    let advice = match args.advice {
        true => Some(advice::check(outcomes, &costs, &mut tell)?),
        false => None,
    };
    let bench_json = args.out.join("bench.json");
    match (&args.store, &advice) {
        (Some(docs), Some(checked)) => report::docs::store_advice(&bench_json, checked, docs)?,
        (Some(docs), None) => {
            let runs = Runs::of_all(outcomes, &costs);
            report::docs::store(&bench_json, runs, &pairs, docs)?;
        }
        (None, _) => {}
    }
    print!("{}", report::table(&groups));
    if args.model {
        print!("\nGuest / model:\n\n{}", report::accuracy::of_pairs(&pairs));
    }
    if let Some(checked) = &advice {
        print!("\nSlowdowns:\n\n{}", report::advice::of_checked(checked));
    }
    println!("\nall of it: {}", args.out.join("bench.html").display());
    Ok(())
}
