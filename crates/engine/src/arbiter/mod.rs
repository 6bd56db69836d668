//! Which hotness source runs, which one stands by for another, and with what settings: one state
//! machine for the daemon and the simulator.
//!
//! It is told what is wanted and what is known, as it comes ([`Arbiter::enable`],
//! [`Arbiter::set_config`], [`Arbiter::note_free_space`], [`Arbiter::note_reads`]). Then
//! [`Arbiter::settle`] compares what should run with what does, and has its [`Host`] start, stop
//! and configure sources until both agree. Its laws:
//!
//! - *No access counts twice.* Of the sources that read accessed bits one runs, and the others
//!   stand by for it: what one clears the other does not see. Whoever reads them leaves to hint
//!   faults the pages that those see, while they run and the kernel's scanner marks as it is told
//!   ([`marking`](crate::marking)). Where normal balancing times the scanner, visits may be a
//!   minute apart: then page tables are read whole, and hint faults report only those that tell
//!   enough at one look.
//! - *Hint faults stand by* while the kernel would promote in them, whatever is set, if a reader of
//!   accessed bits sees the accesses meanwhile. They come back when no top-tier node has had so
//!   much room for [`SHORT_FOR_MS`]: what promotion takes and demotion gives must not make them
//!   flap.
//! - *Reads of page cache stand by* while to watch them does not pay (`reads.rs`), if anything else
//!   can see accesses meanwhile.
//! - *Who runs goes on.* A source is not stopped for another one that is enabled later.
//! - *What cannot run is left out*, until it is enabled again; the rest goes on.
//! - *Settings that others change are set again once.* Most who do so do not mean pghot: `sysctl
//!   --system` after an update. Who does it again soon does, or would do so for ever.

mod reads;

use std::collections::BTreeMap;

use pghot_hotness::Rule;

use crate::marking::Visits;
use crate::{QuickFault, Settings, Tunable};
use reads::Watching;

pub use reads::Reads;

/// How long no top-tier node may have had plenty of free memory before hint faults come back, in
/// ms.
pub const SHORT_FOR_MS: u64 = 3000;

/// Between two looks at the free memory, in ms: it changes by gigabytes in seconds at most.
const LOOK_INTERVAL_MS: u64 = 1000;

/// Who changes settings of hint faults again within so much time, in ms, means it.
const AGAIN_WITHIN_MS: u64 = 600_000;

/// What a source learns accesses from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The kernel's hint faults.
    HintFaults,
    /// Accessed bits in page tables.
    PageTables,
    /// System calls that read page cache.
    CacheReads,
    /// Anything else.
    Other,
}

impl Kind {
    /// Whether its sources can stand by.
    pub fn stands_by(self) -> bool {
        matches!(self, Kind::HintFaults | Kind::CacheReads)
    }
}

/// A source, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub name: &'static str,
    /// Its bit in `enabled_sources`.
    pub bit: u32,
    /// What it learns accesses from.
    pub kind: Kind,
}

/// How a source works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// What makes a page ready.
    pub rule: Rule,
    /// Which hint faults make their page ready at one look.
    pub quick_fault: QuickFault,
    /// Who reads accessed bits leaves the pages that one process alone maps to hint faults, which
    /// report each access that they see; else those report only quick ones. The arbiter knows it,
    /// whatever it is told.
    pub leave_hinted: bool,
    /// The sources' own tunables, by name.
    own: BTreeMap<&'static str, u64>,
}

impl Config {
    /// What the settings ask of sources, whose own tunables these are; `rule` is made from them.
    pub fn new<'a, Own>(settings: &Settings, rule: Rule, own: Own) -> Config
    where
        Own: IntoIterator<Item = &'a Tunable>,
    {
        let own = own.into_iter();
        Config {
            rule,
            quick_fault: QuickFault::as_set(settings),
            leave_hinted: false,
            own: own.map(|it| (it.name, settings.get(it))).collect(),
        }
    }

    /// The value of a source's own tunable.
    pub fn get(&self, tunable: &Tunable) -> u64 {
        let set = self.own.get(tunable.name);
        set.map_or_else(|| (tunable.default)(self.rule.format()), |value| *value)
    }
}

