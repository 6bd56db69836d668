//! Random machines, refusals and tunables, with the books checked after every pass.

#![allow(clippy::unwrap_used)]

use std::collections::HashSet;

use pghot_engine::fake::FakeMachine;
use pghot_engine::owners::Owners;
use pghot_engine::{
    FileId, Gates, History, Journal, Migrator, Outcome, Owner, PassReport, Program, Settings, Tally,
};
use pghot_hotness::{Format, PfnRange, SECTION_PAGES, Span, Table};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Event {
    Touch { page: u64, nid: u32 },
    Refuse { page: u64, outcome: usize },
    Exit { pid: u32 },
    Room { nid: u32, pages: u64 },
    Online { top_tier: Vec<u32> },
    Set { limit: u64, batch: u64 },
    Wait { ms: u64 },
    Pass,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let online = prop::sample::subsequence(vec![0, 1], 0..=2);
    let event = prop_oneof![
        20 => (0..400u64, 0..3u32).prop_map(|(page, nid)| Event::Touch { page, nid }),
        2 => (0..400u64, 0..Outcome::ALL.len())
            .prop_map(|(page, outcome)| Event::Refuse { page, outcome }),
        1 => (0..4u32).prop_map(|pid| Event::Exit { pid }),
        1 => (0..2u32, 0..300u64).prop_map(|(nid, pages)| Event::Room { nid, pages }),
        1 => online.prop_map(|top_tier| Event::Online { top_tier }),
        1 => (0..40u64, 64..300u64).prop_map(|(limit, batch)| Event::Set { limit, batch }),
        2 => (0..2000u64).prop_map(|ms| Event::Wait { ms }),
        5 => Just(Event::Pass),
    ];
    prop::collection::vec(event, 1..300)
}

/// Folios that came to an outcome, whatever that was.
fn counted(migrator: &Migrator) -> u64 {
    migrator.totals().outcomes.iter().map(|(_, n)| n).sum()
}

/// A migrator that counts by owner, of processes of which one is known to nobody.
fn migrator(machine: &mut FakeMachine) -> (Migrator, Owners) {
    for pid in 0..3 {
        let (name, cgroup) = (format!("p{pid}"), format!("/g{}", pid / 2));
        machine.programs.insert(pid, Program { pid, name, cgroup });
    }
    let owners = Owners::default();
    let (history, gates) = (History::default(), Gates::default());
    let mut migrator = Migrator::new(2, history, gates, Journal::default());
    migrator.count_owners(owners.clone());
    (migrator, owners)
}

/// Whose pages they were: the sums are the totals, outcome by outcome.
fn sums_are_totals(owners: &Owners, migrator: &Migrator) -> bool {
    let books = owners.copy();
    let (mut by_cgroup, mut by_program) = <(Tally, Tally)>::default();
    books
        .cgroups
        .iter()
        .for_each(|(_, it)| by_cgroup.merge(&it.outcomes));
    books
        .programs
        .iter()
        .for_each(|(_, it)| by_program.merge(&it.outcomes));
    let totals = &migrator.totals().outcomes;
    by_cgroup == *totals && by_program == *totals
}

