//! What `pghot advise` says of a cell, beside what was measured: does the slowdown lie in its
//! interval?
//!
//! The model plays the cell as [`crate::model`] does, and what it counts is scored as what a guest
//! counts. The interval is that of `advise` ([`Came::slowdown_percent`]): the lower tier may serve
//! more or less of the accesses by the model's published factor. The slowdown is that of the
//! program, against everything in the top tier: memory, and what its own threads pay for faults and
//! moves.

use anyhow::Result;
use pghot_sim::advise::interval::model_factor;
use pghot_sim::advise::point::Came;
use pghot_sim::machine::PAGES_PER_MIB;
use pghot_sim::run::Run;
use serde::{Deserialize, Serialize};

use crate::bounds;
use crate::cell::Outcome;
use crate::guest::Growth;
use crate::model;
use crate::score::{Costs, Score};
use crate::setting::Setting;

/// A measured slowdown and a predicted one, in percent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// What was run.
    pub setting: Setting,
    /// What the top tier had room for, in MiB.
    pub top_mib: u64,
    /// Memory of the workload, in MiB.
    pub memory_mib: u64,
    /// By what the witness and the kernel counted.
    pub measured_percent: f64,
    /// By what the model counted.
    pub model_percent: f64,
    /// If the model errs to the good side.
    pub low_percent: f64,
    /// And to the bad side.
    pub high_percent: f64,
}

impl Checked {
    /// Whether the measured slowdown lies in the interval.
    pub fn is_inside(&self) -> bool {
        (self.low_percent..=self.high_percent).contains(&self.measured_percent)
    }
}

/// Each cell that can be modelled, and in which something moves. `tell` hears which one is next.
pub fn check(
    outcomes: &[Outcome],
    costs: &Costs,
    tell: &mut dyn FnMut(&Setting),
) -> Result<Vec<Checked>> {
    let mut all = Vec::new();
    let moving = outcomes.iter().filter(|it| it.setting.system != "none");
    for outcome in moving {
        let Some(run) = model::play(outcome, outcomes, tell)? else {
            continue;
        };
        let near_s = bounds::memory_s(outcome, costs, 1.0);
        let came = came(outcome, &run, near_s, costs);
        let factor = model_factor(&outcome.setting.system);
        all.push(Checked {
            setting: outcome.setting.clone(),
            top_mib: outcome.room_pages / PAGES_PER_MIB,
            memory_mib: outcome.ready["pages"].as_u64().unwrap_or(0) / PAGES_PER_MIB,
            measured_percent: 100.0 * (Score::new(outcome, costs).program_s() / near_s - 1.0),
            model_percent: came.slowdown_percent(near_s, 1.0),
            low_percent: came.slowdown_percent(near_s, 1.0 / factor),
            high_percent: came.slowdown_percent(near_s, factor),
        });
    }
    Ok(all)
}

/// What the model's run comes to, with the guest's accesses and the stated costs.
fn came(outcome: &Outcome, run: &Run, near_s: f64, costs: &Costs) -> Came {
    let counters = &run.counters;
    let near_share = counters.near_accesses as f64 / counters.accesses.max(1) as f64;
    let memory_s = bounds::memory_s(outcome, costs, near_share);
    let grown = [
        (
            "pgmigrate_success",
            counters.promoted_pages + counters.demoted_pages,
        ),
        ("pgpromote_success", counters.promoted_in_fault_pages),
        ("numa_hint_faults", counters.hint_faults),
        ("numa_pte_updates", counters.marked_pages),
    ];
    let modelled = Outcome {
        growth: Growth {
            counters: grown.map(|(name, count)| (name.to_owned(), count)).into(),
            ..Growth::default()
        },
        done: serde_json::json!({ "elapsed_s": run.elapsed_s }),
        ..outcome.clone()
    };
    let work_s = memory_s + Score::new(&modelled, costs).stolen_s;
    Came {
        work_s,
        far_time_share: (memory_s - near_s) / work_s,
        near_share,
        promoted_mib: counters.promoted_pages / PAGES_PER_MIB,
        demoted_mib: counters.demoted_pages / PAGES_PER_MIB,
        daemon_s: counters.daemon_ns * 1e-9,
        is_complete: run.is_complete,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{node, outcome, slice};

    fn of_system(system: &str) -> Outcome {
        let mut run = outcome("skewed", system);
        run.setting.accesses = 4_000_000;
        run.room_pages = 16 * PAGES_PER_MIB;
        run.ready = serde_json::json!({"pages": 24 * PAGES_PER_MIB});
        run.done = serde_json::json!({"elapsed_s": 4.0});
        // As many hits, of 5 ns each, as misses.
        let nodes = vec![node(0, 0), node(4_000_000, 2_000_000)];
        run.witness.vcpus = vec![nodes.clone()];
        run.witness.nodes = nodes;
        run.witness.cpu_nodes = vec![0];
        run.witness.slices = vec![slice(4, 0, 40)];
        run
    }

    #[test]
    fn the_slowdown_is_against_all_in_the_top_tier() {
        let costs = Costs::stated();
        let all = [of_system("none"), of_system("pghot")];
        let checked = check(&all, &costs, &mut |_| {}).unwrap();
        let [it] = &checked[..] else {
            panic!("{checked:?}")
        };
        // Of each two accesses one takes 250 ns and not 100.
        assert!(
            (it.measured_percent - 100.0 * 150.0 / 105.0).abs() < 1e-6,
            "{it:?}"
        );
        assert_eq!((it.top_mib, it.memory_mib), (16, 24));
        // The model promotes what the guest of this test does not.
        assert!(
            0.0 < it.low_percent && it.low_percent < it.model_percent,
            "{it:?}"
        );
        assert!(
            it.model_percent < it.high_percent && !it.is_inside(),
            "{it:?}"
        );
    }

    #[test]
    fn a_slowdown_at_the_edge_lies_in_the_interval() {
        let checked = |measured_percent| Checked {
            setting: of_system("pghot").setting,
            top_mib: 1,
            memory_mib: 2,
            measured_percent,
            model_percent: 10.0,
            low_percent: 8.0,
            high_percent: 13.0,
        };
        assert!(checked(8.0).is_inside() && checked(13.0).is_inside());
        assert!(!checked(7.9).is_inside() && !checked(f64::NAN).is_inside());
    }
}
