//! What a record costs, each figure beside its physical limit in the same run.
//!
//! * `update/*`: one uncontended report against a bare compare-and-swap loop on the same words.
//! * `threads/*`: the same on distinct pages by one and by two threads.
//! * `scan/*`: reading hot sections against reading the same memory as fast as this core can.
//! * `pass/1TiB-idle`: a whole pass over the marks of 1 TiB of lower tier with no access in it.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use pghot_hotness::{Format, PfnRange, Rule, SECTION_PAGES, Span, Table};

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

/// A stride that visits every page of a section once before any twice, out of order.
fn page(i: u64) -> u64 {
    (i.wrapping_mul(4099)) % SECTION_PAGES
}

/// Reports between two sweeps: four visits to each page of a section.
const ROUND: u64 = 4 * SECTION_PAGES;

/// The time of the `i`th report: one time unit of the default format passes between two visits of
/// a page, so every report changes its record, and none is spared by being the same again.
fn when_ms(i: u64) -> u64 {
    (i / SECTION_PAGES) << 8
}

/// Times `n` calls of `one`, without the calls of `between` after each round.
fn rounds(n: u64, mut one: impl FnMut(u64), mut between: impl FnMut(u64)) -> Duration {
    let (mut spent, mut i) = (Duration::ZERO, 0);
    while i < n {
        let end = (i + ROUND).min(n);
        let start = Instant::now();
        (i..end).for_each(&mut one);
        spent += start.elapsed();
        between(end);
        i = end;
    }
    spent
}

fn update(c: &mut Criterion) {
    let mut group = c.benchmark_group("update");
    let words: Vec<AtomicU32> = (0..SECTION_PAGES / 4).map(|_| AtomicU32::new(0)).collect();
    let bare_cas = |i: u64| {
        let word = &words[(page(i) / 4) as usize];
        let old = word.load(Relaxed);
        black_box(word.compare_exchange(old, old + 1, SeqCst, Relaxed).ok());
    };
    group.bench_function("bare-cas", |b| {
        b.iter_custom(|n| rounds(n, bare_cas, |_| {}))
    });
    for format in [Format::Default, Format::Precision] {
        let (t, rule) = (table(format, 1), rule(format));
        let report = |i: u64| {
            black_box(t.report(page(i), 0, when_ms(i), &rule));
        };
        // What a migrator does meanwhile.
        let sweep = |i: u64| {
            t.sweep(2, when_ms(i), 0, &rule);
        };
        group.bench_function(format!("report-{format:?}").to_lowercase(), |b| {
            b.iter_custom(|n| {
                t.sweep(2, 1 << 40, 0, &rule);
                rounds(n, report, sweep)
            })
        });
    }
    group.finish();
}

/// Time for `n` reports by each of `threads` threads, each on a section of its own.
fn parallel(threads: u64, n: u64) -> Duration {
    let (t, rule) = (table(Format::Default, 2 * threads), rule(Format::Default));
    let barrier = Barrier::new(threads as usize + 1);
    std::thread::scope(|s| {
        for k in 0..threads {
            let (t, rule, barrier) = (&t, &rule, &barrier);
            s.spawn(move || {
                let base = 2 * k * SECTION_PAGES;
                barrier.wait();
                // Within one trusted stretch of time; two threads differ from one in sharing
                // only.
                for i in 0..n {
                    black_box(t.report(base + page(i), 0, when_ms(i) & 0xfff, rule));
                }
                barrier.wait();
            });
        }
        barrier.wait();
        let start = Instant::now();
        barrier.wait();
        start.elapsed()
    })
}

fn threads(c: &mut Criterion) {
    let mut group = c.benchmark_group("threads");
    for threads in [1, 2] {
        group.throughput(Throughput::Elements(threads));
        group.bench_function(format!("{threads}"), |b| {
            b.iter_custom(|n| {
                parallel(threads, n.max(100_000)).mul_f64(n as f64 / n.max(100_000) as f64)
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
