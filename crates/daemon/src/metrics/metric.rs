//! What a metric is, and the samples that are read of it from a status.

use std::borrow::Cow;

use pghot_engine::Held;
use pghot_sources::{SourceCost, SourceStats};

use crate::durations::{BOUNDS_US, Durations};
use crate::latency::{BOUNDS_MS, LatencyReport};
use crate::owners::OwnerRow;
use crate::status::{LowerNode, RecordingReport, SourceReport, SourceState, Status, TopNode};

/// What a metric counts or shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// A value now.
    Gauge,
    /// Counts by size.
    Histogram,
}

impl Kind {
    /// Its name in the text.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// A metric.
#[derive(Debug)]
pub struct Metric {
    /// Its name, with the unit; counters have `_total` behind it.
    pub name: &'static str,
    /// What it counts or shows.
    pub kind: Kind,
    /// Its unit, the end of the name; empty if it has none.
    pub unit: &'static str,
    /// What it says, for people.
    pub help: &'static str,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// Reads its samples.
    pub(super) read: fn(&Status, &mut Samples),
}

impl Metric {
    /// The name that queries use; of a histogram, what its series begin with.
    pub fn sample_name(&self) -> String {
        match self.kind {
            Kind::Counter => format!("{}_total", self.name),
            _ => self.name.to_owned(),
        }
    }
}

/// A metric of this kind; `(name, unit)`.
pub(super) const fn metric(
    kind: Kind,
    (name, unit): (&'static str, &'static str),
    labels: &'static [&'static str],
    help: &'static str,
    read: fn(&Status, &mut Samples),
) -> Metric {
    Metric {
        name,
        kind,
        unit,
        help,
        labels,
        read,
    }
}

/// A counter.
pub(super) const fn counter(
    name: (&'static str, &'static str),
    labels: &'static [&'static str],
    help: &'static str,
    read: fn(&Status, &mut Samples),
) -> Metric {
    metric(Kind::Counter, name, labels, help, read)
}

/// A gauge.
pub(super) const fn gauge(
    name: (&'static str, &'static str),
    labels: &'static [&'static str],
    help: &'static str,
    read: fn(&Status, &mut Samples),
) -> Metric {
    metric(Kind::Gauge, name, labels, help, read)
}

/// A value with its labels' values.
#[derive(Debug)]
pub(super) struct Sample {
    pub labels: Vec<Cow<'static, str>>,
    pub value: Value,
}

#[derive(Debug)]
pub(super) enum Value {
    Whole(u64),
    Real(f64),
    Counts(Counts),
}

/// Counts by size, in seconds.
#[derive(Debug)]
pub(super) struct Counts {
    /// Upper bounds; a last count has those beyond.
    pub bounds_s: Vec<f64>,
    /// Of a daemon that measured nothing there are none.
    pub counts: Vec<u64>,
    pub sum_s: f64,
}

impl From<&LatencyReport> for Counts {
    fn from(waits: &LatencyReport) -> Counts {
        Counts {
            bounds_s: BOUNDS_MS.map(|bound| bound as f64 / 1e3).into(),
            counts: waits.counts.clone(),
            sum_s: waits.sum_ms / 1e3,
        }
    }
}

impl From<&Durations> for Counts {
    fn from(durations: &Durations) -> Counts {
        Counts {
            bounds_s: BOUNDS_US.map(|bound| bound as f64 / 1e6).into(),
            counts: durations.counts.into(),
            sum_s: durations.sum_us as f64 / 1e6,
        }
    }
}

/// The samples of a metric.
#[derive(Debug, Default)]
pub(super) struct Samples(pub Vec<Sample>);

impl Samples {
    pub(super) fn add(&mut self, labels: Vec<Cow<'static, str>>, value: Value) {
        self.0.push(Sample { labels, value });
    }

    pub(super) fn whole(&mut self, value: u64) {
        self.add(Vec::new(), Value::Whole(value));
    }

