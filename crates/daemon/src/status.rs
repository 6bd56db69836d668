//! What `pghot status` tells: the shape of its JSON.

use std::collections::BTreeMap;
use std::fmt;

use pghot_engine::demoter::DemoterReport;
use pghot_engine::marking::MarkingReport;
use pghot_engine::{PassReport, Totals};
use pghot_sources::{SourceCost, SourceStats};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::durations::Durations;
use crate::latency::LatencyReport;
use crate::owners::{OwnerMoves, OwnerRow};

/// Version of what `--json` prints, of all commands. It grows when a field goes, or means something
/// else; new fields leave it.
pub const SCHEMA: u32 = 1;

/// What the daemon does.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// Version of the format.
    pub schema: u32,
    /// Version of the daemon.
    pub version: String,
    /// `uname -r`.
    pub kernel: String,
    /// Time since the start, in seconds.
    pub uptime_s: f64,
    /// When it started, in seconds of Unix time.
    pub started_unix_s: f64,
    /// Changes of tunables that were accepted since the start.
    pub config_generation: u64,
    /// `CLOCK_MONOTONIC` now, in ms: what other times are to be compared with.
    pub now_ms: u64,
    /// `default` or `precision`.
    pub mode: String,
    /// Nothing is moved.
    pub dry_run: bool,
    /// Every tunable by name.
    pub settings: BTreeMap<String, SettingReport>,
    /// Nodes that pages are promoted from.
    pub lower_tier: Vec<LowerNode>,
    /// Nodes that pages are promoted to.
    pub top_tier: Vec<TopNode>,
    /// How room is made in the top tier.
    pub demoter: DemoterReport,
    /// What became of whose pages, by cgroup, and their memory; the sums are those of the nodes.
    pub cgroups: Vec<OwnerRow>,
    /// What became of them by process.
    pub processes: Vec<OwnerMoves>,
    /// The hotness sources, running or not.
    pub sources: Vec<SourceReport>,
    /// How much the kernel's scanner marks for hint faults; `null` where that is not for pghot to
    /// say.
    pub marking: Option<MarkingReport>,
    /// The access profiles that the daemon records; `null` if it records none.
    pub recording: Option<RecordingReport>,
    /// From ready to moved.
    pub latency: LatencyReport,
    /// CPU time of the daemon, in seconds.
    pub cpu_s: f64,
    /// The part of it in calls that move pages.
    pub moving_cpu_s: f64,
    /// Memory of the hotness records.
    pub records_bytes: u64,
    /// Memory of the section marks.
    pub section_marks_bytes: u64,
    /// Growth of the kernel's counters since the start; `null` for those that it lacks.
    pub vmstat_growth: BTreeMap<String, Option<u64>>,
    /// The config file, whether it exists or not.
    pub config_file: String,
    /// What came of reading it again for the last time; `null` if it never was.
    pub reload: Option<ReloadReport>,
    /// What the daemon told and nobody took.
    pub lost: Lost,
    /// What an operator should know, in sentences.
    pub warnings: Vec<String>,
}

/// The access profiles that the daemon records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecordingReport {
    /// The newest one; those before it have a number behind the name.
    pub file: String,
    /// How many were kept since the start.
    pub profiles: u64,
    /// Looks of the one under way.
    pub intervals: u32,
    /// Processes that the last look was at.
    pub processes: u64,
    /// Why the last one was not recorded or kept.
    pub error: Option<String>,
}

impl RecordingReport {
    /// That, as a sentence for an operator.
    pub fn warning(&self) -> Option<String> {
        let why = self.error.as_ref()?;
        Some(format!("record_file {}: {why}", self.file))
    }
}

/// What did not reach its reader, since the start: no reader is waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lost {
    /// Lines of the log.
    pub log_lines: u64,
    /// Spans of traces.
    pub spans: u64,
}

