//! The laws of the arbiter, against a host that keeps books.

use std::collections::BTreeSet;

use pghot_hotness::Format;
use proptest::prelude::*;

use super::*;

const FAULTS: usize = 0;
const TABLES: usize = 1;
const LRU: usize = 2;
const READS: usize = 3;
const ALL: u32 = 0xf;

/// What sources do, and what they shall refuse.
#[derive(Default)]
struct Fake {
    on: BTreeSet<usize>,
    standing_by: BTreeSet<usize>,
    told: [Option<Config>; 4],
    refuses_start: BTreeSet<usize>,
    refuses_stand_by: bool,
    refuses_config: bool,
    /// Starts, stops, and changes of who stands by.
    switches: u32,
    /// Times that settings were set again.
    set_again: u32,
}

impl Host for Fake {
    fn start(&mut self, source: usize, config: &Config, by: bool) -> Result<(), String> {
        assert!(self.on.insert(source), "it was stopped before");
        self.switches += 1;
        if self.refuses_start.contains(&source) {
            self.on.remove(&source);
            return Err("it is too dark".into());
        }
        self.told[source] = Some(config.clone());
        match by {
            true => self.standing_by.insert(source),
            false => self.standing_by.remove(&source),
        };
        Ok(())
    }

    fn stop(&mut self, source: usize) {
        assert!(self.on.remove(&source), "it was started before");
        self.switches += 1;
        self.standing_by.remove(&source);
        self.told[source] = None;
    }

    fn stand_by(&mut self, source: usize, by: bool) -> Result<(), String> {
        assert!([FAULTS, READS].contains(&source), "nobody else can");
        assert_ne!(self.standing_by.contains(&source), by, "it does already");
        self.switches += 1;
        if self.refuses_stand_by {
            return Err("it cannot stand".into());
        }
        match by {
            true => self.standing_by.insert(source),
            false => self.standing_by.remove(&source),
        };
        Ok(())
    }

    fn set_again(&mut self, source: usize, by: bool) -> Result<(), String> {
        assert_eq!(source, FAULTS, "nobody else has settings");
        assert_eq!(self.standing_by.contains(&source), by, "as it does");
        self.set_again += 1;
        match self.refuses_stand_by {
            true => Err("it cannot stand".into()),
            false => Ok(()),
        }
    }

    fn configure(&mut self, source: usize, config: &Config) -> Result<(), String> {
        assert!(self.on.contains(&source));
        if self.refuses_config {
            return Err("it cannot follow".into());
        }
        self.told[source] = Some(config.clone());
        Ok(())
    }
}

fn config(threshold: u32) -> Config {
    let mut settings = Settings::new(Format::Default);
    settings.freq_threshold = threshold;
    let rule = settings.rule().unwrap();
    Config::new(&settings, rule, [])
}

/// Hint faults, two readers of accessed bits, and one that sees reads of page cache.
fn arbiter(mask: u32) -> (Arbiter, Fake) {
    let kinds = [
        ("faults", Kind::HintFaults),
        ("tables", Kind::PageTables),
        ("lru", Kind::PageTables),
        ("reads", Kind::CacheReads),
    ];
    let candidates = kinds.into_iter().enumerate();
    let candidates = candidates.map(|(place, (name, kind))| Candidate {
        name,
        bit: 1 << place,
        kind,
    });
    let mut arbiter = Arbiter::new(candidates, &config(2));
    let mut host = Fake::default();
    arbiter.enable(mask);
    arbiter.settle(&mut host).unwrap();
    (arbiter, host)
}

fn state(arbiter: &Arbiter, source: usize) -> State {
    arbiter.states().nth(source).unwrap()
}

#[test]
fn one_source_reads_accessed_bits() {
    let (mut arbiter, mut host) = arbiter(ALL);
    assert_eq!(host.on, BTreeSet::from([FAULTS, TABLES, READS]));
    assert_eq!(state(&arbiter, LRU), State::Superseded("tables"));
    arbiter.enable(1 << LRU);
    arbiter.settle(&mut host).unwrap();
    assert_eq!(host.on, BTreeSet::from([LRU]));
    assert_eq!(state(&arbiter, TABLES), State::Disabled);
    arbiter.enable(ALL);
    arbiter.settle(&mut host).unwrap();
    assert_eq!(state(&arbiter, LRU), State::Running, "who runs goes on");
    assert_eq!(state(&arbiter, TABLES), State::Superseded("lru"));
}

#[test]
fn a_reader_that_cannot_run_leaves_its_place_to_the_next() {
    let (mut arbiter, mut host) = arbiter(0);
    host.refuses_start.insert(TABLES);
    arbiter.enable(ALL);
    arbiter.settle(&mut host).unwrap();
    let why = State::Unavailable("it is too dark".into());
    assert_eq!(state(&arbiter, TABLES), why);
    assert_eq!(state(&arbiter, LRU), State::Running);
    let starts = host.switches;
    arbiter.settle(&mut host).unwrap();
    assert_eq!(host.switches, starts, "it is not tried again by itself");
    host.refuses_start.clear();
    arbiter.enable(1 << TABLES);
    arbiter.settle(&mut host).unwrap();
    assert_eq!(state(&arbiter, TABLES), State::Running);
}