/// Ages the records and passes over them, as a host does.
fn pass(
    migrator: &mut Migrator,
    table: &Table,
    settings: &Settings,
    machine: &mut FakeMachine,
) -> PassReport {
    let rule = settings.rule().unwrap();
    let (now_ms, interval_ms) = (machine.now_ms, rule.ageing_interval_ms());
    migrator.note_swept(table.sweep(2, now_ms, interval_ms, &rule));
    migrator.pass(table, settings, &rule, machine)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn the_books_balance(precision: bool, events in events()) {
        let mode = if precision { Format::Precision } else { Format::Default };
        let range = PfnRange { start: 0, end: SECTION_PAGES, nid: 2 };
        let table = Table::in_memory(mode, Span::new(&[range]).unwrap());
        let mut settings = Settings::new(mode);
        settings.freq_threshold = 1;
        settings.promote_rate_limit_mbps = 10;
        let rule = settings.rule().unwrap();
        let mut machine = FakeMachine::tiered3();
        machine.batch_ms = 3;
        // Pages 0 to 300 are small, then three large folios of 32 pages.
        // Every fifth page is a file's, and the last large folio too.
        let file = FileId { device: 1, inode: 2, generation: 3 };
        (0..300).for_each(|pfn| match pfn % 5 {
            4 => machine.cache_folio(file, pfn, 1),
            pid => machine.map(pid as u32, pfn),
        });
        (0..2).for_each(|n| machine.map_folio(n, 304 + 32 * n as u64, 32));
        machine.cache_folio(file, 368, 32);
        let (mut migrator, owners) = migrator(&mut machine);
        let (mut moved, mut passed_ms, mut passes, mut max_limit) = (0, 0, 0u64, 10);
        for event in events {
            match event {
                Event::Touch { page, nid } => {
                    table.report(page, nid, machine.now_ms, &rule);
                }
                Event::Refuse { page, outcome } => {
                    let outcome = Outcome::ALL[outcome];
                    if outcome != Outcome::Moved && outcome != Outcome::WouldMove {
                        machine.refuse(page, vec![outcome]);
                    }
                }
                Event::Exit { pid } => _ = machine.exiting.insert(Owner::Process(pid)),
                Event::Room { nid, pages } => _ = machine.room_pages.insert(nid, pages),
                Event::Online { top_tier } => machine.top_tier = Some(top_tier),
                Event::Set { limit, batch } => {
                    settings.promote_rate_limit_mbps = limit;
                    settings.kmigrated_batch_nr = batch as u32;
                    max_limit = max_limit.max(limit);
                }
                Event::Wait { ms } => machine.now_ms += ms,
                Event::Pass => {
                    let start = machine.now_ms;
                    machine.batches.clear();
                    let ready_before: Vec<u64> =
                        (0..400).filter(|&p| table.get(p).unwrap().is_ready()).collect();
                    let counted_before = counted(&migrator);
                    let report = pass(&mut migrator, &table, &settings, &mut machine);
                    passes += 1;
                    moved += report.moved_pages;
                    machine.now_ms += 100;
                    passed_ms += machine.now_ms - start;

                    // Every batch is within its bounds and no folio is in two.
                    let mut seen = HashSet::new();
                    for batch in &machine.batches {
                        let pages: u32 = batch.folios.iter().map(|f| f.pages).sum();
                        prop_assert!(pages == batch.pages && !batch.folios.is_empty());
                        let is_one = batch.folios.len() == 1;
                        prop_assert!(pages <= settings.kmigrated_batch_nr || is_one);
                        for f in &batch.folios {
                            let is_new = seen.insert((batch.owner, f.address));
                            prop_assert!(is_new, "{f:?} is in two batches");
                        }
                    }
                    // What the migrator says it moved is where the machine says it is.
                    let on_top: u64 = machine.folios.values()
                        .filter(|f| f.nid != 2).map(|f| f.pages as u64).sum();
                    prop_assert_eq!(moved, on_top);
                    prop_assert_eq!(migrator.totals().outcomes.get(Outcome::Moved), on_top);
                    // A page that was ready and is no longer was settled, went cold, or is part of
                    // a folio that was; nothing just disappears.
                    let counted = counted(&migrator);
                    let is_ready = |p: u64| table.get(p).unwrap().is_ready();
                    // Of a large folio one ready page is enough to keep its history.
                    let folio = |p: u64| match p.checked_sub(304) {
                        None => p..p + 1,
                        Some(n) => p - n % 32..p - n % 32 + 32,
                    };
                    let is_lost = |p: &&u64| !folio(**p).any(is_ready);
                    let lost = ready_before.iter().filter(is_lost).count() as u64;
                    let gone = counted - counted_before + migrator.totals().expired_ready;
                    prop_assert!(lost <= gone, "{lost} pages vanished");
                    prop_assert!(sums_are_totals(&owners, &migrator));
                    // Room is never overdrawn.
                    prop_assert!(machine.reserve_pages.values().all(|&r| r == 0));
                }
            }
        }
        // The rate limit of the largest setting, over all the time that passes took, per target,
        // plus one burst and one folio for each target.
        let per_target = max_limit * 256 * (passed_ms + 2000 * passes + 200) / 1000 + 32;
        prop_assert!(moved <= 2 * per_target);
    }
}
