//! `load`: runs a benchmark and says what was hot, how long it took, and where the pages are.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use pghot_workloads::cached_file::CachedFile;
use pghot_workloads::hold;
use pghot_workloads::list::IdList;
use pghot_workloads::load::{Load, PhaseTime, Target};
use pghot_workloads::marks::Marks;
use pghot_workloads::numa_maps::{self, NodePages};
use pghot_workloads::plan::{Plan, Truth};
use pghot_workloads::plans::{self, BENCHMARKS, Size};
use pghot_workloads::region::{Backing, Part, Region};
use pghot_workloads::report;
use pghot_workloads::sys;
use serde::Serialize;

/// Run a benchmark of memory tiering: a fixed number of accesses in a known pattern.
///
/// Prints JSON lines: `ready` with what is hot in each phase, and `done` with the times. All page
/// counts are in base pages.
#[derive(Clone, Debug, Parser)]
#[command(name = "load", version, after_help = benchmarks())]
struct Args {
    /// The benchmark; see below
    #[arg(value_parser = known)]
    benchmark: String,

    /// Size of the memory
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=8 << 20))]
    size_mib: u32,

    /// What the top tier has room for; some benchmarks depend on it
    #[arg(long, value_name = "N", default_value_t = 0)]
    near_mib: u32,

    /// Accesses of all threads together
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    accesses: u64,

    /// Threads
    #[arg(long, value_name = "T", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,

    /// CPUs to pin the threads to, one each, in turn
    #[arg(long, value_name = "LIST")]
    cpus: Option<IdList>,

    /// Node of the lower tier, where pages start
    #[arg(long, value_name = "NODE")]
    home: u32,

    /// Node of the top tier, for the pages that a benchmark starts there
    #[arg(long, value_name = "NODE", default_value_t = 0)]
    near: u32,

    /// Kind of memory
    #[arg(long, value_enum, default_value_t = Backing::Anon)]
    backing: Backing,

    /// Read a file in the page cache by pread, a page an access, instead of accessing memory
    #[arg(long, conflicts_with = "backing")]
    pread: bool,

    /// Where the file of `--backing file` or `--pread` lies
    #[arg(long, value_name = "FOLDER", default_value = "/tmp")]
    dir: PathBuf,

    /// Share of the accesses that is stores
    #[arg(long, value_name = "P", default_value_t = 50)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=100))]
    store_percent: u32,

    /// After `ready`, begin only once this file is there, remove it, and say where the pages are;
    /// after the accesses, wait for it again before the memory is looked through
    #[arg(long, value_name = "FILE")]
    hold: Option<PathBuf>,

    /// Seed of the accesses
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Tell the witness, a plugin of the emulator, when the accesses begin and end
    #[arg(long)]
    witness: bool,

    /// Time between two slices of the witness's report
    #[arg(long, value_name = "N", default_value_t = 250)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    slice_ms: u64,
}

fn benchmarks() -> String {
    let line = |b: &plans::Benchmark| format!("  {:<11} {}\n", b.name, b.doc);
    let lines: String = BENCHMARKS.iter().map(line).collect();
    format!("Benchmarks:\n{lines}")
}

fn known(name: &str) -> Result<String, String> {
    let names: Vec<_> = BENCHMARKS.iter().map(|b| b.name).collect();
    match plans::find(name) {
        Some(_) => Ok(name.to_owned()),
        None => Err(format!("there are {}", names.join(", "))),
    }
}

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event<'a> {
    Ready {
        benchmark: &'a str,
        pays: bool,
        pages: u32,
        room_pages: u32,
        near_pages: u32,
        truth: Vec<Truth>,
        nodes: NodePages,
    },
    Done {
        elapsed_s: f64,
        accesses: u64,
        phases: Vec<PhaseTime>,
        user_s: f64,
        kernel_s: f64,
        minor_faults: u64,
        nodes: NodePages,
        errors: u64,
    },
}

