//! What `pghot advise` says of a cell, beside what was measured: does the slowdown lie in its
//! interval?
//!
//! The model plays the cell as [`crate::model`] does, what it counts is scored as what a guest
//! counts, and as in `advise` the lower tier may serve more or less of the accesses by the model's
//! published factor. The slowdown is that of the program, against everything in the top tier:
//! memory, and what its own threads pay for faults and moves.

use anyhow::Result;
use pghot_sim::advise::interval::model_factor;
use pghot_sim::machine::PAGES_PER_MIB;
use pghot_sim::run::Simulation;
use pghot_witness::counts::NodeCounts;
use pghot_witness::report::Report;
use serde::{Deserialize, Serialize};

use crate::cell::Outcome;
use crate::guest::Growth;
use crate::model::{self, HELD_OUT, Seen};
use crate::score::{Costs, Score};
use crate::setting::Setting;

/// A measured slowdown and a foretold one, in percent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// What was run.
    pub setting: Setting,
    /// Whether nobody looked at the workload while the model was mended.
    pub is_held_out: bool,
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
    /// Whether what was foretold came to pass.
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
    for outcome in outcomes {
        let setting = &outcome.setting;
        let scenario = model::scenario(outcome, outcomes)?;
        let (Some(scenario), true) = (scenario, setting.system != "none") else {
            continue;
        };
        tell(setting);
        let run = Simulation::new(&scenario, &setting.system, &[])?.finish(&mut |_, _| {});
        let counters = &run.counters;
        let far = counters.accesses.saturating_sub(counters.near_accesses);
        let far_share = far as f64 / counters.accesses.max(1) as f64;
        let factor = model_factor(&setting.system);
        let seen = Seen::in_model(&run);
        let at =
            |factor: f64| slowdown_percent(&as_modelled(outcome, &seen, far_share * factor), costs);
        all.push(Checked {
            setting: setting.clone(),
            is_held_out: HELD_OUT.contains(&setting.workload.as_str()),
            top_mib: outcome.room_pages / PAGES_PER_MIB,
            memory_mib: outcome.ready["pages"].as_u64().unwrap_or(0) / PAGES_PER_MIB,
            measured_percent: slowdown_percent(outcome, costs),
            model_percent: at(1.0),
            low_percent: at(1.0 / factor),
            high_percent: at(factor),
        });
    }
    Ok(all)
}

/// Of the program's own threads.
fn slowdown_percent(run: &Outcome, costs: &Costs) -> f64 {
    let score = Score::new(run, costs);
    let nothing = Seen::default();
    let near_s = Score::new(&as_modelled(run, &nothing, 0.0), costs).memory_s;
    100.0 * ((score.memory_s + score.stolen_s) / near_s - 1.0)
}

/// The same accesses, of which the lower tier served this share of those beyond the cache, and the
/// model's faults and moves.
fn as_modelled(run: &Outcome, seen: &Seen, far_share: f64) -> Outcome {
    let nodes = &run.witness.nodes;
    let accesses: u64 = nodes.iter().map(NodeCounts::accesses).sum();
    let misses: u64 = nodes.iter().map(|node| node.misses).sum();
    let far = (misses as f64 * far_share.min(1.0)) as u64;
    let node = |loads, misses| NodeCounts {
        loads,
        stores: 0,
        misses,
    };
    let nodes = vec![node(accesses - far, misses - far), node(far, far)];
    let moved_in_faults = match run.setting.system.as_str() {
        "numab2" => seen.up_pages,
        _ => 0,
    };
    let counters = [
        ("pgmigrate_success", seen.up_pages + seen.down_pages),
        ("pgpromote_success", moved_in_faults),
        ("numa_hint_faults", seen.hint_faults),
        // At least; the model does not count what was marked and never touched.
        ("numa_pte_updates", seen.hint_faults),
    ];
    Outcome {
        witness: Report {
            vcpus: vec![nodes.clone()],
            nodes,
            cpu_nodes: vec![0],
            ..Report::default()
        },
        growth: Growth {
            counters: counters
                .map(|(name, count)| (name.to_owned(), count))
                .into(),
            ..Growth::default()
        },
        done: serde_json::json!({ "elapsed_s": seen.elapsed_s }),
        status: None,
        ..run.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{node, outcome};

    fn half_far() -> Outcome {
        let mut run = outcome("skewed", "pghot");
        let nodes = vec![node(60, 50), node(50, 50)];
        run.witness.vcpus = vec![nodes.clone()];
        run.witness.nodes = nodes;
        run.witness.cpu_nodes = vec![0];
        run
    }

    #[test]
    fn the_slowdown_is_against_all_in_the_top_tier() {
        let costs = Costs::stated();
        // 10 hits of 5 ns and 100 misses, half of them of 250 ns and not of 100.
        let expected = 100.0 * 50.0 * 150.0 / (10.0 * 5.0 + 100.0 * 100.0);
        let run = half_far();
        assert!((slowdown_percent(&run, &costs) - expected).abs() < 1e-9);
        let alike = as_modelled(&run, &Seen::default(), 0.5);
        assert!((slowdown_percent(&alike, &costs) - expected).abs() < 1e-9);
        // A hint fault is a microsecond more.
        let faults = Seen {
            up_pages: 1,
            hint_faults: 1,
            elapsed_s: 1.0,
            ..Seen::default()
        };
        let more = slowdown_percent(&as_modelled(&run, &faults, 0.5), &costs) - expected;
        assert!((more - 100.0 * 1000.0 / 10_050.0).abs() < 0.1, "{more}");
        assert!(slowdown_percent(&as_modelled(&run, &Seen::default(), 7.0), &costs) < 150.0);
    }

    #[test]
    fn what_was_foretold_is_an_interval() {
        let checked = |measured_percent| Checked {
            setting: half_far().setting,
            is_held_out: false,
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
