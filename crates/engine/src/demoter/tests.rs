//! The demoter on a node whose pages are touched at known intervals, with the kernel's generations.

use pghot_hotness::Format;

use super::*;
use crate::exchange::{FAULT_CLASSES, Fates, FaultTimes, Rest};
use crate::{Pattern, Place, Policies, Policy, RecordingTurn};

mod below;
mod longest;
mod rounds;

/// Pages of one node, all touched at intervals; `MAX_NR_GENS` generations.
struct Node {
    now_ms: u64,
    room: u64,
    lower_room: u64,
    unable: Option<Unable>,
    /// By page: how often it is touched, in ms, its generation, and when its bit was last cleared.
    pages: Vec<(u64, u64, u64)>,
    /// When the generations were opened, the oldest first, and the number of the youngest.
    opened_ms: Vec<u64>,
    youngest: u64,
    calls: u64,
    /// How often pages were asked to go.
    asked: u64,
    /// How long an aging takes, and to read the list of generations, and how often it was read.
    aging_ms: u64,
    list_ms: u64,
    lists: u64,
}

impl Node {
    fn new(intervals_ms: &[(usize, u64)]) -> Node {
        let pages = intervals_ms
            .iter()
            .flat_map(|&(pages, ms)| vec![(ms, 1, 0); pages]);
        Node {
            now_ms: 1_000_000,
            room: 0,
            lower_room: 1 << 20,
            unable: None,
            pages: pages.collect(),
            opened_ms: vec![0, 1000],
            youngest: 1,
            calls: 0,
            asked: 0,
            aging_ms: 0,
            list_ms: 0,
            lists: 0,
        }
    }

    fn is_touched(&self, (interval_ms, _, cleared_ms): (u64, u64, u64)) -> bool {
        self.now_ms / interval_ms > cleared_ms / interval_ms
    }

    /// Hint faults of a lower tier, half of which is touched each millisecond.
    fn demand(&self, waiting: u64) -> Demand {
        let mut counts = [0; FAULT_CLASSES];
        counts[0] = self.now_ms;
        let quick_pages = waiting.saturating_sub(self.room);
        let waiting = Waiting {
            quick_pages,
            counted_pages: 0,
        };
        Demand {
            waiting: [(0, waiting)].into(),
            faults: FaultTimes(counts),
            ..Demand::default()
        }
    }

    /// Runs so long with so many pages waiting for node 0; returns what was demoted.
    fn run(&mut self, demoter: &mut Demoter, waiting: u64, ms: u64) -> u64 {
        self.run_with(&Settings::new(Format::Default), demoter, waiting, ms)
    }

    fn run_with(
        &mut self,
        settings: &Settings,
        demoter: &mut Demoter,
        waiting: u64,
        ms: u64,
    ) -> u64 {
        let before = demoter.report().demoted_pages;
        let end_ms = self.now_ms + ms;
        let mut by_cgroup = 0;
        while self.now_ms < end_ms {
            let demand = self.demand(waiting);
            self.now_ms += demoter.pass(&demand, settings, self);
            let is_it = |(path, _): &(Arc<str>, u64)| &**path == "/g/of/it";
            assert!(demoter.demoted().iter().all(is_it));
            by_cgroup += demoter
                .demoted()
                .iter()
                .map(|(_, pages)| pages)
                .sum::<u64>();
        }
        let went = demoter.report().demoted_pages - before;
        assert_eq!(by_cgroup, went, "sums by cgroup are the total");
        went
    }
}

impl Reclaim for Node {
    fn now_ms(&self) -> u64 {
        self.now_ms
    }

    fn room_pages(&mut self, _: Nid) -> u64 {
        self.room
    }

    fn lower_room_pages(&mut self, _: Nid) -> u64 {
        self.lower_room
    }

    fn lruvecs(&mut self, _: Nid) -> Result<Vec<Lruvec>, Unable> {
        if let Some(unable) = self.unable {
            return Err(unable);
        }
        self.lists += 1;
        self.now_ms += self.list_ms;
        let first = self.youngest + 1 - self.opened_ms.len() as u64;
        let listed = |(seq, opened_ms): (u64, &u64)| Generation {
            seq,
            age_ms: self.now_ms - opened_ms,
            pages: self
                .pages
                .iter()
                .filter(|page| page.1.max(first) == seq)
                .count() as u64,
        };
        Ok(vec![Lruvec {
            memcg_id: 7,
            cgroup: "/g/of/it".into(),
            generations: (first..).zip(&self.opened_ms).map(listed).collect(),
        }])
    }

