//! What `pghot status` tells: the shape of its JSON.

use std::collections::BTreeMap;

use pghot_engine::{PassReport, Tally, Totals};
use pghot_sources::SourceStats;
use serde::{Deserialize, Serialize};

use crate::latency::LatencyReport;

/// How the daemon fares.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the daemon.
    pub version: String,
    /// `uname -r`.
    pub kernel: String,
    /// Time since the start, in seconds.
    pub uptime_s: f64,
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
    /// The hotness sources, running or not.
    pub sources: Vec<SourceReport>,
    /// From ready to moved.
    pub latency: LatencyReport,
    /// CPU time of the daemon, in seconds.
    pub cpu_s: f64,
    /// Memory of the hotness records.
    pub records_bytes: u64,
    /// Memory of the section marks.
    pub section_marks_bytes: u64,
    /// Growth of the kernel's counters since the start; `null` for those that it lacks.
    pub vmstat_growth: BTreeMap<String, Option<u64>>,
    /// What an operator should know, in sentences.
    pub warnings: Vec<String>,
}

/// One tunable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingReport {
    /// Its value.
    pub value: u64,
    /// Its unit; empty for counts.
    pub unit: String,
}

/// A node of the lower tier.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    pub totals: TotalsReport,
    /// The newest pass.
    pub last_pass: LastPass,
    /// Why pages stay where they are, in sentences.
    pub why: Vec<String>,
}

/// The engine's [`Totals`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TotalsReport {
    /// Passes over the node.
    pub passes: u64,
    /// Hot sections that passes have read.
    pub hot_sections: u64,
    /// Base pages by outcome.
    pub outcomes: BTreeMap<String, u64>,
    /// Base pages that the kernel was asked to move and did not.
    pub refused: u64,
    /// Large folios among the moved.
    pub large_folios_moved: u64,
    /// Batches handed to the kernel.
    pub batches: u64,
    /// Base pages of the largest batch.
    pub batch_pages_max: u32,
    /// The longest that one batch took, in ms.
    pub batch_ms_max: u64,
    /// Records that left the window.
    pub expired: u64,
    /// Of those, pages that were ready.
    pub expired_ready: u64,
}

/// The engine's [`PassReport`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastPass {
    /// When it began, `CLOCK_MONOTONIC` ms.
    pub started_ms: u64,
    /// When it ended.
    pub ended_ms: u64,
    /// Ready pages it saw.
    pub ready: u64,
    /// Base pages that moved.
    pub moved_pages: u64,
    /// Ready pages that wait, by reason.
    pub held: BTreeMap<String, u64>,
    /// The node was no lower tier any more.
    pub node_absent: bool,
}

/// A node of the top tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopNode {
    /// The node.
    pub nid: u32,
    /// Base pages that it takes and still stays above its high watermark.
    pub room_pages: u64,
    /// It has so much free memory that the kernel promotes to it by itself, at the hint fault.
    pub free_space_shortcut: bool,
}

/// A hotness source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceReport {
    /// Its name.
    pub name: String,
    /// Whether it runs.
    pub state: SourceState,
    /// Why it does not, or why its counters are missing.
    pub why: Option<String>,
    /// Its reports since it started, if it runs.
    pub stats: Option<SourceCounts>,
}

/// Whether a source runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceState {
    /// It does.
    Running,
    /// It is not in `enabled_sources`.
    Disabled,
    /// It is enabled and cannot run.
    Unavailable,
}

/// The sources' [`SourceStats`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceCounts {
    /// Accesses that are in records.
    pub recorded: u64,
    /// Base pages of those.
    pub recorded_pages: u64,
    /// Of the accesses, those that made a page ready.
    pub became_ready: u64,
    /// Accesses lost to races.
    pub lost: u64,
    /// Accesses of pages outside the lower tier.
    pub not_tracked: u64,
    /// Accesses whose page could not be told.
    pub unreadable: u64,
}

impl From<SourceStats> for SourceCounts {
    fn from(stats: SourceStats) -> SourceCounts {
        SourceCounts {
            recorded: stats.recorded,
            recorded_pages: stats.recorded_pages,
            became_ready: stats.became_ready,
            lost: stats.lost,
            not_tracked: stats.not_tracked,
            unreadable: stats.unreadable,
        }
    }
}

impl From<&Totals> for TotalsReport {
    fn from(totals: &Totals) -> TotalsReport {
        let by_name = |tally: &Tally| {
            tally
                .iter()
                .map(|(o, n)| (o.name().to_owned(), n))
                .collect()
        };
        TotalsReport {
            passes: totals.passes,
            hot_sections: totals.hot_sections,
            outcomes: by_name(&totals.outcomes),
            refused: totals.outcomes.refusals(),
            large_folios_moved: totals.large_folios_moved,
            batches: totals.batches,
            batch_pages_max: totals.batch_pages_max,
            batch_ms_max: totals.batch_ms_max,
            expired: totals.expired,
            expired_ready: totals.expired_ready,
        }
    }
}

impl From<&PassReport> for LastPass {
    fn from(pass: &PassReport) -> LastPass {
        let held = pass.held.iter();
        LastPass {
            started_ms: pass.started_ms,
            ended_ms: pass.ended_ms,
            ready: pass.ready,
            moved_pages: pass.moved_pages,
            held: held
                .map(|(name, pages)| (name.to_string(), *pages))
                .collect(),
            node_absent: pass.node_absent,
        }
    }
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
