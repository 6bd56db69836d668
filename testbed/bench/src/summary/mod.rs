//! Medians and spreads of the runs of each workload under each system.

mod run;
mod significance;
mod verdict;

use std::collections::BTreeMap;

use pghot_workloads::spread::{Spread, median};
use serde::Serialize;

use crate::cell::Outcome;
use crate::measures::{self, TOTAL_S};
use crate::score::Costs;
use crate::systems;
use verdict::verdict;

pub use run::{Run, Runs};

/// One system at one workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// The system.
    pub system: String,
    /// Runs.
    pub runs: usize,
    /// Modelled time, in seconds.
    pub total_s: Spread,
    /// The same of each run.
    pub totals_s: Vec<f64>,
    /// All measures by name; see [`measures::MEASURES`].
    pub measures: BTreeMap<String, Spread>,
}

impl Line {
    /// Whether it is a bound that no system can beat.
    pub fn is_bound(&self) -> bool {
        systems::is_bound(&self.system)
    }

    /// A measure; none if it has no meaning here.
    pub fn get(&self, name: &str) -> Option<&Spread> {
        self.measures.get(name)
    }
}

/// One workload on one kernel.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Group {
    /// The kernel's name.
    pub kernel: String,
    /// The workload, and its room if that is not the usual one.
    pub workload: String,
    /// Its kind of memory.
    pub backing: String,
    /// Whether moving pages can pay at all.
    pub pays: bool,
    /// What the best placement without any cost would take, by what the witness saw.
    pub oracle_s: f64,
    /// What it would take who knows each phase and pays for moves; none if nobody can know.
    pub foresight_s: Option<f64>,
    /// Each system.
    pub lines: Vec<Line>,
    /// Who wins, in a sentence.
    pub verdict: String,
}

impl Group {
    /// Of these runs.
    pub fn new(of: &Runs) -> Group {
        let lines = lines(&of.runs);
        let oracle_s = median(of.runs.iter().map(|run| run.oracle_s)).unwrap_or(0.0);
        Group {
            kernel: of.kernel.clone(),
            workload: of.workload.clone(),
            backing: of.backing.clone(),
            pays: of.pays,
            oracle_s,
            foresight_s: median(of.runs.iter().filter_map(|run| run.foresight_s)),
            verdict: verdict(&lines, of.pays, oracle_s),
            lines,
        }
    }

    /// What a system did.
    pub fn line(&self, system: &str) -> Option<&Line> {
        self.lines.iter().find(|line| line.system == system)
    }
}

/// All groups of these cells, in their order.
pub fn summarize(outcomes: &[Outcome], costs: &Costs) -> Vec<Group> {
    Runs::of_all(outcomes, costs)
        .iter()
        .map(Group::new)
        .collect()
}

/// Each once, where it was first.
pub(crate) fn in_order<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for item in all {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    seen
}

fn lines(runs: &[Run]) -> Vec<Line> {
    let line = |system: &str| {
        let runs: Vec<&Run> = runs.iter().filter(|run| run.system == system).collect();
        let values = |measure: &str| -> Vec<f64> {
            // A run in which it has no meaning is no number.
            runs.iter().filter_map(|run| run.get(measure)).collect()
        };
        let names = measures::MEASURES.iter().map(|measure| measure.name);
        let totals_s = values(TOTAL_S);
        Some(Line {
            system: system.to_owned(),
            runs: runs.len(),
            total_s: Spread::of(totals_s.iter().copied())?,
            totals_s,
            measures: names
                .filter_map(|name| Some((name.to_owned(), Spread::of(values(name))?)))
                .collect(),
        })
    };
    let names = in_order(runs.iter().map(|run| run.system.as_str()));
    names.into_iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::outcome;

    #[test]
    fn runs_are_put_together_by_workload_and_system() {
        let mut runs = vec![
            outcome("promote", "none"),
            outcome("promote", "pghot"),
            outcome("stream", "none"),
            outcome("promote", "none"),
        ];
        runs[3].growth.counters = [("pgmigrate_success".to_owned(), 1_000_000)].into();
        let groups = summarize(&runs, &Costs::stated());
        let names: Vec<_> = groups.iter().map(|group| group.workload.as_str()).collect();
        assert_eq!(names, ["promote", "stream"]);
        let none = &groups[0].lines[0];
        assert_eq!((none.system.as_str(), none.runs), ("none", 2));
        assert_eq!((none.total_s.min, none.total_s.max), (0.0, 1.85));
        assert!(
            none.get("promote_s").is_none(),
            "nobody said how long it took"
        );
    }
}