#[test]
fn faults_stand_by_while_there_is_plenty_of_room_and_tables_are_read() {
    let (mut arbiter, mut host) = arbiter(1 << FAULTS);
    let mut now_ms = 0;
    let mut note = |arbiter: &mut Arbiter, host: &mut Fake, has_plenty, after_ms| {
        now_ms += after_ms;
        arbiter.note_free_space(now_ms, [false, has_plenty]);
        arbiter.settle(host).unwrap();
        state(arbiter, FAULTS) == State::StandingBy
    };
    assert!(
        !note(&mut arbiter, &mut host, true, 0),
        "nobody else sees the accesses"
    );
    arbiter.enable(1 << FAULTS | 1 << TABLES);
    assert!(note(&mut arbiter, &mut host, true, 1000));
    let told_of_faults = |host: &Fake| host.told[TABLES].as_ref().unwrap().leave_hinted;
    assert!(!told_of_faults(&host), "tables report all");
    assert!(note(&mut arbiter, &mut host, false, 1000), "not at once");
    assert!(note(&mut arbiter, &mut host, true, 1000));
    assert!(
        note(&mut arbiter, &mut host, false, 2000),
        "the wait begins anew"
    );
    assert!(!note(&mut arbiter, &mut host, false, 1000), "back");
    assert!(told_of_faults(&host), "tables report the rest");
    assert!(note(&mut arbiter, &mut host, true, 1000));
    arbiter.enable(1 << FAULTS);
    assert!(
        !note(&mut arbiter, &mut host, true, 0),
        "the deputy is gone"
    );
}

#[test]
fn tables_report_all_while_the_scanner_does_not_obey() {
    let (mut arbiter, mut host) = arbiter(ALL);
    let mut told = |arbiter: &mut Arbiter, obeys| {
        arbiter.note_scanner(obeys);
        arbiter.settle(&mut host).unwrap();
        let leave = |it: &Option<Config>| it.as_ref().is_some_and(|it| it.leave_hinted);
        (leave(&host.told[FAULTS]), leave(&host.told[TABLES]))
    };
    assert_eq!(told(&mut arbiter, true), (true, true));
    assert_eq!(told(&mut arbiter, false), (false, false));
    arbiter.enable(1 << FAULTS);
    let alone = told(&mut arbiter, false);
    assert!(alone.0, "nobody else would count them");
}

#[test]
fn faults_enabled_late_start_standing_by() {
    let (mut arbiter, mut host) = arbiter(1 << TABLES);
    arbiter.note_free_space(0, [true]);
    arbiter.enable(1 << FAULTS | 1 << TABLES);
    let switches = host.switches;
    arbiter.settle(&mut host).unwrap();
    assert_eq!(state(&arbiter, FAULTS), State::StandingBy);
    assert_eq!(host.switches, switches + 1, "never on for a moment");
}

#[test]
fn faults_that_cannot_stand_by_are_stopped() {
    let (mut arbiter, mut host) = arbiter(1 << FAULTS | 1 << TABLES);
    host.refuses_stand_by = true;
    arbiter.note_free_space(0, [true]);
    arbiter.settle(&mut host).unwrap();
    assert!(matches!(state(&arbiter, FAULTS), State::Unavailable(why) if why.contains("stand")));
    assert_eq!(host.on, BTreeSet::from([TABLES]));
}

#[test]
fn a_refused_configuration_is_told_and_can_be_taken_back() {
    let (mut arbiter, mut host) = arbiter(ALL);
    host.refuses_config = true;
    arbiter.set_config(&config(3));
    assert!(arbiter.settle(&mut host).is_err());
    host.refuses_config = false;
    arbiter.set_config(&config(2));
    arbiter.settle(&mut host).unwrap();
    for told in host.told.iter().flatten() {
        assert_eq!(told.rule, config(2).rule);
    }
    assert_eq!(host.on.len(), 3, "it goes on");
}

#[test]
fn reads_are_watched_while_it_pays_or_nothing_else_is_wanted() {
    let (mut arbiter, mut host) = arbiter(1 << TABLES | 1 << READS);
    assert_eq!(state(&arbiter, READS), State::StandingBy);
    let cache = Reads {
        cache_pages: 1 << 20,
        room_pages: 1,
        top_tier_pages: 1,
        ..Reads::default()
    };
    arbiter.note_reads(1000, cache);
    arbiter.settle(&mut host).unwrap();
    assert_eq!(state(&arbiter, READS), State::Running);
    arbiter.note_reads(
        5000,
        Reads {
            watched: 1 << 30,
            ..cache
        },
    );
    arbiter.settle(&mut host).unwrap();
    assert_eq!(state(&arbiter, READS), State::StandingBy);
    arbiter.enable(1 << READS);
    arbiter.settle(&mut host).unwrap();
    assert_eq!(state(&arbiter, READS), State::Running, "nothing else");
    host.refuses_start.insert(TABLES);
    arbiter.enable(1 << TABLES | 1 << READS);
    arbiter.settle(&mut host).unwrap();
    assert_eq!(state(&arbiter, READS), State::Running, "nothing else can");
}

