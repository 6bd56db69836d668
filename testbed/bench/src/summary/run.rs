//! What a run came to: all that lines, verdicts and tables are made of, so that runs that were
//! measured on different days can be put together.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use serde::{Deserialize, Deserializer, Serialize};

use crate::bounds;
use crate::cell::Outcome;
use crate::measures::{self, Idle};
use crate::score::Costs;
use crate::summary::in_order;
use crate::systems::SYSTEMS;

/// One run of a workload under a system.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The system.
    pub system: String,
    /// Of the accesses.
    pub seed: u64,
    /// How many accesses the workload makes.
    pub accesses: u64,
    /// `uname -r` of the guest.
    pub release: String,
    /// The commit that was measured.
    pub commit: String,
    /// The emulator.
    pub emulator: String,
    /// What the best placement without any cost would take, by what the witness saw, in seconds.
    pub oracle_s: f64,
    /// What it would take who knows each phase and pays for moves; none if nobody can know.
    pub foresight_s: Option<f64>,
    /// All measures that have a meaning for it, by name; see [`measures::MEASURES`].
    #[serde(deserialize_with = "with_never")]
    pub measures: BTreeMap<String, f64>,
}

impl Run {
    /// Of what came of a cell.
    pub fn new(outcome: &Outcome, costs: &Costs, idle: Idle) -> Run {
        let measures = measures::of(outcome, costs, idle).into_iter();
        Run {
            system: outcome.setting.system.clone(),
            seed: outcome.setting.seed,
            accesses: outcome.setting.accesses,
            release: outcome.release.clone(),
            commit: outcome.commit.clone(),
            emulator: outcome.emulator.clone(),
            oracle_s: bounds::oracle_s(outcome, costs),
            foresight_s: bounds::foresight_s(outcome, costs),
            measures: measures
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        }
    }

    /// A measure; none if it has no meaning here.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.measures.get(name).copied()
    }
}

/// All runs of a workload on one kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Runs {
    /// The workload, and its room if that is not the usual one.
    pub workload: String,
    /// The kernel's name.
    pub kernel: String,
    /// Its kind of memory.
    pub backing: String,
    /// Whether moving pages can pay at all.
    pub pays: bool,
    /// Of all systems.
    pub runs: Vec<Run>,
}

impl Runs {
    /// Of all cells, in their order.
    pub fn of_all(outcomes: &[Outcome], costs: &Costs) -> Vec<Runs> {
        let key = |outcome: &Outcome| {
            let of = &outcome.setting;
            (of.subject(), of.kernel.clone(), of.backing.clone())
        };
        let runs = |wanted| {
            let members = outcomes.iter().filter(|outcome| key(outcome) == wanted);
            let members: Vec<&Outcome> = members.collect();
            let idle = Idle::of(&members);
            let runs = members.iter().map(|member| Run::new(member, costs, idle));
            let (workload, kernel, backing) = wanted;
            Runs {
                workload,
                kernel,
                backing,
                pays: members.iter().all(|member| member.pays),
                runs: runs.collect(),
            }
        };
        let keys = in_order(outcomes.iter().map(key));
        keys.into_iter().map(runs).collect()
    }

    /// Whether these are other runs of the same.
    pub fn is_same(&self, other: &Runs) -> bool {
        (&self.workload, &self.kernel, &self.backing)
            == (&other.workload, &other.kernel, &other.backing)
    }

    /// Takes these in. One of the same system and seed takes the place of the earlier one. Those
    /// that stay must have made as many accesses: times are only comparable then.
    pub fn add(&mut self, newer: Runs) -> Result<()> {
        let of = |run: &Run| (run.system.clone(), run.seed);
        let new: Vec<_> = newer.runs.iter().map(of).collect();
        self.runs.retain(|run| !new.contains(&of(run)));
        self.runs.extend(newer.runs);
        if let [some, other, ..] = in_order(self.runs.iter().map(|run| run.accesses))[..] {
            bail!(
                "{} {}: of the runs on {}, some make {some} accesses and others {other}: measure \
                 with the same --guest-s, or all that are stored anew",
                self.workload,
                self.backing,
                self.kernel
            );
        }
        self.pays = newer.pays;
        let place = |run: &Run| SYSTEMS.iter().position(|system| system.name == run.system);
        self.runs.sort_by_key(|run| (place(run), run.seed));
        Ok(())
    }

    /// Of how many commits a system's runs are.
    pub fn commits(&self, system: &str) -> usize {
        let runs = self.runs.iter().filter(|run| run.system == system);
        in_order(runs.map(|run| &run.commit)).len()
    }
}

/// JSON has no infinity: a moment that never came is null.
fn with_never<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, f64>, D::Error> {
    let measures = BTreeMap::<String, Option<f64>>::deserialize(from)?;
    let or_never = |(name, value): (String, Option<f64>)| (name, value.unwrap_or(f64::INFINITY));
    Ok(measures.into_iter().map(or_never).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::outcome;

    #[test]
    fn what_is_written_is_read_again() {
        let mut run = Run::new(
            &outcome("promote", "pghot"),
            &Costs::stated(),
            Idle::default(),
        );
        run.measures.insert("promote_s".into(), f64::INFINITY);
        let json = serde_json::to_string(&run).unwrap();
        assert!(json.contains("\"promote_s\":null"), "{json}");
        assert_eq!(serde_json::from_str::<Run>(&json).unwrap(), run);
    }

    #[test]
    fn runs_of_another_day_are_added() {
        let run = |system: &str, seed: u64, commit: &str| {
            let mut outcome = outcome("promote", system);
            outcome.setting.seed = seed;
            outcome.commit = commit.into();
            outcome
        };
        let all = |outcomes: &[Outcome]| {
            let mut runs = Runs::of_all(outcomes, &Costs::stated());
            assert_eq!(runs.len(), 1, "one workload");
            runs.remove(0)
        };
        let mut runs = all(&[
            run("pghot", 1, "a"),
            run("none", 1, "a"),
            run("pghot", 2, "a"),
        ]);
        runs.add(all(&[run("pghot", 3, "b"), run("pghot", 2, "b")]))
            .unwrap();
        let has: Vec<_> = (runs.runs.iter())
            .map(|run| (run.system.as_str(), run.seed, run.commit.as_str()))
            .collect();
        let expected = [
            ("none", 1, "a"),
            ("pghot", 1, "a"),
            ("pghot", 2, "b"),
            ("pghot", 3, "b"),
        ];
        assert_eq!(has, expected);
        assert_eq!((runs.commits("pghot"), runs.commits("none")), (2, 1));
    }

    #[test]
    fn runs_of_another_length_take_the_place_of_all_or_none() {
        let all = |seeds: &[u64], accesses| {
            let outcomes = seeds.iter().map(|seed| {
                let mut outcome = outcome("promote", "none");
                (outcome.setting.seed, outcome.setting.accesses) = (*seed, accesses);
                outcome
            });
            let outcomes: Vec<_> = outcomes.collect();
            Runs::of_all(&outcomes, &Costs::stated()).remove(0)
        };
        let mut runs = all(&[1, 2], 600);
        let error = runs.clone().add(all(&[2, 3], 300)).unwrap_err();
        assert!(error.to_string().contains("--guest-s"), "{error}");
        runs.add(all(&[1, 2, 3], 300)).unwrap();
        assert!(runs.runs.iter().all(|run| run.accesses == 300));
    }
}
