//! `hintfault`: how long hint faults take, as the program feels them.

use std::hint::black_box;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;
use pghot_workloads::region::{Backing, Region};
use pghot_workloads::report;
use serde::Serialize;

/// Touch all pages of a node in turn, and time each touch.
///
/// Prints one JSON line: how many touches took far longer than the shortest, and the median of
/// those.
#[derive(Debug, Parser)]
#[command(name = "hintfault", version)]
struct Args {
    /// Size of the memory
    #[arg(long, value_name = "MiB", default_value_t = 16)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65536))]
    size_mib: u32,

    /// Node where all pages start
    #[arg(long, value_name = "NODE")]
    home: u32,

    /// How long to go on
    #[arg(long, value_name = "S", default_value_t = 5)]
    seconds: u64,
}

/// A touch that faults takes so much longer than the shortest, in ns, where a clock counts
/// instructions. Elsewhere other stalls may, too.
const FAULT_MORE_NS: u64 = 500;

#[derive(Debug, Serialize)]
struct Done {
    touches: u64,
    faults: usize,
    fault_p50_ns: u64,
}

fn main() -> ExitCode {
    report::exit_code("hintfault", run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    let bytes = (args.size_mib as usize) << 20;
    let region = Region::map(bytes, Backing::Anon, args.home, Path::new("/tmp"))?;
    region.populate(1)?;
    region.release()?;
    let until = Instant::now() + Duration::from_secs(args.seconds);
    let (mut touches, mut shortest_ns, mut long_ns) = (0, u64::MAX, Vec::new());
    while Instant::now() < until {
        for word in region.words().iter().step_by(region.page_words()) {
            let started = Instant::now();
            black_box(word.load(Ordering::Relaxed));
            let took_ns = started.elapsed().as_nanos() as u64;
            touches += 1;
            shortest_ns = shortest_ns.min(took_ns);
            if took_ns > shortest_ns + FAULT_MORE_NS {
                long_ns.push(took_ns);
            }
        }
    }
    long_ns.sort_unstable();
    let done = Done {
        touches,
        faults: long_ns.len(),
        fault_p50_ns: long_ns.get(long_ns.len() / 2).copied().unwrap_or(0),
    };
    println!("{}", serde_json::to_string(&done)?);
    Ok(())
}
