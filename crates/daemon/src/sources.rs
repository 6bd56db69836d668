//! The hotness sources of a running daemon: `enabled_sources` starts and stops them, and each one that
//! does not run says why.
//!
//! No access is counted twice. Hint faults stand by while the kernel would promote in them and a
//! source of accessed bits runs; when both run, each reports pages that the other does not. Of the
//! sources of accessed bits one runs, the others stand by for it.

use std::time::{Duration, Instant};

use pghot_sources::{Config, Descriptor, Error, Kind, Source};
use tracing::{info, warn};

use crate::latency::Latency;
use crate::status::{SourceReport, SourceState};

/// How long the top tier must have been short of free memory before hint faults come back: what
/// promotion takes and demotion gives must not make them flap.
const SHORT_FOR: Duration = Duration::from_secs(3);

/// Where sources are started: the kernel, or a fake in tests.
pub trait Ground: Send {
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
}

struct Slot {
    descriptor: &'static Descriptor,
    state: State,
}

enum State {
    Running(Box<dyn Source>),
    StandingBy(Box<dyn Source>),
    /// Not started, because this other one sees the same.
    Superseded(&'static str),
    Disabled,
    Unavailable(String),
}

/// All sources, running or not.
pub struct Sources {
    slots: Vec<Slot>,
    ground: Box<dyn Ground>,
    /// How the sources were told to work; none yet.
    config: Option<Config>,
    /// When the kernel would last have promoted in a hint fault.
    free_space_seen: Option<Instant>,
    /// The daemon is ending: nothing is started any more.
    closed: bool,
}

impl State {
    fn source(&self) -> Option<&dyn Source> {
        match self {
            State::Running(source) | State::StandingBy(source) => Some(source.as_ref()),
            _ => None,
        }
    }

    fn source_mut(&mut self) -> Option<&mut Box<dyn Source>> {
        match self {
            State::Running(source) | State::StandingBy(source) => Some(source),
            _ => None,
        }
    }
}

impl Sources {
    /// All off.
    pub fn new(descriptors: &'static [Descriptor], ground: Box<dyn Ground>) -> Sources {
        let off = |descriptor| Slot {
            descriptor,
            state: State::Disabled,
        };
        Sources {
            slots: descriptors.iter().map(off).collect(),
            ground,
            config: None,
            free_space_seen: None,
            closed: false,
        }
    }

    /// Stops the running sources that are not enabled, with the kernel settings that they changed,
    /// and starts the others: those that read page tables before those that stand by for them. A
    /// source that cannot start is said once and skipped; the rest goes on.
    pub fn enable(&mut self, mask: u32, config: &Config) {
        for Slot { descriptor, state } in &mut self.slots {
            if mask & descriptor.bit != 0 && !self.closed {
                continue;
            }
            let had_source = state.source().is_some();
            *state = State::Disabled;
            if had_source {
                self.ground.clear(descriptor);
                info!("source {} stopped", descriptor.name);
            }
        }
        self.start(mask, config, |kind| kind != Kind::HintFaults);
        self.start(mask, config, |kind| kind == Kind::HintFaults);
        self.choose_faults();
        self.tell(config);
    }

    fn start(&mut self, mask: u32, config: &Config, wanted: impl Fn(Kind) -> bool) {
        let standing_by = self.faults_should_stand_by();
        let mut reads_page_tables = self.running(Kind::PageTables);
        for Slot { descriptor, state } in &mut self.slots {
            let enabled = mask & descriptor.bit != 0 && !self.closed;
            if !enabled || !wanted(descriptor.kind) || state.source().is_some() {
                continue;
            }
            if descriptor.kind == Kind::PageTables
                && let Some(other) = reads_page_tables
            {
                info!("source {} stands by for {other}", descriptor.name);
                *state = State::Superseded(other);
                continue;
            }
            let standing_by = standing_by && descriptor.kind == Kind::HintFaults;
            *state = match self.ground.start(descriptor, *config, standing_by) {
                Ok(source) if standing_by => {
                    info!("source {} started, standing by", descriptor.name);
                    State::StandingBy(source)
                }
                Ok(source) => {
                    info!("source {} started", descriptor.name);
                    State::Running(source)
                }
                Err(why) => {
                    warn!("source {} cannot run: {why}", descriptor.name);
                    State::Unavailable(why)
                }
            };
            if descriptor.kind == Kind::PageTables && state.source().is_some() {
                reads_page_tables = Some(descriptor.name);
            }
        }
    }

    /// Takes note whether a top-tier node has so much free memory that the kernel promotes in the
    /// hint fault, and makes sources stand by or come back accordingly.
    pub fn note_free_space(&mut self, has_plenty: bool, now: Instant) {
        if has_plenty {
            self.free_space_seen = Some(now);
        } else if let Some(seen) = self.free_space_seen
            && now.duration_since(seen) >= SHORT_FOR
        {
            self.free_space_seen = None;
        }
        self.choose();
    }

