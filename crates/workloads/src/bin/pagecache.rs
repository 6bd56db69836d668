//! `pagecache`: read a known hot set of a file's pages by `pread` and report where they are.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Parser;
use pghot_workloads::access::Pace;
use pghot_workloads::args::seconds;
use pghot_workloads::cached_file::CachedFile;
use pghot_workloads::hot_set::{HotSet, Layout};
use pghot_workloads::list::IdList;
use pghot_workloads::numa_maps::NodePages;
use pghot_workloads::placement::Placement;
use pghot_workloads::random::XorShift;
use pghot_workloads::report::{self, time_to_percent_s};
use pghot_workloads::sys;
use serde::Serialize;

/// Read a known hot set of a file's pages and report where they are.
///
/// Writes a file whose page cache is on one node, reads its hot pages at random with pread, and
/// prints JSON lines: `ready`, a `sample` now and then, `done` with the results. The file is never
/// mapped while it is read. It is removed at the end.
#[derive(Clone, Debug, Parser)]
#[command(name = "pagecache", version)]
struct Args {
    /// The file; what it held is lost
    #[arg(long, value_name = "PATH")]
    file: PathBuf,

    /// Size of the file
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=8 << 20))]
    size_mib: u32,

    /// Share of the pages that is hot
    #[arg(long, value_name = "P", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    hot_percent: u32,

    /// How the hot pages lie among the cold ones
    #[arg(long, value_enum, default_value_t = Layout::Scattered)]
    layout: Layout,

    /// Threads that read
    #[arg(long, value_name = "T", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,

    /// Share of the time in which they do, in pieces of some milliseconds
    #[arg(long, value_name = "P", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    busy_percent: u32,

    /// CPUs that the threads run on
    #[arg(long, value_name = "LIST")]
    cpus: Option<IdList>,

    /// Node whose memory caches the file at first
    #[arg(long, value_name = "NODE")]
    home: u32,

    /// Nodes of the top tier
    #[arg(long, value_name = "NODES")]
    fast: IdList,

    /// Read every cold page once in this time, evenly paced; 0 for never
    #[arg(long, value_name = "S", default_value_t = 0.0)]
    #[arg(value_parser = seconds, allow_negative_numbers = true)]
    cold_sweep_seconds: f64,

    /// Length of the access phase at most
    #[arg(long, value_name = "MAX", default_value_t = 60.0)]
    #[arg(value_parser = seconds, allow_negative_numbers = true)]
    seconds: f64,

    /// End early, once the page cache on fast nodes has grown by as many pages as are hot
    #[arg(long)]
    until_promoted: bool,

    /// Time between two samples
    #[arg(long, value_name = "N", default_value_t = 250)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    report_ms: u64,

    /// Seed of the hot set, the reads and the contents
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Have the kernel make a handle of the file, without which tmpfs does not find it by one
    #[arg(long)]
    encode_handle: bool,
}

/// One line of output, told apart by its field `event`.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event {
    /// The file is in the page cache; reading comes next.
    Ready(Ready),
    /// What can be seen without touching the file's pages.
    Sample(Sample),
    /// The end, with the results.
    Done(Done),
}

#[derive(Debug, Serialize)]
struct Ready {
    pid: u32,
    file: PathBuf,
    page_bytes: usize,
    pages: u32,
    hot_pages: u64,
    /// Cached pages of the file per node.
    nodes: NodePages,
}

#[derive(Clone, Debug, Serialize)]
struct Sample {
    t_s: f64,
    /// Page cache of the whole machine per node: whose it is cannot be asked without mapping it.
    cache_pages: NodePages,
    /// How many of its pages fast nodes have gained since the start.
    gained: u64,
    reads: u64,
}

