//! The migrator's pass, gate by gate, on a machine in memory.

#![allow(clippy::unwrap_used)]

use pghot_engine::{FileId, Held, Outcome, Owner, Pace, Place};
use pghot_hotness::Format;
use rig::{BASE, Rig};

mod rig;

#[test]
fn ready_pages_move_and_others_stay() {
    let mut rig = Rig::new(Format::Default, &[]);
    rig.hot(7, 100, 50);
    rig.machine.map(7, BASE);
    rig.touch(0, 1);
    let report = rig.pass();
    assert_eq!((report.ready, report.moved_pages), (50, 50));
    assert_eq!((rig.on_top(), rig.counted(Outcome::Moved)), (50, 50));
    assert!(
        rig.table.get(BASE + 100).unwrap().is_empty(),
        "a moved page's record is used up"
    );
    assert_eq!(
        rig.table.get(BASE).unwrap().freq(),
        1,
        "the others keep theirs"
    );
    assert_eq!(rig.pass().ready, 0);
}

#[test]
fn an_idle_pass_asks_the_machine_nothing() {
    let mut rig = Rig::new(Format::Default, &[]);
    let report = rig.pass();
    assert_eq!((report.ready, rig.migrator.totals().hot_sections), (0, 0));
    assert!(rig.machine.resolved.is_empty() && rig.machine.batches.is_empty());
}

#[test]
fn a_page_that_went_cold_does_not_move() {
    let mut rig = Rig::new(Format::Default, &[("promote_rate_limit_MBps", "0")]);
    rig.hot(7, 0, 10);
    assert_eq!(rig.pass().held[&Held::RateLimit], 10);
    rig.machine.now_ms += 3001;
    rig.settings.promote_rate_limit_mbps = 1000;
    assert_eq!(rig.pass().ready, 0);
    rig.machine.now_ms += rig.rule.ageing_interval_ms();
    rig.pass();
    assert_eq!((rig.on_top(), rig.migrator.totals().expired_ready), (0, 10));
}

#[test]
fn batches_are_bounded_in_pages_and_hold_one_process() {
    let mut rig = Rig::new(Format::Default, &[("kmigrated_batch_nr", "64")]);
    for pid in 0..3 {
        rig.hot(pid, pid as u64 * 1000, 150);
    }
    for n in 0..4 {
        rig.machine.map_folio(9, BASE + 8192 + n * 512, 512);
        rig.touch(8192 + n * 512, 2);
    }
    let report = rig.pass();
    assert_eq!(report.moved_pages, 450 + 4 * 512);
    for batch in &rig.machine.batches {
        let sum: u32 = batch.folios.iter().map(|f| f.pages).sum();
        assert_eq!(sum, batch.pages);
        assert!(
            sum <= 64 || batch.folios.len() == 1,
            "{sum} pages in {:?}",
            batch.folios.len()
        );
    }
    // 150 pages are three batches of at most 64 for each process, and one per huge page.
    assert_eq!(rig.machine.batches.len(), 3 * 3 + 4);
    assert_eq!(rig.migrator.totals().large_folios_moved, 4);
}

#[test]
fn the_hottest_go_first_when_the_rate_limits() {
    let mut rig = Rig::new(
        Format::Precision,
        &[
            ("promote_rate_limit_MBps", "1"),
            ("freq_threshold", "1"),
            ("freq_window_ms", "5000"),
        ],
    );
    // Frequencies 1 to 5, in an order that is neither that of the addresses nor its reverse.
    for page in 0..500 {
        rig.machine.map(7, BASE + page);
        rig.touch(page, 1 + (page * 7 % 5) as u32);
    }
    // 1 MB/s is 256 pages a second: 51.2 in the two intervals that the bucket holds.
    let report = rig.pass();
    assert_eq!(
        (report.moved_pages, report.held[&Held::RateLimit]),
        (52, 448)
    );
    let hottest = |page: &u64| page * 7 % 5 == 4;
    for page in 0..500 {
        let moved = rig.machine.folios[&(BASE + page)].nid == 0;
        assert!(
            !moved || hottest(&page),
            "page {page} went before a hotter one"
        );
    }
    let mut moved = report.moved_pages;
    for _ in 0..9 {
        moved += rig.pass().moved_pages;
    }
    assert!((52 + 9 * 25..=52 + 9 * 26).contains(&moved), "{moved}");
}

