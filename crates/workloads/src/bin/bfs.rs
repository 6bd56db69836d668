//! `bfs`: breadth-first searches of a random graph whose memory starts in the lower tier.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use pghot_workloads::bfs::{self, Search};
use pghot_workloads::graph::{Array, Graph, Shape};
use pghot_workloads::hold;
use pghot_workloads::list::IdList;
use pghot_workloads::marks::{self, Marks};
use pghot_workloads::numa_maps::{self, NodePages};
use pghot_workloads::region::{Backing, Region};
use pghot_workloads::report;
use pghot_workloads::sys::{self, ThreadUsage};
use serde::Serialize;

/// The largest graph that is checked unless asked for.
const CHECKED_SCALE: u32 = 16;

/// Search a random graph with skewed degrees (R-MAT 0.57, 0.19, 0.19, 0.05), breadth first.
///
/// Prints JSON lines: `ready` with the arrays, and `done` with the searches. The same flags make
/// the same graph and the same result everywhere, with any number of threads; `checksum` tells.
#[derive(Clone, Debug, Parser)]
#[command(name = "bfs", version)]
struct Args {
    /// The graph has 2^N vertices
    #[arg(long, value_name = "N", default_value_t = 16)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=31))]
    scale: u32,

    /// Edges for each vertex
    #[arg(long, value_name = "N", default_value_t = 16)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    degree: u32,

    /// Searches, each from a random vertex
    #[arg(long, value_name = "N", default_value_t = 8)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    searches: u32,

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

    /// Kind of memory
    #[arg(long, value_enum, default_value_t = Backing::Anon)]
    backing: Backing,

    /// Where the file of `--backing file` lies
    #[arg(long, value_name = "FOLDER", default_value = "/tmp")]
    dir: PathBuf,

    /// Check each search; without the flag up to scale 16, and never under the witness
    #[arg(long, value_name = "BOOL")]
    check: Option<bool>,

    /// After `ready`, begin only once this file is there, remove it, and say where the pages are;
    /// after the searches, wait for it again before the memory is looked through
    #[arg(long, value_name = "FILE")]
    hold: Option<PathBuf>,

    /// Seed of the graph and of where searches begin
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Tell the witness, a plugin of the emulator, when the searches begin and end
    #[arg(long)]
    witness: bool,

    /// Time between two slices of the witness's report
    #[arg(long, value_name = "N", default_value_t = 250)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    slice_ms: u64,
}

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event<'a> {
    Ready {
        pid: u32,
        vertices: usize,
        edges: u64,
        pages: u32,
        arrays: &'a [Array],
        nodes: NodePages,
    },
    Done {
        /// Of the searches, without their checks.
        elapsed_s: f64,
        /// Harmonic mean over the searches; null without edges.
        traversed_edges_per_s: Option<f64>,
        /// Nobody counts them; the witness can.
        accesses: Option<u64>,
        searches: &'a [Search],
        checked: bool,
        checksum: String,
        user_s: f64,
        kernel_s: f64,
        minor_faults: u64,
        nodes: NodePages,
        errors: u64,
    },
}

fn main() -> ExitCode {
    report::exit_code("bfs", run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    let is_checked = args
        .check
        .unwrap_or(args.scale <= CHECKED_SCALE && !args.witness);
    ensure!(
        !(is_checked && args.witness),
        "the witness would count the accesses of --check"
    );
    let shape = Shape {
        scale: args.scale,
        degree: args.degree,
        seed: args.seed,
    };
    let bytes = shape.bytes(sys::page_bytes());
    let region = Region::map(bytes, args.backing, args.home, &args.dir)?;
    region.populate(args.seed)?;
    let graph = Graph::build(shape, &region)?;
    let sources = graph.sources(args.searches);
    ensure!(!sources.is_empty(), "the graph has no edges");
    let content = graph.page_sums();
    region.release()?;
    report::print(&Event::Ready {
        pid: std::process::id(),
        vertices: graph.vertices(),
        edges: graph.edges(),
        pages: region.pages(),
        arrays: graph.arrays(),
        nodes: numa_maps::read(&region.range())?,
    })?;
    let (hold, nodes) = (args.hold.as_deref(), || numa_maps::read(&region.range()));
    hold::begin(hold, nodes)?;

    let marks = args
        .witness
        .then(|| Marks::open(&region.range()))
        .transpose()?;
    let cpus = args.cpus.as_ref().map_or(&[][..], |list| list.ids());
    let mut usage = ThreadUsage::default();
    let search = |source: u32| {
        let (found, used) = bfs::search(&graph, source, args.threads, cpus)?;
        usage += used;
        if is_checked {
            bfs::check(&graph, &found).with_context(|| format!("the search from {source}"))?;
        }
        Ok(found)
    };
    let slice = Duration::from_millis(args.slice_ms);
    let searches = marks::watched(marks.as_ref(), slice, || {
        sources.into_iter().map(search).collect::<Result<Vec<_>>>()
    })?;

    let nodes = hold::end(hold, nodes)?;
    let after = graph.page_sums();
    let errors = content.iter().zip(&after).filter(|(a, b)| a != b).count() as u64;
    report::print(&Event::Done {
        elapsed_s: searches.iter().map(|search| search.seconds).sum(),
        traversed_edges_per_s: bfs::traversed_per_s(&searches),
        accesses: None,
        searches: &searches,
        checked: is_checked,
        checksum: format!("{:016x}", bfs::checksum(&searches)),
        user_s: usage.user_s,
        kernel_s: usage.kernel_s,
        minor_faults: usage.minor_faults,
        nodes,
        errors,
    })?;
    ensure!(errors == 0, "{errors} pages lost their content");
    Ok(())
}
