//! What a run costs its host.
//!
//! * `promotion/PAGES`: a process whose pages are all promoted, one after the other, from the first
//!   to the last: as much work for each page at any size, so the time per page must stay the same.
//! * `statistical/PAGES`: one simulated second of one process under pghot, page tables as its
//!   source. Per page it must not rise with the size; it falls, since a source looks at a bounded
//!   number of pages in a second.
//! * `exact/ACCESSES`: accesses one by one, per access.
//! * `pread`: no run, but what the model takes a read of page cache for: `Costs::read_ns`.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use pghot_sim::run::Simulation;
use pghot_sim::scenario::{PatternName, Scenario};
use pghot_sim::systems::Setting;
use pghot_workloads::random::XorShift;

const PAGES_PER_MIB: u64 = 256;
/// Three decades.
const PAGES: [u64; 4] = [1 << 16, 1 << 19, 1 << 22, 1 << 25];
/// Simulated time of one run: what comes only now and then has its share.
const SECONDS: u64 = 12;
const ACCESSES: u64 = 20_000_000;

/// Most of the accesses go to a tenth of the pages; everything begins in the lower tier. The top
/// tier has room for all: reclaim at its limit costs the same a simulated second, whatever the
/// size.
fn scenario(mode: &str, pages: u64, seconds: u64, accesses: u64) -> Scenario {
    let mib = pages / PAGES_PER_MIB;
    let text = format!(
        "name = 'scale'\nmode = '{mode}'\nseconds = {seconds}\n[machine]\n[[machine.node]]\n\
         memory_mib = {top}\ncpus = 4\nlatency_ns = [100, 250]\n[[machine.node]]\n\
         memory_mib = {lower}\n[[process]]\nmemory_mib = {mib}\nthreads = 4\n[[process.phase]]\n\
         pattern = 'skewed'\nhot = [0.4, 0.5]\nhot_percent = 90\naccesses = {accesses}\n",
        top = 2 * mib + 4096,
        lower = mib + mib / 8 + 64,
    );
    Scenario::parse(&text, Path::new("scale")).expect("a sound scenario")
}

/// Page tables as the only source.
const PAGE_TABLES: [(&str, &str); 1] = [("enabled_sources", "0x4")];

/// Host time of `runs` runs, without laying the machine out; each promotes so many pages at least.
fn host_time(
    scenario: &Scenario,
    settings: &[(&str, &str)],
    promoted_min: u64,
    runs: u64,
) -> Duration {
    let settings: Vec<Setting> = settings
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let mut time = Duration::ZERO;
    for _ in 0..runs {
        let simulation = Simulation::new(scenario, "pghot", &settings).expect("a sound scenario");
        let start = Instant::now();
        let run = simulation.finish(&mut |_, _| {});
        time += start.elapsed();
        assert!(
            run.counters.promoted_pages >= promoted_min,
            "{:?}",
            run.counters
        );
        black_box(run);
    }
    time
}

/// Every page is marked, takes a hint fault, is recorded and moved: by the kernel in the fault,
/// since the top tier has plenty of room.
fn promotion(c: &mut Criterion) {
    let mut group = c.benchmark_group("promotion");
    group.sample_size(10).warm_up_time(Duration::from_millis(1));
    for pages in PAGES {
        let mut scenario = scenario("statistical", pages, 1, u64::MAX / 2);
        let phase = &mut scenario.process[0].phase[0];
        phase.pattern = PatternName::Random;
        // The scanner's pace, a second before its first visit, and one for the last ones.
        scenario.seconds = pages as f64 / f64::from(1 << 16) + 2.0;
        let settings = [("enabled_sources", "0x1"), ("freq_threshold", "1")];
        // A page may be accessed a little later than the others.
        let promoted_min = pages - pages / 1000;
        group.throughput(Throughput::Elements(pages));
        group.bench_function(BenchmarkId::from_parameter(pages), |b| {
            b.iter_custom(|runs| host_time(&scenario, &settings, promoted_min, runs));
        });
    }
    group.finish();
}

fn statistical(c: &mut Criterion) {
    let mut group = c.benchmark_group("statistical");
    group.sample_size(10).warm_up_time(Duration::from_millis(1));
    for pages in PAGES {
        let scenario = scenario("statistical", pages, SECONDS, u64::MAX / 2);
        // So the time per element is that of a page and a simulated second.
        group.throughput(Throughput::Elements(pages * SECONDS));
        group.bench_function(BenchmarkId::from_parameter(pages), |b| {
            b.iter_custom(|runs| host_time(&scenario, &PAGE_TABLES, 1, runs));
        });
    }
    group.finish();
}

fn exact(c: &mut Criterion) {
    let mut group = c.benchmark_group("exact");
    group.sample_size(10).warm_up_time(Duration::from_millis(1));
    let scenario = scenario("exact", 1 << 16, 600, ACCESSES);
    group.throughput(Throughput::Elements(ACCESSES));
    group.bench_function(BenchmarkId::from_parameter(ACCESSES), |b| {
        b.iter_custom(|runs| host_time(&scenario, &PAGE_TABLES, 1, runs));
    });
    group.finish();
}

/// A page at random of a GiB of page cache.
fn pread(c: &mut Criterion) {
    const FILE_PAGES: u32 = 1 << 18;
    let path = std::env::temp_dir().join(format!("pghot-pread-{}", std::process::id()));
    // By the MiB, so that the page cache is of large folios where the file system has them.
    let mib = vec![7u8; 1 << 20];
    {
        let file = File::create(&path).expect("the temporary folder is writable");
        for at in 0..u64::from(FILE_PAGES) / PAGES_PER_MIB {
            file.write_all_at(&mib, at << 20)
                .expect("a GiB fits into the temporary folder");
        }
    }
    let mut page = [0u8; 4096];
    let file = File::open(&path).expect("it was just written");
    let mut random = XorShift::new(1);
    c.bench_function("pread", |bencher| {
        bencher.iter(|| {
            let at = u64::from(random.below(FILE_PAGES)) << 12;
            file.read_exact_at(&mut page, at).expect("it is so long");
            black_box(page[0])
        });
    });
    // That it stays is no harm.
    let _ = std::fs::remove_file(&path);
}

criterion_group!(benches, promotion, statistical, exact, pread);
criterion_main!(benches);