#[test]
fn equally_often_accessed_pages_go_by_recency() {
    let sets = [("promote_rate_limit_MBps", "1"), ("freq_threshold", "1")];
    let mut rig = Rig::new(Format::Precision, &sets);
    for page in 0..100 {
        rig.machine.map(7, BASE + page);
        rig.touch(page, 1);
        rig.machine.now_ms += 4;
    }
    rig.pass();
    for page in 0..100 {
        assert_eq!(
            rig.machine.folios[&(BASE + page)].nid == 0,
            page >= 48,
            "page {page}"
        );
    }
}

#[test]
fn a_full_target_takes_only_what_fits_above_its_watermark() {
    let mut rig = Rig::new(Format::Default, &[("kmigrated_batch_nr", "64")]);
    rig.machine.room_pages.insert(0, 100);
    rig.machine.reserve_pages.insert(0, 1000);
    rig.hot(7, 0, 300);
    let report = rig.pass();
    assert_eq!((report.moved_pages, report.held[&Held::NoRoom]), (100, 200));
    assert_eq!(
        rig.machine.reserve_pages[&0], 1000,
        "nothing was taken below the watermark"
    );
    assert!(rig.is_ready(299), "what waits stays ready");
    rig.machine.room_pages.insert(0, 1000);
    assert_eq!(rig.pass().moved_pages, 200);
}

#[test]
fn where_there_is_no_room_it_seldom_looks_at_what_waits() {
    let mut rig = Rig::new(Format::Default, &[]);
    rig.machine.room_pages = [(0, 0), (1, 0)].into();
    rig.machine.room_ms = 5;
    rig.hot(7, 0, 300);
    rig.pass();
    rig.pass();
    let reads = |rig: &Rig| rig.migrator.totals().hot_sections;
    let before = reads(&rig);
    let report = rig.pass();
    assert_eq!((report.ready, report.held[&Held::NoRoom]), (300, 300));
    assert!(report.wants_room() && report.waiting[&0].counted_pages == 300);
    assert_eq!(reads(&rig), before, "nothing new can have come of it");
    (0..10).for_each(|_| drop(rig.pass()));
    assert_eq!(reads(&rig), before + 1, "once a second at least");
    rig.pass();
    rig.machine.room_pages.insert(0, 100);
    assert_eq!(rig.pass().moved_pages, 100, "at once when there is room");
}

#[test]
fn huge_pages_wait_for_as_much_room_as_they_take() {
    let mut rig = Rig::new(Format::Default, &[]);
    rig.machine.room_pages = [(0, 1000), (1, 0)].into();
    for page in (0..5120).step_by(512) {
        rig.machine.map_folio(7, BASE + page, 512);
        rig.touch(page, 2);
    }
    assert_eq!(rig.pass().moved_pages, 512, "one of ten has room");
    let resolved = rig.machine.resolved.len();
    let report = rig.pass();
    assert_eq!(report.ready, 9);
    assert_eq!(report.waiting[&0].pages(), 9 * 512);
    assert!(report.wants_room());
    assert_eq!(rig.machine.resolved.len(), resolved, "none would fit");
    rig.machine.room_pages.insert(0, 2000);
    let report = rig.pass();
    assert_eq!(report.moved_pages, 3 * 512);
    assert_eq!(report.waiting[&0].pages(), 6 * 512);
}

#[test]
fn no_memory_makes_it_back_off_and_try_again() {
    let mut rig = Rig::new(Format::Default, &[("kmigrated_batch_nr", "64")]);
    rig.hot(7, 0, 200);
    (0..200).for_each(|page| rig.machine.refuse(BASE + page, vec![Outcome::NoMemory]));
    let report = rig.pass();
    assert_eq!(
        (report.moved_pages, rig.machine.batches.len()),
        (0, 1),
        "one batch found out"
    );
    assert_eq!(report.held[&Held::Backoff], 136);
    assert_eq!(rig.pass().held[&Held::Backoff], 200);
    assert_eq!(rig.machine.batches.len(), 1, "no call while it backs off");
    rig.machine.now_ms += 500;
    rig.machine
        .folios
        .values_mut()
        .for_each(|f| f.refusals.clear());
    assert_eq!(rig.pass().moved_pages, 200);
    assert_eq!(rig.counted(Outcome::NoMemory), 64);
}

