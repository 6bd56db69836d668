//! The hotness sources of a running daemon. Which of them run is decided by the engine's arbiter;
//! here they are started, stopped and asked.

use std::time::Instant;

use pghot_engine::QuickFault;
use pghot_engine::arbiter::{self, Arbiter, Reads, State};
use pghot_engine::demoter::HugeFault;
use pghot_engine::marking::{HintFaults, Visits};
use pghot_events::event;
use pghot_linux::knobs::Foreign;
use pghot_sources::{Config, Descriptor, Error, Kind, Source};
use tracing::debug;

use crate::latency::Latency;
use crate::status::{PastRuns, SourceReport, SourceState};

/// Starts sources and sets what they need: on the kernel, or a fake in tests.
pub trait Launcher: Send {
    /// Starts one source, standing by or not, or says in a sentence why it cannot run.
    fn start(
        &mut self,
        descriptor: &'static Descriptor,
        config: Config,
        standing_by: bool,
    ) -> Result<Box<dyn Source>, String>;

    /// The source is gone: puts back the kernel settings that it changed.
    fn clear(&mut self, descriptor: &'static Descriptor);

    /// Makes a running source stand by or come back.
    fn stand_by(&mut self, source: &mut dyn Source, standing_by: bool) -> Result<(), Error>;

    /// The settings that sources changed and somebody else has changed since.
    fn foreign(&mut self) -> Vec<Foreign>;

    /// Tells the kernel's scanner how to mark, for a source of hint faults. Returns whether it is
    /// for the source to say.
    fn mark(&mut self, source: &mut dyn Source, visits: Visits) -> Result<bool, Error>;
}

/// All sources, running or not.
pub struct Sources {
    arbiter: Arbiter,
    host: Running,
    /// Times of the arbiter count from here.
    epoch: Instant,
}

/// Those that are started.
struct Running {
    descriptors: &'static [Descriptor],
    sources: Vec<Option<Box<dyn Source>>>,
    /// What came of runs that have ended, by source.
    past: Vec<PastRuns>,
    launcher: Box<dyn Launcher>,
    /// What the kernel's scanner was told last, and whether it does as told; `None` if it may have
    /// been told otherwise since.
    marked: Option<(Visits, bool)>,
}

impl arbiter::Host for Running {
    fn start(&mut self, source: usize, config: &Config, standing_by: bool) -> Result<(), String> {
        let descriptor = &self.descriptors[source];
        let name = descriptor.name;
        self.marked = None;
        match self.launcher.start(descriptor, config.clone(), standing_by) {
            Ok(started) => {
                let how = if standing_by { ", standing by" } else { "" };
                event!(source_started, source = name, "source {name} started{how}");
                self.sources[source] = Some(started);
                Ok(())
            }
            Err(why) => {
                event!(
                    source_unavailable,
                    source = name,
                    "source {name} cannot run: {why}"
                );
                // It may have come as far as the kernel settings.
                self.launcher.clear(descriptor);
                Err(why)
            }
        }
    }

    fn stop(&mut self, source: usize) {
        if let Some(ended) = self.sources[source].take() {
            let past = &mut self.past[source];
            past.stats = past.stats.plus(ended.stats().unwrap_or_default());
            past.cost = past.cost.plus(ended.cost());
        }
        self.launcher.clear(&self.descriptors[source]);
        let name = self.descriptors[source].name;
        event!(source_stopped, source = name, "source {name} stopped");
    }

    fn stand_by(&mut self, source: usize, standing_by: bool) -> Result<(), String> {
        let name = self.descriptors[source].name;
        self.set_again(source, standing_by)?;
        let kind = self.descriptors[source].kind;
        if kind == Kind::CacheReads {
            // Every few seconds, as it pays.
            debug!("source {name} stands by: {standing_by}");
            return Ok(());
        }
        match standing_by {
            true => event!(
                source_standing_by,
                source = name,
                "source {name} stands by: the top tier has plenty of free memory"
            ),
            false => event!(
                source_returned,
                source = name,
                "source {name} is back: the top tier is short of free memory"
            ),
        }
        Ok(())
    }

    fn set_again(&mut self, source: usize, standing_by: bool) -> Result<(), String> {
        let name = self.descriptors[source].name;
        let Some(running) = &mut self.sources[source] else {
            return Ok(());
        };
        if running.descriptor().kind == Kind::HintFaults {
            self.marked = None;
        }
        let done = self.launcher.stand_by(running.as_mut(), standing_by);
        done.map_err(|error| {
            event!(
                source_unavailable,
                source = name,
                "source {name} cannot run: {error}"
            );
            error.to_string()
        })
    }