fn main() -> ExitCode {
    report::exit_code("load", run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    let benchmark = plans::find(&args.benchmark).context("no such benchmark")?;
    let page_bytes = sys::page_bytes();
    let pages_of = |mib: u32| ((mib as usize) << 20) / page_bytes;
    let size = Size {
        pages: pages_of(args.size_mib) as u32,
        near_pages: pages_of(args.near_mib) as u32,
        accesses: args.accesses,
    };
    let plan = (benchmark.plan)(&size);
    let memory = match args.pread {
        true => Memory::File(open_file(args, &plan, size.pages)?),
        false => Memory::Region(open_region(args, &plan, page_bytes)?),
    };
    report::print(&Event::Ready {
        benchmark: benchmark.name,
        pays: benchmark.pays,
        pages: size.pages,
        room_pages: size.near_pages,
        near_pages: plan.near_pages,
        truth: plan.truth(),
        nodes: memory.nodes()?,
    })?;
    let hold = args.hold.as_deref();
    hold::begin(hold, || memory.nodes())?;

    let open_marks = || match &memory {
        Memory::Region(region) => Marks::open(&region.range()),
        Memory::File(_) => Marks::open_alone(),
    };
    let marks = args.witness.then(open_marks).transpose()?;
    let load = Load {
        plan: &plan,
        target: memory.target(),
        threads: args.threads,
        cpus: args.cpus.as_ref().map_or(&[][..], |list| list.ids()),
        store_percent: args.store_percent,
        seed: args.seed,
        marks: marks.as_ref(),
        slice: Duration::from_millis(args.slice_ms),
    };
    let times = load.run()?;
    let nodes = hold::end(hold, || memory.nodes())?;
    let errors = memory.damaged_pages(args.seed);
    report::print(&Event::Done {
        elapsed_s: times.phases.last().map_or(0.0, |phase| phase.end_s),
        accesses: plan.accesses(),
        phases: times.phases,
        user_s: times.usage.user_s,
        kernel_s: times.usage.kernel_s,
        minor_faults: times.usage.minor_faults,
        nodes,
        errors,
    })?;
    ensure!(errors == 0, "{errors} pages lost their content");
    Ok(())
}

/// What the benchmark accesses.
enum Memory {
    Region(Region),
    File(CachedFile),
}

impl Memory {
    fn target(&self) -> Target<'_> {
        match self {
            Memory::Region(region) => Target::Memory(region),
            Memory::File(file) => Target::File(file),
        }
    }

    fn nodes(&self) -> Result<NodePages> {
        match self {
            Memory::Region(region) => numa_maps::read(&region.range()),
            Memory::File(file) => file.nodes(),
        }
    }

    fn damaged_pages(&self, seed: u64) -> u64 {
        match self {
            Memory::Region(region) => region.damaged_pages(seed),
            Memory::File(file) => file.damaged_pages(),
        }
    }
}

fn open_region(args: &Args, plan: &Plan, page_bytes: usize) -> Result<Region> {
    let near_bytes = plan.near_pages as usize * page_bytes;
    let parts = [
        Part {
            home: args.near,
            bytes: near_bytes,
        },
        Part {
            home: args.home,
            bytes: ((args.size_mib as usize) << 20) - near_bytes,
        },
    ];
    let parts: Vec<Part> = parts.into_iter().filter(|part| part.bytes > 0).collect();
    let region = Region::map_parts(&parts, args.backing, &args.dir)?;
    region.populate(args.seed)?;
    region.release()?;
    Ok(region)
}

fn open_file(args: &Args, plan: &Plan, pages: u32) -> Result<CachedFile> {
    ensure!(
        plan.near_pages == 0,
        "{} starts with pages in the top tier, which --pread cannot place",
        args.benchmark
    );
    let path = args.dir.join(format!("load.{}", std::process::id()));
    let file = CachedFile::create(&path, pages, args.home, args.seed)?;
    // It lives as long as it is open.
    fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    Ok(file)
}
