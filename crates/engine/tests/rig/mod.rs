//! A migrator with everything around it, on a machine in memory.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use pghot_engine::fake::FakeMachine;
use pghot_engine::{
    Gates, History, Journal, Migrator, Outcome, PassReport, Settings, TUNABLES, Tunable,
};
use pghot_hotness::{Format, PfnRange, Rule, SECTION_PAGES, Span, Table};

pub const BASE: u64 = 32 * SECTION_PAGES;

/// A migrator with everything around it.
pub struct Rig {
    pub table: Table,
    pub settings: Settings,
    pub rule: Rule,
    pub machine: FakeMachine,
    pub migrator: Migrator,
}

impl Rig {
    pub fn new(mode: Format, sets: &[(&str, &str)]) -> Rig {
        let range = PfnRange {
            start: BASE,
            end: BASE + 4 * SECTION_PAGES,
            nid: 2,
        };
        let mut settings = Settings::new(mode);
        for (name, value) in sets {
            let tunable = Tunable::find(TUNABLES.iter(), name).unwrap();
            settings.set(tunable, value).unwrap();
        }
        let mut machine = FakeMachine::tiered3();
        machine.now_ms = 10_000;
        Rig {
            table: Table::in_memory(mode, Span::new(&[range]).unwrap()),
            rule: settings.rule().unwrap(),
            settings,
            machine,
            migrator: Migrator::new(2, History::default(), Gates::default(), Journal::default()),
        }
    }

    /// Accesses page `BASE + page` by a CPU of `nid`, `times` times.
    pub fn touch_from(&mut self, nid: u32, page: u64, times: u32) {
        for _ in 0..times {
            self.table
                .report(BASE + page, nid, self.machine.now_ms, &self.rule);
        }
    }

    pub fn touch(&mut self, page: u64, times: u32) {
        self.touch_from(0, page, times);
    }

    /// Maps `pages` pages of process `pid` from `first` and makes each of them ready.
    pub fn hot(&mut self, pid: u32, first: u64, pages: u64) {
        for page in first..first + pages {
            self.machine.map(pid, BASE + page);
            self.touch(page, 2);
        }
    }

    pub fn pass(&mut self) -> PassReport {
        self.machine.now_ms += self.settings.kmigrated_sleep_ms as u64;
        let (now_ms, interval_ms) = (self.machine.now_ms, self.rule.ageing_interval_ms());
        let swept = self.table.sweep(2, now_ms, interval_ms, &self.rule);
        self.migrator.note_swept(swept);
        self.migrator
            .pass(&self.table, &self.settings, &self.rule, &mut self.machine)
    }

    pub fn counted(&self, outcome: Outcome) -> u64 {
        self.migrator.totals().outcomes.get(outcome)
    }

    pub fn on_top(&self) -> u64 {
        let top = self.machine.folios.values().filter(|f| f.nid != 2);
        top.map(|f| f.pages as u64).sum()
    }

    pub fn is_ready(&self, page: u64) -> bool {
        self.table.get(BASE + page).unwrap().is_ready()
    }
}