    fn configure(&mut self, source: usize, config: &Config) -> Result<(), String> {
        match &mut self.sources[source] {
            Some(running) => running.configure(config).map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }
}

impl Sources {
    /// All off.
    pub fn new(
        descriptors: &'static [Descriptor],
        launcher: Box<dyn Launcher>,
        config: &Config,
    ) -> Sources {
        Sources {
            arbiter: Arbiter::new(descriptors.iter().map(Descriptor::candidate), config),
            host: Running {
                descriptors,
                sources: descriptors.iter().map(|_| None).collect(),
                past: vec![PastRuns::default(); descriptors.len()],
                launcher,
                marked: None,
            },
            epoch: Instant::now(),
        }
    }

    /// Makes the sources of the mask run, and no others.
    pub fn enable(&mut self, mask: u32) {
        self.arbiter.enable(mask);
        self.settle();
    }

    /// Makes all sources work so from now on. If one cannot, all go back to how they worked before.
    pub fn configure(&mut self, config: &Config) -> Result<(), String> {
        let before = self.arbiter.set_config(config);
        let settled = self.arbiter.settle(&mut self.host);
        if settled.is_err() {
            self.arbiter.set_config(&before);
            // The first refusal is the one to tell.
            let _ = self.arbiter.settle(&mut self.host);
        }
        settled
    }

    /// From now on these hint faults are quick.
    pub fn set_quick_fault(&mut self, quick_fault: QuickFault) {
        self.arbiter.set_quick_fault(quick_fault);
        self.settle();
    }

    /// From now on the kernel's scanner marks like that, if hint faults do not stand by. Returns
    /// whether it does.
    pub fn mark(&mut self, visits: Visits) -> bool {
        let is_told = self.tell_scanner(visits);
        self.arbiter.note_scanner(is_told);
        self.settle();
        is_told
    }

    fn tell_scanner(&mut self, visits: Visits) -> bool {
        let visits = self.arbiter.visits(visits);
        let host = &mut self.host;
        let running = host.sources.iter_mut().flatten();
        let mut sees_faults = running.filter(|it| it.descriptor().kind == Kind::HintFaults);
        let Some(source) = sees_faults.next() else {
            return false;
        };
        if let Some((_, is_told)) = host.marked.filter(|(last, _)| *last == visits) {
            return is_told;
        }
        let is_told = host.launcher.mark(source.as_mut(), visits);
        let is_told = is_told.unwrap_or_else(|error| {
            debug!("the kernel's scanner marks as before: {error}");
            false
        });
        host.marked = Some((visits, is_told));
        is_told
    }

    /// Looks what has happened to the sources since the last time: whether somebody else has
    /// changed a setting that they need, and whether one of them has lost its thread.
    pub fn check(&mut self, now: Instant) {
        self.check_threads();
        let foreign = self.host.launcher.foreign();
        if foreign.is_empty() {
            return;
        }
        let told = foreign.iter().map(|it| {
            let (path, ours, present) = (it.path.display(), &it.ours, &it.present);
            format!("somebody has set {path} to {present}, where pghot needs {ours}")
        });
        let told = told.collect::<Vec<_>>().join("; ");
        let now_ms = self.ms(now);
        match self.arbiter.note_foreign(now_ms, &told, &mut self.host) {
            true => event!(
                setting_contested,
                "{told}: set again; at the end it becomes {}",
                their(&foreign)
            ),
            false => event!(
                setting_lost,
                "{told}, again: hint faults stop until they are enabled anew"
            ),
        }
        self.settle();
    }

    fn check_threads(&mut self) {
        for place in 0..self.host.sources.len() {
            if self.host.sources[place]
                .as_ref()
                .is_some_and(|source| source.is_dead())
            {
                let why = "its thread failed, please report the message in the log as a bug";
                let name = self.host.descriptors[place].name;
                event!(source_failed, source = name, "source {name} stops: {why}");
                self.arbiter.fail(place, why.to_owned(), &mut self.host);
                self.settle();
            }
        }
    }

    /// Whether it is time to look at the free memory of the top tier.
    pub fn wants_look(&mut self, now: Instant) -> bool {
        self.arbiter.wants_look(self.ms(now))
    }

    /// Takes note of each top-tier node whether it has so much free memory that the kernel promotes
    /// in the hint fault.
    pub fn note_free_space(&mut self, now: Instant, has_plenty: impl IntoIterator<Item = bool>) {
        self.arbiter.note_free_space(self.ms(now), has_plenty);
        self.settle();
    }