    fn look_at(&mut self, places: &[Place]) -> Fates {
        let page = |place: &Place| self.pages.get((place.address >> 12) as usize);
        let is_touched = |place: &&Place| page(place).is_some_and(|page| self.is_touched(*page));
        let touched = places.iter().filter(is_touched);
        Fates {
            looked: places.len() as u64,
            touched: touched.count() as u64,
            ..Fates::default()
        }
    }

    fn age(&mut self, _: Nid, memcg_id: u64, seq: u64) {
        assert_eq!((memcg_id, seq), (7, self.youngest));
        self.calls += 1;
        self.now_ms += self.aging_ms;
        for place in 0..self.pages.len() {
            if self.is_touched(self.pages[place]) {
                self.pages[place].1 = self.youngest;
                self.pages[place].2 = self.now_ms;
            }
        }
        self.youngest += 1;
        self.opened_ms.push(self.now_ms);
        if self.opened_ms.len() > 4 {
            self.opened_ms.remove(0);
        }
    }

    fn huge_share(&mut self, _: Nid) -> f64 {
        0.0
    }

    fn program(&mut self, _: crate::Pid) -> Option<crate::Program> {
        None
    }

    fn exchange_huge(&mut self, _: Nid, _: &[Place], _: &[Place]) -> Exchanged {
        Exchanged::default()
    }

    fn demote(&mut self, _: Nid, memcg_id: u64, seq: u64, pages: u64) -> u64 {
        assert_eq!(memcg_id, 7);
        self.asked += 1;
        assert!(
            seq + 2 <= self.youngest,
            "the kernel refuses young generations"
        );
        let mut went = 0;
        let mut kept = Vec::new();
        for page in std::mem::take(&mut self.pages) {
            if page.1 <= seq && went < pages && !self.is_touched(page) {
                went += 1;
            } else {
                kept.push(page);
            }
        }
        self.pages = kept;
        self.room += went;
        went
    }
}

const NEVER: u64 = u64::MAX;

/// To look costs one aging where there is time enough between two, else two.
#[test]
fn the_second_of_a_pair_is_the_first_of_the_next() {
    let settings = Settings::new(Format::Default);
    let mut demoter = Demoter::default();
    demoter.exchange.go_to_widest(0, &settings);
    let mut node = Node::new(&[(100, 10)]);
    let mut looks = 0;
    for _ in 0..300 {
        let lruvecs = node.lruvecs(0).unwrap();
        looks += u64::from(demoter.age(0, &lruvecs, &settings, &mut node).is_some());
        node.now_ms += 100;
    }
    assert_eq!((looks, node.calls), (9, 10), "in 30 s, 3 s apart");
    // After a pause it begins anew.
    node.now_ms += 10_000;
    let lruvecs = node.lruvecs(0).unwrap();
    assert!(demoter.age(0, &lruvecs, &settings, &mut node).is_none());
}

#[test]
fn idle_pages_go_for_those_that_wait_and_no_more() {
    let mut node = Node::new(&[(3000, 1), (5000, NEVER)]);
    let mut demoter = Demoter::default();
    assert_eq!(node.run(&mut demoter, 2000, 10_000), 2000);
    assert_eq!(node.run(&mut demoter, 2000, 10_000), 0, "there is room now");
    assert!(!demoter.report().is_wanted);
    let hot = node.pages.iter().filter(|page| page.0 == 1).count();
    assert_eq!(hot, 3000, "none that is in use");
}

/// On a host of thousands of cgroups; whatever the time scale, and what waits is served as well.
#[test]
fn to_read_long_lists_takes_a_small_share_of_the_time() {
    for (cold_ms, wanted) in [(NEVER, 2000), (1000, 0), (10, 0)] {
        let mut node = Node::new(&[(3000, 1), (5000, cold_ms)]);
        node.list_ms = 25;
        let mut demoter = Demoter::default();
        let went = node.run(&mut demoter, 2000, 20_000);
        assert!(went >= wanted, "{cold_ms}: {went}");
        // Where pages are told apart, a second one of a pair is not put off.
        let share = node.lists * node.list_ms * 100 / 20_000;
        assert!(node.lists > 1 && share <= 12, "{cold_ms}: {share} %");
    }
}

/// Where even cold pages are touched 15 times a second, only a narrow time scale tells them apart.
#[test]
fn cold_is_what_is_colder_than_what_waits() {
    let mut node = Node::new(&[(3000, 1), (5000, 66)]);
    let mut demoter = Demoter::default();
    let went = node.run(&mut demoter, 2000, 10_000);
    assert!((1990..=2000).contains(&went), "{went}");
    let hot = node.pages.iter().filter(|page| page.0 == 1).count();
    assert_eq!(hot, 3000);
}