    pub(super) fn real(&mut self, value: f64) {
        self.add(Vec::new(), Value::Real(value));
    }

    pub(super) fn lower(&mut self, status: &Status, value: impl Fn(&LowerNode) -> u64) {
        for node in &status.lower_tier {
            self.add(vec![label(node.nid)], Value::Whole(value(node)));
        }
    }

    pub(super) fn held(&mut self, status: &Status) {
        for node in &status.lower_tier {
            for held in Held::ALL {
                let pages = node.last_pass.held.get(&held).copied().unwrap_or(0);
                let labels = vec![label(node.nid), held.name().into()];
                self.add(labels, Value::Whole(pages));
            }
        }
    }

    pub(super) fn durations(&mut self, status: &Status, of: impl Fn(&LowerNode) -> &Durations) {
        for node in &status.lower_tier {
            self.add(vec![label(node.nid)], Value::Counts(of(node).into()));
        }
    }

    /// Hint faults by how soon they came, where pghot says what is marked.
    pub(super) fn fault_times(&mut self, status: &Status) {
        let marking = status.marking.iter();
        for (until_ms, faults) in marking.flat_map(|marking| marking.fault_times.classes()) {
            let class = until_ms.map_or("later".into(), label);
            self.add(vec![class], Value::Whole(faults));
        }
    }

    pub(super) fn top(&mut self, status: &Status, value: impl Fn(&TopNode) -> u64) {
        for node in &status.top_tier {
            self.add(vec![label(node.nid)], Value::Whole(value(node)));
        }
    }

    /// Of the cgroups that have it.
    pub(super) fn cgroups(&mut self, status: &Status, value: impl Fn(&OwnerRow) -> Option<u64>) {
        for cgroup in &status.cgroups {
            if let Some(value) = value(cgroup) {
                let labels = vec![cgroup.moves.name.clone().into()];
                self.add(labels, Value::Whole(value));
            }
        }
    }

    /// The memory of cgroups by tier, of those where it is known.
    pub(super) fn tiers(&mut self, status: &Status) {
        for cgroup in &status.cgroups {
            let tiers = [("top", cgroup.top_bytes), ("lower", cgroup.lower_bytes)];
            for (tier, bytes) in tiers {
                let Some(bytes) = bytes else { continue };
                let labels = vec![cgroup.moves.name.clone().into(), tier.into()];
                self.add(labels, Value::Whole(bytes));
            }
        }
    }

    /// Where access profiles are recorded.
    pub(super) fn recording(&mut self, status: &Status, value: impl Fn(&RecordingReport) -> u64) {
        if let Some(recording) = &status.recording {
            self.whole(value(recording));
        }
    }

    /// Of all runs of a source. Where the counters of this run cannot be read, there is no sample:
    /// one without them would go back.
    pub(super) fn reports(&mut self, status: &Status, value: impl Fn(&SourceStats) -> u64) {
        use SourceState::{Running, StandingBy};
        for source in &status.sources {
            let runs = matches!(source.state, Running | StandingBy);
            if runs && source.stats.is_none() {
                continue;
            }
            let all = source.past.stats.plus(source.stats.unwrap_or_default());
            self.add(vec![name(source)], Value::Whole(value(&all)));
        }
    }

    /// Of all runs of a source.
    pub(super) fn costs(&mut self, status: &Status, value: impl Fn(&SourceCost) -> Value) {
        for source in &status.sources {
            let all = source.past.cost.plus(source.cost.unwrap_or_default());
            self.add(vec![name(source)], value(&all));
        }
    }
}

/// The label of a node, or of another number.
pub(super) fn label(number: impl ToString) -> Cow<'static, str> {
    number.to_string().into()
}

/// The label of a source.
pub(super) fn name(source: &SourceReport) -> Cow<'static, str> {
    source.name.clone().into()
}

/// Nanoseconds as seconds.
pub(super) fn seconds(ns: u64) -> Value {
    Value::Real(ns as f64 / 1e9)
}