#[derive(Debug, Serialize)]
struct Done {
    /// Seconds until fast nodes had gained half as many pages as are hot; null for never.
    t50_s: Option<f64>,
    /// The same for 90 %.
    t90_s: Option<f64>,
    /// The same for all of them.
    t100_s: Option<f64>,
    hot_promoted: u64,
    cold_promoted: u64,
    hot_left: u64,
    /// Share of the hot pages that is on fast nodes.
    recall: f64,
    /// Share of the pages on fast nodes that is hot; null if none is there.
    precision: Option<f64>,
    /// Cached pages of the file per node at the end.
    nodes: NodePages,
    reads: u64,
    elapsed_s: f64,
    /// Reads and, at the end, pages that did not give what was written.
    errors: u64,
}

fn main() -> ExitCode {
    report::exit_code("pagecache", run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    let page_bytes = sys::page_bytes();
    let pages = args.size_mib * ((1 << 20) / page_bytes as u32);
    let hot_set = HotSet::choose(pages, args.hot_percent, args.layout, 1, args.seed);
    let hot_pages = hot_set.pages().len() as u64;
    let file = CachedFile::create(&args.file, pages, args.home, args.seed)?;
    if args.encode_handle {
        file.encode_handle()?;
    }
    let nodes = file.look_up(&hot_set, &args.fast)?.nodes;
    let at_home = nodes.get(&args.home).copied().unwrap_or(0);
    ensure!(
        at_home == u64::from(pages),
        "only {at_home} of {pages} pages are cached on node {}, where all should start: {nodes:?}",
        args.home
    );
    let ready = Ready {
        pid: std::process::id(),
        file: args.file.clone(),
        page_bytes,
        pages,
        hot_pages,
        nodes,
    };
    report::print(&Event::Ready(ready))?;

    let phase = read_phase(args, &file, &hot_set)?;
    let end = file.look_up(&hot_set, &args.fast)?;
    let done = results(&phase, end, hot_pages, phase.errors + file.damaged_pages());
    report::print(&Event::Done(done))?;
    // Somebody may have removed it under us, which is part of some tests.
    let _ = fs::remove_file(&args.file);
    Ok(())
}

/// What the reading threads share.
struct Shared<'a> {
    file: &'a CachedFile,
    stop: AtomicBool,
    reads: AtomicU64,
    errors: AtomicU64,
}

impl Shared<'_> {
    fn read(&self, page: u32, buffer: &mut Vec<u8>) {
        if !self.file.is_intact(page, buffer) {
            self.errors.fetch_add(1, Ordering::Relaxed);
        }
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Reads random hot pages until the end.
    fn read_hot(&self, hot_pages: &[u32], mut pace: Pace, seed: u64) {
        let mut random = XorShift::new(seed);
        let mut buffer = Vec::new();
        while !self.is_over() {
            let page = hot_pages[random.below(hot_pages.len() as u32) as usize];
            self.read(page, &mut buffer);
            pace.rest_if_due();
        }
    }

    /// Reads every cold page once in `period`, in order, again and again.
    fn sweep(&self, cold_pages: &[u32], period: Duration) {
        const STEP: Duration = Duration::from_millis(10);
        let started = Instant::now();
        let mut buffer = Vec::new();
        let mut done = 0;
        while !self.is_over() {
            let rounds = started.elapsed().as_secs_f64() / period.as_secs_f64();
            let due = (rounds * cold_pages.len() as f64) as usize;
            for turn in done..due {
                self.read(cold_pages[turn % cold_pages.len()], &mut buffer);
            }
            done = due;
            thread::sleep(STEP);
        }
    }
}

/// What the reading left behind.
struct Phase {
    samples: Vec<Sample>,
    reads: u64,
    errors: u64,
    elapsed_s: f64,
}

