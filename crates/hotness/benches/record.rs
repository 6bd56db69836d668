//! What a record costs, each figure beside its physical limit in the same run.
//!
//! * `update/*`: one uncontended report, in bulk and single, against a bare compare-and-swap of the
//!   same records' words.
//! * `threads/*`: the same on distinct pages by one and by two threads.
//! * `scan/*`: reading hot sections against reading the same memory as fast as this core can.
//! * `pass/1TiB-idle`: a whole pass over the marks of 1 TiB of lower tier with no access in it.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use pghot_hotness::{Access, Format, PfnRange, Rule, SECTION_PAGES, Span, Table};

fn table(format: Format, sections: u64) -> Table {
    let range = PfnRange {
        start: 0,
        end: sections * SECTION_PAGES,
        nid: 2,
    };
    Table::in_memory(format, Span::new(&[range]).expect("a whole range"))
}

fn rule(format: Format) -> Rule {
    Rule::new(format, 2, 3000).expect("defaults are in range")
}

/// Pages that the update benchmarks visit: their records lie in the first-level cache, where a
/// bare compare-and-swap is at its fastest and the rule's own work shows the most.
const PAGES: u64 = 1024;

/// Each page once, out of order.
fn accesses(section: u64) -> Vec<Access> {
    let pfn = |i| section * SECTION_PAGES + i * 411 % PAGES;
    (0..PAGES)
        .map(|i| Access {
            pfn: pfn(i),
            nid: 0,
        })
        .collect()
}

/// Visits between two sweeps, as many as the default format's times allow; one more comes first,
/// unmeasured, because the sweep has filled the cache with the rest of the section.
const ROUNDS: u64 = 14;

/// The time of a visit: one time unit of the default format passes between two visits of a page,
/// so every report changes its record, and none is spared by being the same again.
fn when_ms(visit: u64) -> u64 {
    visit << 8
}

/// Time for `n` accesses at the pace of the fastest of many blocks: a neighbour on a shared host
/// can make a block slower, never faster. `visit` makes one visit of all pages, `between` runs
/// unmeasured after each block.
fn undisturbed(n: u64, visit: impl Fn(u64), between: impl Fn(u64)) -> Duration {
    let blocks = n.div_ceil(ROUNDS * PAGES).max(8);
    let mut fastest = Duration::MAX;
    for block in 0..blocks {
        let first = block * (ROUNDS + 1);
        visit(first);
        let start = Instant::now();
        (first + 1..=first + ROUNDS).for_each(&visit);
        fastest = fastest.min(start.elapsed());
        between(first + ROUNDS);
    }
    fastest.mul_f64(n as f64 / (ROUNDS * PAGES) as f64)
}

fn bare_cas(words: &[AtomicU32], accesses: &[Access]) {
    let mut done = 0u64;
    for a in accesses {
        let word = &words[(a.pfn / 4) as usize];
        let old = word.load(Relaxed);
        let swapped = word.compare_exchange(old, old + 1, SeqCst, Relaxed);
        done += swapped.is_ok() as u64;
    }
    black_box(done);
}

fn words() -> Vec<AtomicU32> {
    (0..PAGES / 4).map(|_| AtomicU32::new(0)).collect()
}

fn update(c: &mut Criterion) {
    let mut group = c.benchmark_group("update");
    let (words, accesses) = (words(), accesses(0));
    group.bench_function("bare-cas", |b| {
        b.iter_custom(|n| undisturbed(n, |_| bare_cas(&words, &accesses), |_| {}))
    });
    for format in [Format::Default, Format::Precision] {
        let (t, rule) = (table(format, 1), rule(format));
        let sweep = |visit: u64| {
            t.sweep(2, when_ms(visit), 0, &rule); // what a migrator does meanwhile
        };
        let bulk = |visit: u64| {
            black_box(t.report_bulk(&accesses, when_ms(visit), &rule, drop));
        };
        let single = |visit: u64| {
            for a in &accesses {
                black_box(t.report(a.pfn, a.nid, when_ms(visit), &rule));
            }
        };
        let name = format!("{format:?}").to_lowercase();
        group.bench_function(format!("bulk-{name}"), |b| {
            b.iter_custom(|n| {
                t.sweep(2, 1 << 40, 0, &rule);
                undisturbed(n, bulk, sweep)
            })
        });
        group.bench_function(format!("single-{name}"), |b| {
            b.iter_custom(|n| {
                t.sweep(2, 1 << 40, 0, &rule);
                undisturbed(n, single, sweep)
            })
        });
    }
    group.finish();
}