/// Where a walk takes as long as pages must be idle, all would be touched between the end of one
/// and the next: each page is touched every 28 ms at least.
#[test]
fn a_long_walk_does_not_make_the_time_scale_wider() {
    let touched: Vec<(usize, u64)> = (17..28).map(|ms| (500, ms)).collect();
    let mut node = Node::new(&touched);
    node.aging_ms = 12;
    let mut demoter = Demoter::default();
    let went = node.run(&mut demoter, 1000, 10_000);
    assert!(went >= 500, "{went} with {} agings", node.calls);
}

/// A recording clears bits too: no pair of agings is under way while it does, and those before it
/// are no pair with one after it.
#[test]
fn a_recording_and_a_pair_of_agings_take_turns() {
    let turns = Turns::default();
    let mut demoter = Demoter::new(History::default(), Gates::default(), turns.clone());
    let mut node = Node::new(&[(3000, 1), (5000, 66)]);
    let mut recording: Option<(RecordingTurn, Option<u64>)> = None;
    let (mut begun, mut between) = (0, 0);
    for step in 1..=4000u64 {
        let (demand, before) = (node.demand(2000), node.calls);
        node.now_ms += demoter.pass(&demand, &Settings::new(Format::Default), &mut node);
        // What waits is never served.
        node.room = 0;
        match &mut recording {
            Some((turn, agings)) if turn.has_begun() => {
                assert_eq!(node.calls, *agings.get_or_insert(node.calls), "{step}");
            }
            Some(_) => {}
            None => between += node.calls - before,
        }
        if step % 20 == 0 {
            let had_turn = recording.take().map(|(_, agings)| agings.is_some());
            begun += u64::from(had_turn == Some(true));
            recording = had_turn.is_none().then(|| (turns.ask(), None));
        }
    }
    assert!(
        begun > 90 && between > 20,
        "{begun} recordings, {between} agings between them"
    );
}

/// Somebody goes through memory: what was just touched is not touched again soon.
#[test]
fn what_goes_up_must_be_touched_again() {
    let went = |first: u64| {
        let history = History::default();
        let mut demoter = Demoter::new(history.clone(), Gates::default(), Turns::default());
        let mut node = Node::new(&[(3000, 1), (50_000, 66)]);
        let (settings, end_ms) = (Settings::new(Format::Default), node.now_ms + 10_000);
        let mut saw_vain = false;
        while node.now_ms < end_ms {
            let demand = node.demand(2000);
            node.now_ms += demoter.pass(&demand, &settings, &mut node);
            let went_up = node.room;
            for page in first..first + went_up {
                let place = Place::in_process(7, page << 12);
                history.promoted(&place, 1, 0, node.now_ms);
            }
            node.room = 0;
            saw_vain |= demoter.report().resting == Some(Rest::NotTouchedAgain);
        }
        let report = demoter.report();
        assert!(report.looked_pages >= 64, "{}", report.looked_pages);
        assert_eq!(saw_vain, report.touched_again_pages == 0);
        report.demoted_pages
    };
    let (hot, vain) = (went(0), went(1 << 30));
    assert!(3 * vain < hot, "{hot}, {vain}");
}

#[test]
fn nobody_goes_where_all_are_in_use_and_looking_gets_rare() {
    let mut node = Node::new(&[(8000, 1)]);
    let mut demoter = Demoter::default();
    assert_eq!(node.run(&mut demoter, 2000, 60_000), 0);
    let before = node.calls;
    node.run(&mut demoter, 2000, 60_000);
    let agings = node.calls - before;
    assert!(agings < 100, "{agings} agings a minute");
    assert!(!demoter.report().is_proven);
}

/// Also where the first aging of a pair was the last before the rest.
#[test]
fn while_it_rests_passes_are_rare() {
    let mut node = Node::new(&[(8000, 1)]);
    let mut demoter = Demoter::default();
    let settings = Settings::new(Format::Default);
    let is_open = |demoter: &Demoter| demoter.agings.get(&0).is_some_and(Agings::is_open);
    while !is_open(&demoter) {
        let demand = node.demand(2000);
        node.now_ms += demoter.pass(&demand, &settings, &mut node);
    }
    let not_touched = Fates {
        looked: 64,
        ..Fates::default()
    };
    demoter
        .exchange
        .note_fates(node.now_ms, not_touched, &settings);
    let (end_ms, mut passes) = (node.now_ms + 1000, 0);
    while node.now_ms < end_ms {
        let demand = node.demand(2000);
        node.now_ms += demoter.pass(&demand, &settings, &mut node);
        passes += 1;
    }
    assert!(passes <= 5, "{passes} in a second");
}

