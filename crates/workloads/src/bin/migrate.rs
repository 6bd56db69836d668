//! `migrate`: how fast the kernel moves pages from node to node, and how long the first one waits.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use pghot_workloads::migrate::{Migration, Speed};
use pghot_workloads::numa_maps::{self, NodePages};
use pghot_workloads::region::{self, Backing, Region};
use pghot_workloads::report;
use serde::Serialize;

/// Measure move_pages(2) between two nodes, by the folios given to one call and the threads that
/// move.
///
/// Prints JSON lines: `ready`, then `moved` for each combination of --threads and --batch, then
/// `done`. Throughput is measured without tracing. How long the first folio of a call waits is
/// measured afterwards, with a trace instance of its own, if tracefs is readable.
#[derive(Clone, Debug, Parser)]
#[command(name = "migrate", version)]
struct Args {
    /// Node where the pages are
    #[arg(long, value_name = "NODE")]
    from: u32,

    /// Node where they go, and from where they come back before the next repeat
    #[arg(long, value_name = "NODE")]
    to: u32,

    /// Size of the memory
    #[arg(long, value_name = "N", default_value_t = 1024)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=8 << 20))]
    size_mib: u32,

    /// Kind of folio
    #[arg(long, value_enum, default_value_t = Folio::Base)]
    folio: Folio,

    /// Folios given to one call, one run each
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1,4,8,64,512,4096"
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    batch: Vec<u32>,

    /// Threads that each move their own part at the same time, one run each
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Vec<u32>,

    /// How often each is measured
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeat: u32,

    /// Seed of the contents
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Folio {
    /// Base pages
    Base,
    /// Transparent huge pages
    Thp,
}

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event {
    Ready {
        pid: u32,
        folio: Folio,
        folio_bytes: usize,
        folios: u32,
        from: u32,
        to: u32,
        nodes: NodePages,
    },
    Moved(Speed),
    Done {
        elapsed_s: f64,
        nodes: NodePages,
        /// Huge pages that the kernel split on the way.
        split: u64,
        errors: u64,
    },
}

fn main() -> ExitCode {
    report::exit_code("migrate", run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    let (from, to) = (args.from, args.to);
    ensure!(from != to, "--from and --to are the same node");
    let (backing, folio_mib) = match args.folio {
        Folio::Base => (Backing::Anon, 1),
        Folio::Thp => (Backing::Thp, 2),
    };
    let bytes = (args.size_mib.next_multiple_of(folio_mib) as usize) << 20;
    let region = Region::map(bytes, backing, from, Path::new("/tmp"))?;
    region::ensure_room(to, bytes)?;
    // The memory keeps its policy, so that NUMA balancing moves nothing on its own.
    region.populate(args.seed)?;
    let huge = huge_folios(&region)?;
    let folios = region.pages() / region.unit_pages();
    ensure!(
        args.folio == Folio::Base || huge == u64::from(folios),
        "node {from} had {huge} huge pages to give, {folios} are needed"
    );
    report::print(&Event::Ready {
        pid: std::process::id(),
        folio: args.folio,
        folio_bytes: region.unit_pages() as usize * region.page_bytes(),
        folios,
        from,
        to,
        nodes: numa_maps::read(&region.range())?,
    })?;

    let started = Instant::now();
    for &threads in &args.threads {
        for &batch in &args.batch {
            let migration = Migration {
                region: &region,
                from,
                to,
                threads: threads as usize,
                batch: batch as usize,
            };
            report::print(&Event::Moved(migration.measure(args.repeat)?))?;
        }
    }
    let errors = region.damaged_pages(args.seed);
    report::print(&Event::Done {
        elapsed_s: started.elapsed().as_secs_f64(),
        nodes: numa_maps::read(&region.range())?,
        split: huge.saturating_sub(huge_folios(&region)?),
        errors,
    })?;
    ensure!(errors == 0, "{errors} pages lost their content");
    Ok(())
}

/// Huge pages that are mapped as such.
fn huge_folios(region: &Region) -> Result<u64> {
    let smaps = fs::read_to_string("/proc/self/smaps").context("cannot read /proc/self/smaps")?;
    let start = format!("{:x}-", region.range().start);
    let mapping = smaps.lines().skip_while(|line| !line.starts_with(&start));
    let huge_kib = mapping
        .filter_map(|line| line.strip_prefix("AnonHugePages:"))
        .next()
        .and_then(|size| size.trim().strip_suffix(" kB")?.parse::<u64>().ok())
        .unwrap_or(0);
    let folio_bytes = region.unit_pages() as usize * region.page_bytes();
    Ok((huge_kib << 10) / folio_bytes as u64)
}