fn read_phase(args: &Args, file: &CachedFile, hot_set: &HotSet) -> Result<Phase> {
    let shared = &Shared {
        file,
        stop: AtomicBool::new(false),
        reads: AtomicU64::new(0),
        errors: AtomicU64::new(0),
    };
    let pin = || {
        args.cpus
            .as_ref()
            .map_or(Ok(()), |cpus| sys::run_on(cpus.ids()))
    };
    let cold_pages = hot_set.cold_pages();
    let started = Instant::now();
    let samples = thread::scope(|scope| {
        let mut threads = Vec::new();
        for number in 1..=u64::from(args.threads) {
            let seed = args.seed.wrapping_add(number);
            let pace = Pace::new(args.busy_percent);
            let read = move || shared.read_hot(hot_set.pages(), pace, seed);
            threads.push(scope.spawn(move || pin().map(|()| read())));
        }
        if args.cold_sweep_seconds > 0.0 && !cold_pages.is_empty() {
            let period = Duration::from_secs_f64(args.cold_sweep_seconds);
            let cold_pages = &cold_pages;
            threads.push(scope.spawn(move || pin().map(|()| shared.sweep(cold_pages, period))));
        }
        let samples = sample_until_end(args, shared, hot_set.pages().len() as u64, started);
        shared.stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a reader panicked"))??;
        }
        samples
    })?;
    Ok(Phase {
        samples,
        reads: shared.reads.load(Ordering::Relaxed),
        errors: shared.errors.load(Ordering::Relaxed),
        elapsed_s: started.elapsed().as_secs_f64(),
    })
}

fn sample_until_end(
    args: &Args,
    shared: &Shared<'_>,
    hot_pages: u64,
    started: Instant,
) -> Result<Vec<Sample>> {
    let on_fast = |cache: &NodePages| -> u64 {
        args.fast
            .ids()
            .iter()
            .filter_map(|nid| cache.get(nid))
            .sum()
    };
    let nodes: Vec<u32> = args.fast.ids().iter().copied().chain([args.home]).collect();
    let before = on_fast(&cache_pages(&nodes)?);
    let mut samples: Vec<Sample> = Vec::new();
    loop {
        let cache_pages = cache_pages(&nodes)?;
        let sample = Sample {
            t_s: started.elapsed().as_secs_f64(),
            gained: on_fast(&cache_pages).saturating_sub(before),
            cache_pages,
            reads: shared.reads.load(Ordering::Relaxed),
        };
        report::print(&Event::Sample(sample.clone()))?;
        let is_over =
            sample.t_s >= args.seconds || args.until_promoted && sample.gained >= hot_pages;
        samples.push(sample);
        if is_over {
            return Ok(samples);
        }
        thread::sleep(Duration::from_millis(args.report_ms));
    }
}

/// Page cache per node, tmpfs included.
fn cache_pages(nodes: &[u32]) -> Result<NodePages> {
    let page_kib = sys::page_bytes() as u64 >> 10;
    let of_node = |nid: &u32| {
        let path = format!("/sys/devices/system/node/node{nid}/meminfo");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        // Node 0 FilePages:       12345 kB
        let kib = text.split_once("FilePages:").and_then(|(_, rest)| {
            let number = rest.split_ascii_whitespace().next()?;
            number.parse::<u64>().ok()
        });
        let kib = kib.with_context(|| format!("{path} has no FilePages"))?;
        Ok((*nid, kib / page_kib))
    };
    nodes
        .iter()
        .map(of_node)
        .collect::<Result<BTreeMap<_, _>>>()
}

fn results(phase: &Phase, end: Placement, hot_pages: u64, errors: u64) -> Done {
    let gained: Vec<(f64, u64)> = phase.samples.iter().map(|s| (s.t_s, s.gained)).collect();
    let time_to = |percent| time_to_percent_s(&gained, hot_pages, percent);
    let fast = end.hot_fast + end.cold_fast;
    Done {
        t50_s: time_to(50),
        t90_s: time_to(90),
        t100_s: time_to(100),
        hot_promoted: end.hot_fast,
        cold_promoted: end.cold_fast,
        hot_left: hot_pages - end.hot_fast,
        recall: end.hot_fast as f64 / hot_pages as f64,
        precision: (fast > 0).then(|| end.hot_fast as f64 / fast as f64),
        nodes: end.nodes,
        reads: phase.reads,
        elapsed_s: phase.elapsed_s,
        errors,
    }
}