    /// The name of a running source of this kind.
    fn running(&self, kind: Kind) -> Option<&'static str> {
        let is_one =
            |slot: &&Slot| slot.descriptor.kind == kind && matches!(slot.state, State::Running(_));
        self.slots.iter().find(is_one).map(|s| s.descriptor.name)
    }

    fn faults_should_stand_by(&self) -> bool {
        self.free_space_seen.is_some() && self.running(Kind::PageTables).is_some()
    }

    /// Decides who reports what, now that sources or free space have changed.
    fn choose(&mut self) {
        self.choose_faults();
        let hint_faults_run = self.running(Kind::HintFaults).is_some();
        if let Some(config) = self.config
            && config.hint_faults_run != hint_faults_run
        {
            self.tell(&config);
        }
    }

    fn tell(&mut self, config: &Config) {
        if let Err(error) = self.configure(config) {
            warn!("a source goes on as it was told before: {error}");
        }
    }

    fn choose_faults(&mut self) {
        let standing_by = self.faults_should_stand_by();
        for Slot { descriptor, state } in &mut self.slots {
            if descriptor.kind != Kind::HintFaults {
                continue;
            }
            let name = descriptor.name;
            let is_right = match state {
                State::Running(_) => !standing_by,
                State::StandingBy(_) => standing_by,
                State::Disabled | State::Unavailable(_) | State::Superseded(_) => true,
            };
            if is_right {
                continue;
            }
            *state = match std::mem::replace(state, State::Disabled) {
                State::Running(mut source) | State::StandingBy(mut source) => {
                    if let Err(error) = self.ground.stand_by(source.as_mut(), standing_by) {
                        drop(source);
                        self.ground.clear(descriptor);
                        warn!("source {name} cannot run: {error}");
                        State::Unavailable(error.to_string())
                    } else if standing_by {
                        info!("source {name} stands by: the top tier has plenty of free memory");
                        State::StandingBy(source)
                    } else {
                        info!("source {name} is back: the top tier is short of free memory");
                        State::Running(source)
                    }
                }
                other => other,
            };
        }
    }

    /// Stops everything for good.
    pub fn close(&mut self) {
        self.closed = true;
        for slot in &mut self.slots {
            slot.state = State::Disabled;
        }
    }

    fn attached(&mut self) -> impl Iterator<Item = &mut Box<dyn Source>> {
        self.slots
            .iter_mut()
            .filter_map(|slot| slot.state.source_mut())
    }

    /// Whether at least one source runs.
    pub fn is_any_running(&self) -> bool {
        let is_running = |slot: &Slot| matches!(slot.state, State::Running(_));
        self.slots.iter().any(is_running)
    }

    /// Makes all sources work so from now on. Which of them run is known better here.
    pub fn configure(&mut self, config: &Config) -> Result<(), Error> {
        let config = Config {
            hint_faults_run: self.running(Kind::HintFaults).is_some(),
            ..*config
        };
        self.config = Some(config);
        self.attached()
            .try_for_each(|source| source.configure(&config))
    }

    /// Takes over which sampled pages became ready.
    pub fn drain_ready(&mut self, latency: &mut Latency) {
        for source in self.attached() {
            source.drain_ready(&mut |sample| latency.ready(sample.pfn, sample.when_ns));
        }
    }

    /// Why no enabled source runs, if none does.
    pub fn why_none(&self) -> String {
        let why = |slot: &Slot| match &slot.state {
            State::Unavailable(why) => Some(format!("{}: {why}", slot.descriptor.name)),
            _ => None,
        };
        let reasons: Vec<String> = self.slots.iter().filter_map(why).collect();
        reasons.join("; ")
    }

    /// What `status` shows.
    pub fn report(&self) -> Vec<SourceReport> {
        self.slots.iter().map(report).collect()
    }
}

fn report(slot: &Slot) -> SourceReport {
    let (state, mut why) = match &slot.state {
        State::Disabled => (SourceState::Disabled, None),
        State::Unavailable(why) => (SourceState::Unavailable, Some(why.clone())),
        State::Running(_) => (SourceState::Running, None),
        State::Superseded(other) => {
            let why = format!("{other} reads the same accessed bits");
            (SourceState::StandingBy, Some(why))
        }
        State::StandingBy(_) => {
            let why = "the top tier has so much free memory that the kernel would promote in \
                       the fault; the page-table sources see the accesses";
            (SourceState::StandingBy, Some(why.to_owned()))
        }
    };
    let source = slot.state.source();
    let stats = source.and_then(|source| match source.stats() {
        Ok(stats) => Some(stats),
        Err(error) => {
            why = Some(error.to_string());
            None
        }
    });
    SourceReport {
        name: slot.descriptor.name.to_owned(),
        state,
        why,
        stats,
        cost: source.map(Source::cost),
        details: source.map(Source::details).unwrap_or_default(),
    }
}