/// Who carries the decisions out: a kernel or a model. Sources go by their place in the list that
/// the arbiter was made with. A refusal is a sentence for the operator.
pub trait Host {
    /// Starts a source, standing by or not.
    fn start(&mut self, source: usize, config: &Config, standing_by: bool) -> Result<(), String>;

    /// Stops a source; the settings of the kernel that it changed go back.
    fn stop(&mut self, source: usize);

    /// Makes a source whose kind [can](Kind::stands_by), and which goes on running, stand by or
    /// come back. If it refuses it is stopped.
    fn stand_by(&mut self, source: usize, standing_by: bool) -> Result<(), String>;

    /// Sets again what a source of hint faults needs of the kernel, whether it runs or stands by.
    /// If it refuses it is stopped.
    fn set_again(&mut self, source: usize, standing_by: bool) -> Result<(), String>;

    /// Makes a source work so from now on.
    fn configure(&mut self, source: usize, config: &Config) -> Result<(), String>;
}

/// What a source does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It reports.
    Running,
    /// It is started, but nothing is done for it to see accesses: the kernel would promote in the
    /// fault, or to watch reads does not pay.
    StandingBy,
    /// It is not started, because this other one reads the same accessed bits.
    Superseded(&'static str),
    /// Not wanted.
    Disabled,
    /// It could not be started, or failed; why, as a sentence.
    Unavailable(String),
}

impl State {
    /// In one word, as reports have it.
    pub fn name(&self) -> &'static str {
        match self {
            State::Running => "running",
            State::StandingBy | State::Superseded(_) => "standing_by",
            State::Disabled => "disabled",
            State::Unavailable(_) => "unavailable",
        }
    }
}

/// Decides for all sources of a host.
pub struct Arbiter {
    slots: Vec<Slot>,
    enabled: u32,
    config: Config,
    looked_ms: Option<u64>,
    /// When the kernel would last have promoted in a hint fault; none if that is long ago.
    plenty_seen_ms: Option<u64>,
    /// When somebody else changed settings of hint faults last.
    foreign_ms: Option<u64>,
    /// Whether the kernel's scanner marks as it is told.
    scanner_obeys: bool,
    watching: Watching,
    is_closed: bool,
}

struct Slot {
    candidate: Candidate,
    stage: Stage,
    /// How it was last told to work.
    told: Config,
}

enum Stage {
    Off,
    Running,
    StandingBy,
    Failed(String),
}

/// What to do next.
enum Order {
    Start { standing_by: bool },
    Stop,
    StandBy(bool),
    Configure,
}

impl Slot {
    fn is_on(&self) -> bool {
        matches!(self.stage, Stage::Running | Stage::StandingBy)
    }

    fn is_running(&self) -> bool {
        matches!(self.stage, Stage::Running)
    }
}

impl Arbiter {
    /// All sources off, and none wanted.
    pub fn new(candidates: impl IntoIterator<Item = Candidate>, config: &Config) -> Arbiter {
        let off = |candidate| Slot {
            candidate,
            stage: Stage::Off,
            told: config.clone(),
        };
        Arbiter {
            slots: candidates.into_iter().map(off).collect(),
            enabled: 0,
            config: config.clone(),
            looked_ms: None,
            plenty_seen_ms: None,
            foreign_ms: None,
            scanner_obeys: true,
            watching: Watching::default(),
            is_closed: false,
        }
    }

    /// From now on these are wanted; what failed before gets another chance.
    pub fn enable(&mut self, mask: u32) {
        self.enabled = mask;
        self.foreign_ms = None;
        for slot in &mut self.slots {
            if matches!(slot.stage, Stage::Failed(_)) {
                slot.stage = Stage::Off;
            }
        }
    }

    /// From now on sources work so; returns how they worked before.
    pub fn set_config(&mut self, config: &Config) -> Config {
        std::mem::replace(&mut self.config, config.clone())
    }

    /// Takes note whether the kernel's scanner marks as it is told. While no hint faults run that
    /// is not known.
    pub fn note_scanner(&mut self, obeys: bool) {
        if self.hint_faults_run() {
            self.scanner_obeys = obeys;
        }
    }