    /// Takes note of what came of watching reads of page cache, if there is a source that does:
    /// `known` has all but how many were watched.
    pub fn note_reads(&mut self, now: Instant, known: impl FnOnce() -> Reads) {
        let mut running = self.host.sources.iter().flatten();
        let watches = running.find(|it| it.descriptor().kind == Kind::CacheReads);
        let Some(Ok(stats)) = watches.map(|source| source.stats()) else {
            return;
        };
        let reads = Reads {
            watched: stats.recorded + stats.not_tracked,
            ..known()
        };
        self.arbiter.note_reads(self.ms(now), reads);
        self.settle();
    }

    fn ms(&self, now: Instant) -> u64 {
        now.duration_since(self.epoch).as_millis() as u64
    }

    fn settle(&mut self) {
        if let Err(error) = self.arbiter.settle(&mut self.host) {
            event!(
                source_not_changed,
                "a source goes on as it was told before: {error}"
            );
        }
    }

    /// Stops everything for good.
    pub fn close(&mut self) {
        self.arbiter.close();
        self.settle();
    }

    /// Whether at least one source runs.
    pub fn is_any_running(&self) -> bool {
        self.arbiter.states().any(|state| state == State::Running)
    }

    /// Takes over which sampled pages became ready.
    pub fn drain_ready(&mut self, latency: &mut Latency) {
        for source in self.host.sources.iter_mut().flatten() {
            source.drain_ready(&mut |sample| latency.ready(sample.pfn, sample.when_ns));
        }
    }

    /// Hint faults since the start; zeros where none are seen.
    pub fn hint_faults(&self) -> HintFaults {
        let mut running = self.host.sources.iter().flatten();
        running
            .find_map(|source| source.hint_faults())
            .unwrap_or_default()
    }

    /// The hint faults of huge pages since the last call.
    pub fn take_huge_faults(&mut self) -> Vec<HugeFault> {
        let running = self.host.sources.iter_mut().flatten();
        running
            .flat_map(|source| source.take_huge_faults())
            .collect()
    }

    /// Why no enabled source runs, if none does.
    pub fn why_none(&self) -> String {
        let states = self.arbiter.states().zip(self.host.descriptors);
        let why = |(state, descriptor): (State, &Descriptor)| match state {
            State::Unavailable(why) => Some(format!("{}: {why}", descriptor.name)),
            _ => None,
        };
        states.filter_map(why).collect::<Vec<_>>().join("; ")
    }

    /// What `status` shows.
    pub fn report(&self) -> Vec<SourceReport> {
        let sources = self.host.sources.iter().map(Option::as_deref);
        let runs = sources.zip(&self.host.past);
        let described = self.host.descriptors.iter().zip(runs);
        let states = self.arbiter.states().zip(described);
        states
            .map(|(state, (descriptor, (source, past)))| SourceReport {
                past: *past,
                ..report(descriptor, state, source)
            })
            .collect()
    }
}

/// What others want the settings to be.
fn their(foreign: &[Foreign]) -> String {
    let values = foreign.iter().map(|it| it.present.clone());
    values.collect::<Vec<_>>().join(", ")
}

fn report(descriptor: &Descriptor, state: State, source: Option<&dyn Source>) -> SourceReport {
    let (state, mut why) = match state {
        State::Disabled => (SourceState::Disabled, None),
        State::Unavailable(why) => (SourceState::Unavailable, Some(why)),
        State::Running => (SourceState::Running, None),
        State::Superseded(other) => {
            let why = format!("{other} reads the same accessed bits");
            (SourceState::StandingBy, Some(why))
        }
        State::StandingBy => {
            let why = match descriptor.kind {
                Kind::CacheReads => {
                    "to watch reads does not pay now: the top tier is full, little page cache is \
                     in the lower tier, or few pages go up for it; it is tried again"
                }
                _ => {
                    "the top tier has so much free memory that the kernel would promote in the \
                     fault; the page-table sources see the accesses"
                }
            };
            (SourceState::StandingBy, Some(why.to_owned()))
        }
    };
    let stats = source.and_then(|source| match source.stats() {
        Ok(stats) => Some(stats),
        Err(error) => {
            why = Some(error.to_string());
            None
        }
    });
    SourceReport {
        name: descriptor.name.to_owned(),
        state,
        why,
        stats,
        cost: source.map(Source::cost),
        past: PastRuns::default(),
        details: source.map(Source::details).unwrap_or_default(),
    }
}