/// Where the next aging is far away, there is nothing to do before.
#[test]
fn while_pages_are_not_told_apart_passes_are_rare() {
    let mut node = Node::new(&[(8000, 1)]);
    node.aging_ms = 40;
    let mut demoter = Demoter::default();
    let settings = Settings::new(Format::Default);
    let (end_ms, mut passes) = (node.now_ms + 60_000, 0);
    while node.now_ms < end_ms {
        let demand = node.demand(2000);
        node.now_ms += demoter.pass(&demand, &settings, &mut node);
        passes += 1;
    }
    assert!(passes <= 5 * 60, "{passes} in a minute");
}

/// Shared memory is seen in page tables alone.
#[test]
fn without_hint_faults_the_longest_idle_go() {
    let mut node = Node::new(&[(3000, 1), (2000, 1000), (5000, NEVER)]);
    let mut demoter = Demoter::default();
    let settings = Settings::new(Format::Default);
    let end_ms = node.now_ms + 20_000;
    while node.now_ms < end_ms {
        let waiting = Waiting {
            quick_pages: 0,
            counted_pages: 6000 - node.room.min(6000),
        };
        let demand = Demand {
            waiting: [(0, waiting)].into(),
            ..Demand::default()
        };
        node.now_ms += demoter.pass(&demand, &settings, &mut node);
    }
    assert_eq!(demoter.report().demoted_pages, 5000);
    assert_eq!(node.pages.len(), 5000, "those that are in use stay");
}

#[test]
fn a_full_lower_tier_takes_nothing() {
    let mut node = Node::new(&[(5000, NEVER)]);
    node.lower_room = 2 * PAGES_MIN - 1;
    let mut demoter = Demoter::default();
    assert_eq!(node.run(&mut demoter, 2000, 10_000), 0);
    assert!(demoter.report().rounds_lower_tier_full > 0);
    // A little room is enough, for what goes up leaves more.
    node.lower_room += 1;
    let went = node.run(&mut demoter, 2000, 10_000);
    assert!(
        went > 900,
        "{went}: half of what waits, until the other half has room"
    );
}

#[test]
fn what_an_exchange_leaves_free_for_a_moment_is_no_room() {
    let settings = Settings::new(Format::Default);
    let mut node = Node::new(&[(5000, NEVER)]);
    let mut demoter = Demoter::default();
    let mut ask = |room: u64, later_ms: u64| {
        node.room = room;
        node.now_ms += later_ms;
        let demand = node.demand(100);
        demoter.pass(&demand, &settings, &mut node);
        let quick = demoter.report().quick_fault(&settings);
        (demoter.report().is_wanted, quick.in_bursts)
    };
    assert_eq!(ask(1000, 0), (false, true));
    assert_eq!(ask(0, 100), (true, false));
    assert_eq!(ask(1000, 100), (false, false));
    assert_eq!(ask(1000, 1900), (false, true));
}

#[test]
fn what_is_switched_off_is_said_and_comes_back() {
    let mut node = Node::new(&[(5000, NEVER)]);
    let mut demoter = Demoter::default();
    for unable in [Unable::NoGenerations, Unable::DemotionOff, Unable::DryRun] {
        node.unable = Some(unable);
        assert_eq!(node.run(&mut demoter, 2000, 3000), 0);
        assert!(!demoter.is_able());
        assert_eq!(demoter.report().sentence(), unable.sentence());
        let settings = Settings::new(Format::Default);
        let quick = demoter.report().quick_fault(&settings);
        assert_eq!(quick.within_ms, settings.quick_fault_ms);
        assert!(!quick.in_bursts, "nobody makes room for who passes by");
    }
    node.unable = None;
    let mut settings = Settings::new(Format::Default);
    settings.demote_rate_limit_mbps = 0;
    let demand = node.demand(2000);
    demoter.pass(&demand, &settings, &mut node);
    assert_eq!(demoter.report().unable, Some(Unable::SwitchedOff));
    assert_eq!(node.run(&mut demoter, 2000, 10_000), 2000);
    assert!(demoter.is_able());
}

fn policy(path: &str) -> Policy {
    Policy {
        cgroup: Some(Pattern::of_cgroup(path).unwrap()),
        ..Policy::default()
    }
}

#[test]
fn an_excluded_or_protected_cgroup_stays_and_is_not_aged() {
    let mut settings = Settings::new(Format::Default);
    for (path, exclude, is_kept) in [
        ("/g", true, true),
        ("/g", false, true),
        ("/other", true, false),
    ] {
        let policy = Policy {
            exclude,
            protect: !exclude,
            ..policy(path)
        };
        settings.policies = Policies::new(vec![policy]);
        let mut node = Node::new(&[(20_000, 100_000), (20_000, 2)]);
        let went = node.run_with(&settings, &mut Demoter::default(), 1000, 20_000);
        assert_eq!((went == 0, node.calls == 0), (is_kept, is_kept), "{path}");
    }
}
