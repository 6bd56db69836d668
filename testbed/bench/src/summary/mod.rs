//! Medians and spreads of the runs of each workload under each system.

mod significance;
mod verdict;

use std::collections::BTreeMap;

use pghot_workloads::spread::{Spread, median};
use serde::Serialize;

use crate::bounds;
use crate::cell::Outcome;
use crate::measures::{self, Idle, TOTAL_S};
use crate::score::Costs;
use crate::systems;
use verdict::verdict;

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
    /// The workload.
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

/// All groups of these cells, in their order.
pub fn summarize(outcomes: &[Outcome], costs: &Costs) -> Vec<Group> {
    let group = |([kernel, workload, backing], members): ([&str; 3], Vec<&Outcome>)| {
        let lines = lines(&members, costs);
        let pays = members.iter().all(|member| member.pays);
        let oracle = members.iter().map(|member| bounds::oracle_s(member, costs));
        let oracle_s = median(oracle).unwrap_or(0.0);
        let foresight = members
            .iter()
            .filter_map(|member| bounds::foresight_s(member, costs));
        Group {
            kernel: kernel.to_owned(),
            workload: workload.to_owned(),
            backing: backing.to_owned(),
            pays,
            oracle_s,
            foresight_s: median(foresight),
            verdict: verdict(&lines, pays, oracle_s),
            lines,
        }
    };
    let key = |outcome: &'_ Outcome| {
        let of = &outcome.setting;
        [of.kernel.clone(), of.subject(), of.backing.clone()]
    };
    let mut keys: Vec<[String; 3]> = outcomes.iter().map(key).collect();
    keys = in_order(keys);
    let members = |wanted: &[String; 3]| outcomes.iter().filter(|o| key(o) == *wanted).collect();
    let groups = keys.iter().map(|wanted| {
        let names = [&wanted[0], &wanted[1], &wanted[2]].map(String::as_str);
        group((names, members(wanted)))
    });
    groups.collect()
}

/// Each once, where it was first.
fn in_order<T: PartialEq>(all: Vec<T>) -> Vec<T> {
    let mut seen = Vec::new();
    for item in all {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    seen
}

fn lines(members: &[&Outcome], costs: &Costs) -> Vec<Line> {
    let system = |member: &&Outcome| member.setting.system.clone();
    let idle = Idle::of(members);
    let line = |name: String| {
        let runs = members.iter().filter(|member| system(member) == name);
        let runs: Vec<BTreeMap<_, f64>> = runs.map(|run| measures::of(run, costs, idle)).collect();
        let spread = |measure: &str| {
            // A run in which it has no meaning is no number.
            Spread::of(runs.iter().filter_map(|run| run.get(measure).copied()))
        };
        let names = measures::MEASURES.iter().map(|measure| measure.name);
        Some(Line {
            system: name,
            runs: runs.len(),
            total_s: spread(TOTAL_S)?,
            totals_s: runs
                .iter()
                .filter_map(|run| run.get(TOTAL_S).copied())
                .collect(),
            measures: names
                .filter_map(|name| Some((name.to_owned(), spread(name)?)))
                .collect(),
        })
    };
    let names = in_order(members.iter().map(system).collect());
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