impl Lost {
    /// Warnings of what was lost.
    pub fn sentences(&self) -> impl Iterator<Item = String> {
        let lines = (
            self.log_lines,
            "lines of the log were lost: its reader is too slow",
        );
        let spans = (
            self.spans,
            "spans were lost: the collector of traces does not take them",
        );
        let lost = [lines, spans].into_iter().filter(|(count, _)| *count > 0);
        lost.map(|(count, what)| format!("{count} {what}"))
    }
}

/// What came of reading the config file again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReloadReport {
    /// How often it was read again since the start, this time included.
    pub count: u64,
    /// Of these, how often it could not be used.
    pub refused: u64,
    /// When, `CLOCK_MONOTONIC` ms.
    pub at_ms: u64,
    /// Why nothing has changed, if the file cannot be used.
    pub error: Option<String>,
    /// The tunables that have another value now.
    pub changed: Vec<Change>,
    /// What the file says and does not count, in sentences: a flag or `pghot set` says otherwise.
    pub overridden: Vec<String>,
    /// Options that are fixed while the daemon runs: their value, and what the file says.
    pub needs_restart: Vec<Change>,
}

impl ReloadReport {
    /// What an operator should know of it, in sentences.
    pub fn warnings(&self) -> Vec<String> {
        let refused = self.error.iter().map(|error| {
            format!("the config file is not taken over, and nothing has changed: {error}")
        });
        let fixed = self.needs_restart.iter().map(|Change { name, old, new }| {
            format!("{name} is {new} in the config file, which needs a restart; it is {old} now")
        });
        refused.chain(fixed).collect()
    }
}

/// One option, before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Its name.
    pub name: String,
    /// The value before.
    pub old: String,
    /// The value after.
    pub new: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { name, old, new } = self;
        write!(f, "{name} {old} -> {new}")
    }
}

/// One tunable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SettingReport {
    /// Its value; null if the machine decides.
    pub value: Option<u64>,
    /// Its unit; empty for counts.
    pub unit: String,
    /// A flag of `pghot run` gave it a value, and overrides the config file at each start.
    pub has_flag: bool,
}

/// A node of the lower tier.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LowerNode {
    /// The node.
    pub nid: u32,
    /// Pages that have a record.
    pub pages: u64,
    /// Sections with records.
    pub live_sections: u64,
    /// Of those, sections with ready pages.
    pub hot_sections: u64,
    /// Since the start.
    pub totals: Totals,
    /// The newest pass.
    pub last_pass: PassReport,
    /// How long passes took.
    pub pass_durations: Durations,
    /// How long batches took.
    pub batch_durations: Durations,
    /// Why pages stay where they are, in sentences.
    pub why: Vec<String>,
}

/// A node of the top tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TopNode {
    /// The node.
    pub nid: u32,
    /// Base pages that it takes and still stays above its high watermark.
    pub room_pages: u64,
    /// It has so much free memory that the kernel promotes to it by itself, at the hint fault.
    pub free_space_shortcut: bool,
}

/// A hotness source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceReport {
    /// Its name.
    pub name: String,
    /// Whether it runs.
    pub state: SourceState,
    /// Why it does not, or why its counters are missing.
    pub why: Option<String>,
    /// Its reports since it started, if it runs.
    pub stats: Option<SourceStats>,
    /// What it cost since it started, if it runs.
    pub cost: Option<SourceCost>,
    /// What came of its runs that have ended since the daemon started.
    pub past: PastRuns,
    /// More counters of its own.
    pub details: BTreeMap<String, u64>,
}

/// What a source did before it was stopped, once or several times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PastRuns {
    /// Its reports.
    pub stats: SourceStats,
    /// What it cost.
    pub cost: SourceCost,
}

/// Whether a source runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SourceState {
    /// It is loaded, but another source does its work for now, or it would not pay.
    StandingBy,
    /// It does.
    Running,
    /// It is not in `enabled_sources`.
    Disabled,
    /// It is enabled and cannot run.
    Unavailable,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_survives_the_way() {
        let status = Status {
            version: "x".into(),
            ..Status::default()
        };
        let line = serde_json::to_string(&status).unwrap();
        assert_eq!(serde_json::from_str::<Status>(&line).unwrap(), status);
    }
}
