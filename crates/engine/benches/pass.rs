//! What a pass costs while pages wait for room in the top tier, which is the normal state of a
//! server: every ready page is looked at, and none moves.

#![allow(clippy::unwrap_used)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pghot_engine::fake::FakeMachine;
use pghot_engine::{Gates, History, Journal, Migrator, Settings};
use pghot_hotness::{Format, PfnRange, SECTION_PAGES, Span, Table};

/// Half a GiB of pages that are hot.
const READY_PAGES: u64 = 1 << 17;

fn waiting(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("a pass over pages that wait for room");
    group.throughput(Throughput::Elements(READY_PAGES));
    for (name, mode) in [
        ("default", Format::Default),
        ("precision", Format::Precision),
    ] {
        let mut settings = Settings::new(mode);
        // As without room, but from the first pass on.
        settings.promote_rate_limit_mbps = 0;
        let rule = settings.rule().unwrap();
        let range = PfnRange {
            start: 0,
            end: READY_PAGES.next_multiple_of(SECTION_PAGES),
            nid: 2,
        };
        let table = Table::in_memory(mode, Span::new(&[range]).unwrap());
        let mut machine = FakeMachine::tiered3();
        machine.now_ms = 10_000;
        for page in 0..READY_PAGES {
            table.report(page, 0, machine.now_ms, &rule.at_one_look());
        }
        let (history, gates) = (History::default(), Gates::default());
        let mut migrator = Migrator::new(2, history, gates, Journal::default());
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let report = migrator.pass(&table, &settings, &rule, &mut machine);
                assert_eq!(report.ready, READY_PAGES);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, waiting);
criterion_main!(benches);