    /// From now on these hint faults are quick.
    pub fn set_quick_fault(&mut self, quick_fault: QuickFault) {
        self.config.quick_fault = quick_fault;
    }

    /// Nothing is wanted any more, for good.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// Whether it is time to look at the free memory of the top tier; if so, it was looked at now.
    pub fn wants_look(&mut self, now_ms: u64) -> bool {
        let is_due = |looked| now_ms.saturating_sub(looked) >= LOOK_INTERVAL_MS;
        let is_due = self.looked_ms.is_none_or(is_due);
        if is_due {
            self.looked_ms = Some(now_ms);
        }
        is_due
    }

    /// Takes note of each top-tier node whether the kernel promotes in the hint fault there,
    /// because so much of the node is free.
    pub fn note_free_space(&mut self, now_ms: u64, has_plenty: impl IntoIterator<Item = bool>) {
        if has_plenty.into_iter().any(|node| node) {
            self.plenty_seen_ms = Some(now_ms);
        } else if let Some(seen) = self.plenty_seen_ms
            && now_ms.saturating_sub(seen) >= SHORT_FOR_MS
        {
            self.plenty_seen_ms = None;
        }
    }

    /// Takes note of what came of watching reads of page cache.
    pub fn note_reads(&mut self, now_ms: u64, reads: Reads) {
        self.watching.note(now_ms, reads);
    }

    /// Takes note that somebody else has changed settings that hint faults need; `what` says which,
    /// as a sentence. Returns whether the host has set them again: who changes them once more
    /// within [`AGAIN_WITHIN_MS`] means it, and then hint faults stop.
    pub fn note_foreign(&mut self, now_ms: u64, what: &str, host: &mut dyn Host) -> bool {
        let last_ms = self.foreign_ms.replace(now_ms);
        let is_meant = last_ms.is_some_and(|last| now_ms.saturating_sub(last) < AGAIN_WITHIN_MS);
        for source in 0..self.slots.len() {
            let slot = &self.slots[source];
            if slot.candidate.kind != Kind::HintFaults || !slot.is_on() {
                continue;
            }
            let done = match is_meant {
                true => Err(what.to_owned()),
                false => host.set_again(source, !slot.is_running()),
            };
            if let Err(why) = done {
                self.fail(source, why, host);
            }
        }
        !is_meant
    }

    /// A source cannot go on, for this reason: it is stopped, until it is enabled again.
    pub fn fail(&mut self, source: usize, why: String, host: &mut dyn Host) {
        let slot = &mut self.slots[source];
        if slot.is_on() {
            host.stop(source);
            slot.stage = Stage::Failed(why);
        }
    }

    /// Has the host do what is to be done. The error is the first refusal of a configuration; that
    /// source goes on as it was told before.
    pub fn settle(&mut self, host: &mut dyn Host) -> Result<(), String> {
        let on = |standing_by| match standing_by {
            true => Stage::StandingBy,
            false => Stage::Running,
        };
        let mut result = Ok(());
        while let Some((source, order)) = self.next() {
            let config = self.config();
            let slot = &mut self.slots[source];
            match order {
                Order::Stop => {
                    host.stop(source);
                    slot.stage = Stage::Off;
                }
                Order::Start { standing_by } => {
                    let started = host.start(source, &config, standing_by);
                    slot.stage = started.map_or_else(Stage::Failed, |()| on(standing_by));
                    slot.told = config;
                }
                Order::StandBy(standing_by) => {
                    let done = host.stand_by(source, standing_by);
                    if done.is_err() {
                        host.stop(source);
                    }
                    slot.stage = done.map_or_else(Stage::Failed, |()| on(standing_by));
                }
                Order::Configure => {
                    // Told, whether it could follow or not: it is not told twice.
                    result = result.and(host.configure(source, &config));
                    slot.told = config;
                }
            }
        }
        result
    }

