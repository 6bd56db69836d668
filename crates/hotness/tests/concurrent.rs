//! Reports from many threads at once: none is lost, none touches a neighbour.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Barrier};

use pghot_hotness::{Format, PfnRange, Report, Rule, SECTION_PAGES, Span, Table};

const PAGES: u64 = 2 * SECTION_PAGES;

fn table(format: Format) -> Arc<Table> {
    let range = PfnRange {
        start: 0,
        end: PAGES,
        nid: 2,
    };
    Arc::new(Table::in_memory(format, Span::new(&[range]).unwrap()))
}

/// Four threads report on the four records of each word at the same time: after round k every
/// record counts exactly k, so no neighbour's report was lost and none was smeared over.
#[test]
fn neighbours_in_one_word_do_not_disturb_each_other() {
    let t = table(Format::Default);
    let rule = Rule::new(Format::Default, 3, 3000).unwrap();
    let barrier = Arc::new(Barrier::new(4));
    let threads: Vec<_> = (0..4u64)
        .map(|lane| {
            let (t, barrier) = (t.clone(), barrier.clone());
            std::thread::spawn(move || {
                for round in 1..=3 {
                    for word in 0..PAGES / 4 {
                        // In step within a word, or the threads would never meet there.
                        if word % 64 == 0 {
                            barrier.wait();
                        }
                        let report = t.report(word * 4 + lane, 0, 100 * round, &rule);
                        assert_eq!(report == Report::BecameReady, round == 3);
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    for pfn in 0..PAGES {
        let rec = t.get(pfn).unwrap();
        assert_eq!((rec.freq(), rec.is_ready()), (3, true), "pfn {pfn}");
    }
}

/// Several threads on the same record: the count saturates, never wraps, and ready comes once.
#[test]
fn one_record_saturates_under_contention() {
    for format in [Format::Default, Format::Precision] {
        let t = table(format);
        let rule = Rule::new(format, format.freq_max(), 3000).unwrap();
        let ready = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (t, ready) = (t.clone(), ready.clone());
                std::thread::spawn(move || {
                    for _ in 0..20_000 {
                        match t.report(5, 1, 1000, &rule) {
                            Report::BecameReady => _ = ready.fetch_add(1, Relaxed),
                            Report::Recorded => {}
                            other => panic!("{other:?}"),
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(t.get(5).unwrap().freq(), format.freq_max());
        assert_eq!(ready.load(Relaxed), 1);
        assert!(t.get(4).unwrap().is_empty() && t.get(6).unwrap().is_empty());
    }
}

/// A migrator picks and takes while reporters run and somebody ages: every page that becomes ready
/// is found, exactly as often as it became ready.
#[test]
fn no_ready_page_is_missed_by_a_running_migrator() {
    let t = table(Format::Default);
    let rule = Rule::new(Format::Default, 1, 1000).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let became_ready = Arc::new(AtomicU64::new(0));
    let reporters: Vec<_> = (0..3u64)
        .map(|n| {
            let (t, stop, became_ready) = (t.clone(), stop.clone(), became_ready.clone());
            std::thread::spawn(move || {
                let mut x = 88_172_645_463_325_252u64 + n;
                while !stop.load(Relaxed) {
                    x ^= x << 13;
                    x ^= x >> 7;
                    x ^= x << 17;
                    if t.report(x % PAGES, 0, 50, &rule) == Report::BecameReady {
                        became_ready.fetch_add(1, Relaxed);
                    }
                }
            })
        })
        .collect();
    let ager = {
        let (t, stop) = (t.clone(), stop.clone());
        std::thread::spawn(move || {
            while !stop.load(Relaxed) {
                t.sweep(2, 50, 0, &rule);
            }
        })
    };
    let mut taken = 0;
    let pass = |taken: &mut u64| {
        let mut found = Vec::new();
        t.ready_pages(2, &mut |page| found.push(page.pfn));
        for pfn in found {
            *taken += t.take(pfn).unwrap().is_ready() as u64;
        }
    };
    // The reporters never stop by themselves, so this ends unless pages go missing.
    while taken < 4 * PAGES {
        pass(&mut taken);
    }
    stop.store(true, Relaxed);
    reporters.into_iter().for_each(|r| r.join().unwrap());
    ager.join().unwrap();
    pass(&mut taken);
    assert_eq!(taken, became_ready.load(Relaxed));
    // Once aged and looked at in vain, nothing is marked any more.
    t.sweep(2, 9000, 0, &rule);
    t.ready_pages(2, &mut |page| panic!("{page:?} is left"));
    assert_eq!(t.live_sections(2), (0, 0));
}