#[test]
fn a_refused_page_keeps_its_history_and_is_tried_again() {
    use Outcome::*;
    let mut rig = Rig::new(Format::Default, &[]);
    for (page, refusal) in [Busy, Shared, Denied, Failed].into_iter().enumerate() {
        rig.hot(7, page as u64, 1);
        rig.machine
            .refuse(BASE + page as u64, vec![refusal, refusal]);
    }
    rig.hot(7, 100, 20);
    assert_eq!(
        rig.pass().moved_pages,
        20,
        "a refusal does not stop the others"
    );
    assert!((0..4).all(|page| rig.is_ready(page)));
    let mut passes = 0;
    while rig.on_top() < 24 {
        passes += 1;
        assert!(passes < 10);
        (0..4).for_each(|page| rig.touch(page, 1));
        rig.pass();
    }
    for refusal in [Busy, Shared, Denied, Failed] {
        assert_eq!(rig.counted(refusal), 2, "{refusal}");
    }
    assert_eq!(rig.counted(Moved), 24, "nothing is lost or counted twice");
}

/// From ready to moved takes one interval and one batch at most, whenever a page becomes ready:
/// here one does every 3.7 ms, also while batches of 60 ms are under way.
#[test]
fn a_ready_page_waits_one_interval_and_one_batch() {
    let mut rig = Rig::new(Format::Precision, &[("freq_threshold", "1")]);
    rig.machine.batch_ms = 60;
    let sleep_ms = rig.settings.kmigrated_sleep_ms as u64;
    let ready_ms = |page: u64| 10_000 + page * 37 / 10;
    let (mut page, mut start_ms, mut longest_ms) = (0, 10_000, 0);
    let mut pace = Pace::default();
    for _ in 0..100 {
        while ready_ms(page) <= start_ms {
            rig.machine.now_ms = ready_ms(page);
            rig.hot(7, page, 1);
            page += 1;
        }
        rig.machine.now_ms = start_ms - sleep_ms;
        rig.machine.batches.clear();
        let report = rig.pass();
        for folio in rig.machine.batches.iter().flat_map(|b| &b.folios) {
            longest_ms = longest_ms.max(report.ended_ms - ready_ms(folio.pfn - BASE));
        }
        start_ms = pace.next_ms(&report, sleep_ms);
    }
    assert_eq!(rig.on_top(), page);
    assert!(longest_ms <= sleep_ms + 60, "{longest_ms} ms");
}

#[test]
fn a_rejected_page_does_not_eat_the_budget() {
    let mut rig = Rig::new(Format::Default, &[("promote_rate_limit_MBps", "1")]);
    rig.hot(7, 0, 52);
    (0..52).for_each(|page| rig.machine.refuse(BASE + page, vec![Outcome::Busy]));
    assert_eq!(rig.pass().moved_pages, 0);
    rig.hot(7, 100, 52);
    assert!(
        rig.pass().moved_pages >= 51,
        "the budget of the refused pages is still there"
    );
}

#[test]
fn vanished_pages_and_processes_are_settled_by_reason() {
    use Outcome::*;
    let mut rig = Rig::new(Format::Default, &[]);
    for (page, why) in [(0, Free), (1, Ksm), (2, Kernel), (3, Unopenable)] {
        rig.touch(page, 2);
        rig.machine.unresolved.insert(BASE + page, why);
    }
    rig.hot(8, 10, 5);
    rig.machine.exiting.insert(Owner::Process(8));
    rig.hot(9, 20, 5);
    assert_eq!(
        rig.pass().moved_pages,
        5,
        "one process's exit does not hurt another's pages"
    );
    for (why, pages) in [(Free, 1), (Ksm, 1), (Kernel, 1), (Unopenable, 1), (Gone, 5)] {
        assert_eq!(rig.counted(why), pages, "{why}");
    }
    assert_eq!(rig.pass().ready, 0, "none of them is asked about again");
}