    /// The first difference between what should be and what is. What sees accesses is started
    /// before what stands by for it, and told last.
    fn next(&self) -> Option<(usize, Order)> {
        let config = self.config();
        let stop = |(place, slot): (usize, &Slot)| {
            (slot.is_on() && !self.is_wanted(slot)).then_some((place, Order::Stop))
        };
        let start = |(place, slot): (usize, &Slot), is_faults: bool| {
            let is_kind = (slot.candidate.kind == Kind::HintFaults) == is_faults;
            let is_due = is_kind && self.state_of(slot).is_none();
            let standing_by = self.stands_by(slot);
            is_due.then_some((place, Order::Start { standing_by }))
        };
        let stand_by = |(place, slot): (usize, &Slot)| {
            let stands_by = self.stands_by(slot);
            let is_wrong = slot.is_on() && slot.is_running() == stands_by;
            is_wrong.then_some((place, Order::StandBy(stands_by)))
        };
        let configure = |(place, slot): (usize, &Slot)| {
            let is_due = slot.is_on() && slot.told != config;
            is_due.then_some((place, Order::Configure))
        };
        let all = || self.slots.iter().enumerate();
        (all().find_map(stop))
            .or_else(|| all().find_map(|slot| start(slot, false)))
            .or_else(|| all().find_map(|slot| start(slot, true)))
            .or_else(|| all().find_map(stand_by))
            .or_else(|| all().find_map(configure))
    }

    /// Whether a source is to stand by if it is on.
    fn stands_by(&self, slot: &Slot) -> bool {
        match slot.candidate.kind {
            Kind::HintFaults => self.plenty_seen_ms.is_some() && self.reader().is_some(),
            Kind::CacheReads => !self.watching.is_on() && self.has_others(slot),
            Kind::PageTables | Kind::Other => false,
        }
    }

    /// Whether another source is wanted, and can run for all that is known.
    fn has_others(&self, slot: &Slot) -> bool {
        let mut others = (self.slots.iter()).filter(|it| it.candidate.bit != slot.candidate.bit);
        others.any(|it| self.is_wanted(it) && !matches!(it.stage, Stage::Failed(_)))
    }

    fn is_wanted(&self, slot: &Slot) -> bool {
        self.enabled & slot.candidate.bit != 0 && !self.is_closed
    }

    /// The name of the source that reads accessed bits.
    fn reader(&self) -> Option<&'static str> {
        let is_one = |slot: &&Slot| slot.candidate.kind == Kind::PageTables && slot.is_on();
        self.slots.iter().find(is_one).map(|s| s.candidate.name)
    }

    /// What the kernel's scanner is to be told: nothing is marked while hint faults stand by.
    pub fn visits(&self, wanted: Visits) -> Visits {
        let run = self.hint_faults_run();
        Visits {
            is_pulse: wanted.is_pulse && run,
            rests: wanted.rests || !run,
            marks_above: wanted.marks_above && run,
            ..wanted
        }
    }

    /// Whether a source of hint faults runs, and does not stand by.
    fn hint_faults_run(&self) -> bool {
        let is_one = |slot: &Slot| slot.candidate.kind == Kind::HintFaults && slot.is_running();
        self.slots.iter().any(is_one)
    }

    /// How sources work now.
    fn config(&self) -> Config {
        let tell_all = self.scanner_obeys || self.reader().is_none();
        Config {
            leave_hinted: self.hint_faults_run() && tell_all,
            ..self.config.clone()
        }
    }

    /// What a source does; `None` if it is to be started.
    fn state_of(&self, slot: &Slot) -> Option<State> {
        match (&slot.stage, self.reader()) {
            (Stage::Running, _) => Some(State::Running),
            (Stage::StandingBy, _) => Some(State::StandingBy),
            _ if !self.is_wanted(slot) => Some(State::Disabled),
            (Stage::Failed(why), _) => Some(State::Unavailable(why.clone())),
            (Stage::Off, Some(other)) if slot.candidate.kind == Kind::PageTables => {
                Some(State::Superseded(other))
            }
            (Stage::Off, _) => None,
        }
    }

    /// What each source does, in the order of the list. One that has yet to be started is disabled.
    pub fn states(&self) -> impl Iterator<Item = State> {
        let states = self.slots.iter().map(|slot| self.state_of(slot));
        states.map(|state| state.unwrap_or(State::Disabled))
    }
}

#[cfg(test)]
mod tests;