#[test]
fn free_memory_is_looked_at_once_a_second() {
    let (mut arbiter, _) = arbiter(0);
    let looks = (0..10_000).filter(|ms| arbiter.wants_look(*ms)).count();
    assert_eq!(looks, 10);
}

proptest! {
    /// Whatever happens, in whatever order: what the host does in the end is what the laws ask for.
    #[test]
    fn the_laws_hold(events in proptest::collection::vec((0u32..9, 0u32..16), 1..40)) {
        let (mut arbiter, mut host) = arbiter(0);
        let (mut mask, mut now_ms, mut closed) = (0, 0, false);
        let mut obeys = true;
        for (what, value) in events {
            match what {
                0 | 1 => {
                    mask = value;
                    arbiter.enable(mask);
                }
                2 | 3 => {
                    now_ms += 700;
                    arbiter.note_free_space(now_ms, [value % 2 == 0, value == 1]);
                }
                4 => _ = arbiter.set_config(&config(1 + value % 3)),
                5 => {
                    host.refuses_start = (0..4).filter(|bit| value & 1 << bit != 0).collect();
                    host.refuses_stand_by = value == 3;
                }
                6 => {
                    arbiter.note_scanner(value % 2 == 0);
                    let stand_by = host.standing_by.contains(&FAULTS);
                    let faults_run = host.on.contains(&FAULTS) && !stand_by;
                    obeys = if faults_run { value % 2 == 0 } else { obeys };
                }
                7 => arbiter.note_reads(now_ms, Reads {
                    cache_pages: u64::from(value) << 10,
                    room_pages: u64::from(value),
                    ..Reads::default()
                }),
                _ if value == 0 => {
                    arbiter.close();
                    closed = true;
                }
                _ => {}
            }
            arbiter.settle(&mut host).unwrap();
            let wanted: BTreeSet<usize> = (0..4).filter(|bit| mask & 1 << bit != 0).collect();
            prop_assert!(host.on.is_subset(&wanted));
            prop_assert!(!closed || host.on.is_empty());
            let readers = host.on.iter().filter(|on| [TABLES, LRU].contains(on)).count();
            prop_assert!(readers <= 1, "two clear each other's bits");
            let faults_stand_by = host.standing_by.contains(&FAULTS);
            prop_assert!(!faults_stand_by || readers == 1, "somebody must see");
            let faults_run = host.on.contains(&FAULTS) && !faults_stand_by;
            let reads_stand_by = host.standing_by.contains(&READS);
            prop_assert!(!reads_stand_by || host.on.len() > 1, "somebody must see");
            for source in &host.on {
                let told = host.told[*source].as_ref().unwrap();
                let is_left = faults_run && (obeys || readers == 0);
                prop_assert_eq!(told.leave_hinted, is_left);
            }
            for (source, state) in arbiter.states().enumerate() {
                let is_on = matches!(state, State::Running | State::StandingBy);
                prop_assert_eq!(is_on, host.on.contains(&source));
                prop_assert_eq!(state == State::StandingBy, host.standing_by.contains(&source));
                prop_assert_eq!(state == State::Disabled, !wanted.contains(&source) || closed);
            }
        }
    }
}

#[test]
fn settings_that_others_change_are_set_again_once() {
    const WHAT: &str = "somebody has changed it";
    let (mut arbiter, mut host) = arbiter(ALL);
    let mut note = |arbiter: &mut Arbiter, now_ms| arbiter.note_foreign(now_ms, WHAT, &mut host);
    assert!(note(&mut arbiter, 1000));
    assert!(note(&mut arbiter, 601_000), "ten minutes later");
    assert_eq!(state(&arbiter, FAULTS), State::Running);
    assert!(!note(&mut arbiter, 1_200_999));
    assert_eq!(state(&arbiter, FAULTS), State::Unavailable(WHAT.into()));
    assert_eq!(state(&arbiter, TABLES), State::Running, "the others go on");
    arbiter.enable(ALL);
    arbiter.settle(&mut host).unwrap();
    assert!(arbiter.note_foreign(1_201_000, WHAT, &mut host), "anew");
    assert_eq!(host.set_again, 3);
}

#[test]
fn settings_that_cannot_be_set_again_stop_hint_faults() {
    let (mut arbiter, mut host) = arbiter(ALL);
    host.refuses_stand_by = true;
    arbiter.note_foreign(1000, "somebody has changed it", &mut host);
    let refusal = State::Unavailable("it cannot stand".into());
    assert_eq!(state(&arbiter, FAULTS), refusal);
    assert!(!host.on.contains(&FAULTS));
}