/// Page cache moves like mapped memory, in batches of its file.
#[test]
fn page_cache_moves_by_file() {
    let mut rig = Rig::new(Format::Default, &[("kmigrated_batch_nr", "64")]);
    let file = |inode| FileId {
        device: 259 << 20,
        inode,
        generation: 1,
    };
    rig.hot(7, 0, 10);
    for page in 10..110 {
        rig.machine.cache_folio(file(page % 2), BASE + page, 1);
        rig.touch(page, 2);
    }
    rig.machine.cache_folio(file(2), BASE + 512, 256);
    rig.touch(512, 2);
    rig.machine.cache_folio(file(3), BASE + 1000, 1);
    rig.touch(1000, 2);
    rig.machine.exiting.insert(Owner::File(file(3)));
    assert_eq!(rig.pass().moved_pages, 10 + 100 + 256);
    assert_eq!(rig.counted(Outcome::Gone), 1, "a deleted file hurts nobody");
    assert_eq!(rig.machine.batches.len(), 5, "one per owner");
    let place = Some(Place::in_file(file(1), (BASE + 11) << 12));
    let journal = rig.migrator.journal();
    assert_eq!(journal.about(None, place).unwrap().pfn, BASE + 11);
}

#[test]
fn a_reused_pfn_starts_without_history() {
    let mut rig = Rig::new(Format::Default, &[]);
    rig.hot(7, 5, 1);
    rig.pass();
    // The frame is free now and another process gets it; one access is not hot.
    rig.machine.map(8, BASE + 5);
    rig.touch(5, 1);
    assert_eq!(rig.pass().ready, 0);
    rig.touch(5, 1);
    assert_eq!(rig.pass().moved_pages, 1);
    let places: Vec<_> = rig
        .migrator
        .journal()
        .newest(9)
        .iter()
        .map(|d| d.place.unwrap().owner)
        .collect();
    assert_eq!(places, [8, 7].map(Owner::Process));
}

#[test]
fn an_offlined_lower_node_is_left_alone() {
    let mut rig = Rig::new(Format::Default, &[]);
    rig.hot(7, 0, 3);
    rig.machine.top_tier = None;
    let report = rig.pass();
    assert!(report.node_absent && rig.machine.resolved.is_empty());
    // Its records age out by themselves.
    rig.machine.now_ms += 3000 + rig.rule.ageing_interval_ms();
    rig.pass();
    assert_eq!(rig.migrator.totals().expired_ready, 3);
}

#[test]
fn several_ready_pages_of_one_folio_move_it_once() {
    let mut rig = Rig::new(Format::Default, &[]);
    rig.machine.map_folio(7, BASE + 512, 512);
    for page in [512, 513, 700] {
        rig.touch(page, 2);
    }
    assert_eq!(rig.pass().moved_pages, 512);
    assert_eq!(rig.machine.batches[0].folios.len(), 1);
    assert_eq!(rig.pass().ready, 0);
}

#[test]
fn a_stop_request_loses_nothing() {
    let mut rig = Rig::new(Format::Default, &[]);
    rig.hot(7, 0, 30);
    rig.machine.stop = true;
    let report = rig.pass();
    assert_eq!((report.moved_pages, report.held[&Held::Stopping]), (0, 30));
    rig.machine.stop = false;
    assert_eq!(rig.pass().moved_pages, 30);
}

#[test]
fn the_journal_tells_why() {
    let mut rig = Rig::new(Format::Default, &[]);
    rig.hot(7, 3, 1);
    rig.machine.refuse(BASE + 3, vec![Outcome::Busy]);
    rig.pass();
    let journal = rig.migrator.journal();
    let d = journal.about(Some(BASE + 3), None).unwrap();
    assert_eq!(
        (d.outcome, d.freq, d.target, d.nid),
        (Outcome::Busy, 2, 0, 2)
    );
    let place = Some(Place::in_process(7, ((BASE + 3) << 12) + 77));
    assert_eq!(journal.about(None, place).unwrap().pfn, BASE + 3);
    assert!(journal.about(None, Some(Place::in_process(7, 0))).is_none());
}
