//! The hotness sources of a running daemon: `enabled_sources` starts and stops them, and each one
//! that does not run says why.

use pghot_hotness::Rule;
use pghot_sources::{Descriptor, Error, Source};
use tracing::{info, warn};

use crate::latency::Latency;
use crate::status::{SourceReport, SourceState};

/// Where sources are started: the kernel, or a fake in tests.
pub trait Ground: Send {
    /// Starts one source, or says in a sentence why it cannot run.
    fn start(
        &mut self,
        descriptor: &'static Descriptor,
        rule: Rule,
    ) -> Result<Box<dyn Source>, String>;

    /// No source runs any more: puts back the kernel settings that sources changed.
    fn clear(&mut self);
}

struct Slot {
    descriptor: &'static Descriptor,
    state: State,
}

enum State {
    Running(Box<dyn Source>),
    Disabled,
    Unavailable(String),
}

/// All sources, running or not.
pub struct Sources {
    slots: Vec<Slot>,
    ground: Box<dyn Ground>,
    /// The daemon is ending: nothing is started any more.
    closed: bool,
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
            closed: false,
        }
    }

    /// Starts the enabled sources that do not run and stops the others that do. A source that
    /// cannot start is said once and skipped; the rest goes on. When none is left, the kernel
    /// settings go back: hint faults that nobody sees would only cost time.
    pub fn enable(&mut self, mask: u32, rule: &Rule) {
        let was_any_running = self.is_any_running();
        for Slot { descriptor, state } in &mut self.slots {
            let enabled = mask & descriptor.bit != 0 && !self.closed;
            match (&state, enabled) {
                (State::Running(_), true) => {}
                (State::Running(_), false) => {
                    *state = State::Disabled;
                    info!("source {} stopped", descriptor.name);
                }
                (_, false) => *state = State::Disabled,
                (_, true) => {
                    *state = match self.ground.start(descriptor, *rule) {
                        Ok(source) => {
                            info!("source {} started", descriptor.name);
                            State::Running(source)
                        }
                        Err(why) => {
                            warn!("source {} cannot run: {why}", descriptor.name);
                            State::Unavailable(why)
                        }
                    }
                }
            }
        }
        if was_any_running && !self.is_any_running() {
            self.ground.clear();
        }
    }

    /// Stops everything for good.
    pub fn close(&mut self) {
        self.closed = true;
        for slot in &mut self.slots {
            slot.state = State::Disabled;
        }
    }

    fn running(&mut self) -> impl Iterator<Item = &mut Box<dyn Source>> {
        self.slots
            .iter_mut()
            .filter_map(|slot| match &mut slot.state {
                State::Running(source) => Some(source),
                _ => None,
            })
    }

    /// Whether at least one source runs.
    pub fn is_any_running(&mut self) -> bool {
        self.running().next().is_some()
    }

    /// Makes all running sources apply a rule to the reports from now on.
    pub fn set_rule(&mut self, rule: &Rule) -> Result<(), Error> {
        self.running().try_for_each(|source| source.set_rule(rule))
    }

    /// Takes over which sampled pages became ready.
    pub fn drain_ready(&mut self, latency: &mut Latency) {
        for source in self.running() {
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
        let report = |slot: &Slot| {
            let (state, why, stats) = match &slot.state {
                State::Disabled => (SourceState::Disabled, None, None),
                State::Unavailable(why) => (SourceState::Unavailable, Some(why.clone()), None),
                State::Running(source) => match source.stats() {
                    Ok(stats) => (SourceState::Running, None, Some(stats)),
                    Err(error) => (SourceState::Running, Some(error.to_string()), None),
                },
            };
            SourceReport {
                name: slot.descriptor.name.to_owned(),
                state,
                why,
                stats,
            }
        };
        self.slots.iter().map(report).collect()
    }
}