/// Time for `n` accesses by each of `threads` threads; `work` gets the thread and the visit.
fn parallel(threads: u64, n: u64, work: &(impl Fn(u64, u64) + Sync)) -> Duration {
    let barrier = Barrier::new(threads as usize);
    // Each thread times itself: one that only observes would need a core of its own.
    let timed = |thread| {
        barrier.wait();
        undisturbed(n.max(1 << 20), |visit| work(thread, visit), |_| {})
    };
    let slowest = std::thread::scope(|s| {
        let start = |thread| {
            let timed = &timed;
            s.spawn(move || timed(thread))
        };
        let threads: Vec<_> = (0..threads).map(start).collect();
        let times = threads.into_iter().map(|t| t.join().expect("no panic"));
        times.max().unwrap_or_default()
    });
    slowest.mul_f64(n as f64 / n.max(1 << 20) as f64)
}

/// Threads on distinct pages, each in a section of its own; a bare compare-and-swap beside it
/// shows what this machine's cores take from each other in any case.
fn threads(c: &mut Criterion) {
    let mut group = c.benchmark_group("threads");
    for threads in [1, 2] {
        group.throughput(Throughput::Elements(threads));
        let own: Vec<_> = (0..threads).map(|_| (words(), accesses(0))).collect();
        group.bench_function(format!("bare-cas-{threads}"), |b| {
            let work = |thread: u64, _| bare_cas(&own[thread as usize].0, &own[thread as usize].1);
            b.iter_custom(|n| parallel(threads, n, &work))
        });
        let own: Vec<_> = (0..threads).map(|thread| accesses(2 * thread)).collect();
        group.bench_function(format!("bulk-{threads}"), |b| {
            let rule = rule(Format::Default);
            b.iter_custom(|n| {
                let t = table(Format::Default, 2 * threads);
                // Within one trusted stretch of time.
                parallel(threads, n, &|thread, visit| {
                    black_box(t.report_bulk(
                        &own[thread as usize],
                        when_ms(visit % 16),
                        &rule,
                        drop,
                    ));
                })
            })
        });
    }
    group.finish();
}

fn scan(c: &mut Criterion) {
    const SECTIONS: u64 = 4096; // 128 MiB of records: far beyond any cache
    let mut group = c.benchmark_group("scan");
    group
        .throughput(Throughput::Bytes(SECTIONS * SECTION_PAGES))
        .sample_size(20);
    let bytes: Vec<u64> = vec![1; (SECTIONS * SECTION_PAGES / 8) as usize];
    group.bench_function("read-bandwidth", |b| {
        b.iter(|| {
            let lanes = bytes.chunks_exact(8).fold([0u64; 8], |mut sum, line| {
                sum.iter_mut().zip(line).for_each(|(s, x)| *s ^= x);
                sum
            });
            black_box(lanes)
        })
    });
    // One page in 1024 is ready, and every section is hot.
    let (t, rule) = (table(Format::Default, SECTIONS), rule(Format::Default));
    for pfn in (0..SECTIONS * SECTION_PAGES).step_by(1024) {
        t.report(pfn, 0, 10, &rule);
        t.report(pfn, 0, 20, &rule);
    }
    group.bench_function("hot-sections", |b| {
        b.iter(|| {
            let mut ready = 0u64;
            t.ready_pages(2, &mut |_| ready += 1);
            assert_eq!(ready, SECTIONS * SECTION_PAGES / 1024);
        })
    });
    group.finish();
}

fn idle_pass(c: &mut Criterion) {
    const TIB_SECTIONS: u64 = (1 << 40) / 4096 / SECTION_PAGES;
    let (t, rule) = (table(Format::Default, TIB_SECTIONS), rule(Format::Default));
    c.bench_function("pass/1TiB-idle", |b| {
        b.iter_batched(
            || (),
            |()| {
                t.sweep(2, 1_000_000, rule.ageing_interval_ms(), &rule);
                t.ready_pages(2, &mut |_| unreachable!("nothing was reported"))
            },
            BatchSize::SmallInput,
        )
    });
}

criterion_group!(benches, update, threads, scan, idle_pass);
criterion_main!(benches);
