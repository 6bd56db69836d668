//! Pages that went up, went down and are hot again, found by whichever migrator.

#![allow(clippy::unwrap_used)]

use pghot_engine::fake::FakeMachine;
use pghot_engine::{Gates, Held, History, Journal, Migrator, Settings};
use pghot_hotness::{Format, PfnRange, SECTION_PAGES, Span, Table};

const PAGES: std::ops::Range<u64> = 0..10;

struct Rig {
    table: Table,
    settings: Settings,
    machine: FakeMachine,
}

impl Rig {
    fn new() -> Rig {
        let range = PfnRange {
            start: 0,
            end: SECTION_PAGES,
            nid: 2,
        };
        let mut machine = FakeMachine::tiered3();
        machine.top_tier = Some(vec![0]);
        Rig {
            table: Table::in_memory(Format::Default, Span::new(&[range]).unwrap()),
            settings: Settings::new(Format::Default),
            machine,
        }
    }

    /// All pages are in the lower tier and hot, and the top tier has so much room.
    fn are_hot_below(&mut self, room_pages: u64) {
        let rule = self.settings.rule().unwrap();
        self.machine.room_pages.insert(0, room_pages);
        for page in PAGES {
            self.machine.map(7, page);
            for _ in 0..self.settings.freq_threshold {
                self.table.report(page, 0, self.machine.now_ms, &rule);
            }
        }
    }

    /// Pages that moved, pages that wait because they came back, and those that were counted so.
    fn pass(&mut self, migrator: &mut Migrator) -> (u64, u64, u64) {
        self.machine.now_ms += 100;
        let rule = self.settings.rule().unwrap();
        let interval_ms = rule.ageing_interval_ms();
        (self.table).sweep(2, self.machine.now_ms, interval_ms, &rule);
        let report = migrator.pass(&self.table, &self.settings, &rule, &mut self.machine);
        let held = report.held.get(&Held::CameBack).copied();
        let returned = migrator.totals().returned_pages;
        (report.moved_pages, held.unwrap_or(0), returned)
    }
}

fn migrator(history: &History) -> Migrator {
    Migrator::new(2, history.clone(), Gates::default(), Journal::default())
}

/// The kernel demotes to the nearest node, so another migrator may find what this one promoted.
#[test]
fn what_came_back_waits_whoever_finds_it() {
    let mut rig = Rig::new();
    rig.machine.now_ms = 10_000;
    let history = History::default();
    rig.are_hot_below(100);
    let mut first = migrator(&history);
    assert_eq!(rig.pass(&mut first), (10, 0, 0));
    let mut second = migrator(&history);
    rig.are_hot_below(5);
    assert_eq!(rig.pass(&mut second), (0, 10, 10));
    rig.machine.room_pages.insert(0, 0);
    for _ in 0..50 {
        rig.pass(&mut second);
    }
    rig.are_hot_below(5);
    assert_eq!(rig.pass(&mut second), (5, 0, 10), "as many as fit");
    // Who has another history takes them for new.
    let mut stranger = migrator(&History::default());
    rig.are_hot_below(5);
    assert_eq!(rig.pass(&mut stranger), (5, 0, 0));
}
