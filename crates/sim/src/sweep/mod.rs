//! Many runs of one scenario: other sizes of the top tier, other settings, other seeds, on all
//! CPUs.

pub mod parquet;
mod plan;
pub mod report;
pub mod shard;
#[cfg(test)]
mod shard_tests;

use std::num::NonZero;

use pghot_workloads::spread::median;
use serde::Serialize;

use crate::Error;
use crate::run::{Run, Simulation};
use crate::scenario::Scenario;
use plan::Point;
use shard::{Merged, Shard};

pub use plan::Plan;

/// A scenario, and what is varied of it.
#[derive(Debug, Clone)]
pub struct Sweep {
    /// The scenario that everything starts from; seeds go on from its own.
    pub scenario: Scenario,
    /// What is varied.
    pub plan: Plan,
}

/// What one run came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Outcome {
    elapsed_s: f64,
    /// How long it took as far as that compares: see [`Run::work_s`].
    work_s: f64,
    near_share: f64,
    promoted_pages: u64,
    demoted_pages: u64,
    daemon_s: f64,
    stolen_s: f64,
}

/// What one run came to, beside the run with everything in the top tier.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The system.
    pub system: String,
    /// Its settings that were varied, as `name=value`.
    pub settings: String,
    /// Size of the top tier, in percent of the scenario's.
    pub top_percent: u32,
    /// The seed.
    pub seed: u64,
    /// Simulated seconds.
    pub elapsed_s: f64,
    /// How much longer than with everything in the top tier, in percent.
    pub slowdown_percent: f64,
    /// Share of the accesses that the top tier served.
    pub near_share: f64,
    /// Base pages promoted.
    pub promoted_pages: u64,
    /// Base pages demoted.
    pub demoted_pages: u64,
    /// CPU time of the daemon, in s.
    pub daemon_s: f64,
    /// What the workload's threads lost, in s.
    pub stolen_s: f64,
}

impl Sweep {
    /// Runs all, as [`Sweep::run_shard`] runs a part.
    pub fn run(
        &self,
        jobs: Option<NonZero<usize>>,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Merged, Error> {
        Ok(self.run_shard(Shard::WHOLE, jobs, progress)?.into_whole())
    }

    /// The scenario with another size of the top tier. All memory is taken from the top tier first,
    /// as a kernel does, and what does not fit goes below.
    fn sized(&self, top_percent: u32, seed: u64) -> Result<Scenario, Error> {
        let mut scenario = Scenario {
            seed,
            ..self.scenario.clone()
        };
        let nodes = &mut scenario.machine.node;
        let mut moved_mib = 0;
        for node in nodes.iter_mut().filter(|node| node.is_top_tier()) {
            let keeps = (node.memory_mib * u64::from(top_percent) / 100).max(1);
            moved_mib += node.memory_mib - keeps.min(node.memory_mib);
            node.resize(keeps);
        }
        let lower = nodes.iter_mut().find(|node| !node.is_top_tier());
        let lower = lower.ok_or_else(|| Error::field("machine.node", "there is no lower tier"))?;
        lower.resize(lower.memory_mib + moved_mib);
        for process in &mut scenario.process {
            process.near_share = Some(1.0);
        }
        Ok(scenario)
    }

    /// The run with a top tier that has room for all.
    fn run_all_near(&self, point: &Point) -> Result<Outcome, Error> {
        let mut scenario = self.sized(100, point.seed)?;
        let wanted: u64 = scenario
            .process
            .iter()
            .map(|process| process.memory_mib)
            .sum();
        for node in scenario
            .machine
            .node
            .iter_mut()
            .filter(|node| node.is_top_tier())
        {
            // Twice as much, so that no watermark is in the way.
            node.resize(node.memory_mib.max(2 * wanted + 1024));
        }
        let run = Simulation::new(&scenario, &point.system, &[])?.finish(&mut |_, _| {});
        Ok(Outcome::of(&run))
    }

    fn run_one(&self, point: &Point) -> Result<Outcome, Error> {
        let scenario = self.sized(point.top_percent, point.seed)?;
        let simulation = Simulation::new(&scenario, &point.system, &point.settings)?;
        Ok(Outcome::of(&simulation.finish(&mut |_, _| {})))
    }
}

impl Outcome {
    fn of(run: &Run) -> Outcome {
        let counters = &run.counters;
        Outcome {
            elapsed_s: run.elapsed_s,
            work_s: run.work_s(),
            near_share: counters.near_accesses as f64 / counters.accesses.max(1) as f64,
            promoted_pages: counters.promoted_pages,
            demoted_pages: counters.demoted_pages,
            daemon_s: counters.daemon_ns * 1e-9,
            stolen_s: counters.stolen_ns * 1e-9,
        }
    }
}

/// The runs of a whole sweep, of which the first is the baseline, as rows.
fn rows(runs: Vec<shard::Run>) -> Vec<Row> {
    let mut runs = runs.into_iter();
    let best_s = runs.next().map_or(f64::NAN, |run| run.outcome.work_s);
    let row = |run: shard::Run| Row {
        system: run.system,
        settings: run.settings,
        top_percent: run.top_percent,
        seed: run.seed,
        elapsed_s: run.outcome.elapsed_s,
        slowdown_percent: (run.outcome.work_s / best_s - 1.0) * 100.0,
        near_share: run.outcome.near_share,
        promoted_pages: run.outcome.promoted_pages,
        demoted_pages: run.outcome.demoted_pages,
        daemon_s: run.outcome.daemon_s,
        stolen_s: run.outcome.stolen_s,
    };
    runs.map(row).collect()
}

/// Runs of one system with the same settings, over the size of the top tier.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Curve {
    /// The system and its settings.
    pub label: String,
    /// `(top tier in percent, median slowdown in percent, median share of the top tier)`, rising.
    pub points: Vec<(u32, f64, f64)>,
}

/// The runs as curves, in the order of the sweep.
pub fn curves(rows: &[Row]) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for row in rows {
        let label = format!("{} {}", row.system, row.settings).trim().to_owned();
        if !curves.iter().any(|curve| curve.label == label) {
            let of = |other: &&Row| other.system == row.system && other.settings == row.settings;
            let own: Vec<&Row> = rows.iter().filter(of).collect();
            let points = points_of(&own);
            curves.push(Curve { label, points });
        }
    }
    curves
}

fn points_of(rows: &[&Row]) -> Vec<(u32, f64, f64)> {
    let mut sizes: Vec<u32> = rows.iter().map(|row| row.top_percent).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let at = |size: u32| {
        let here = || rows.iter().filter(move |row| row.top_percent == size);
        // A size is one that was run, so there is something here.
        let of = |get: fn(&Row) -> f64| median(here().map(|row| get(row))).unwrap_or(f64::NAN);
        (
            size,
            of(|row| row.slowdown_percent),
            of(|row| row.near_share),
        )
    };
    sizes.into_iter().map(at).collect()
}

impl Curve {
    /// The smallest top tier, in percent, with which the slowdown stays within `limit_percent` from
    /// there on up; on a straight line between what was run. None if even the largest does not.
    pub fn smallest_top(&self, limit_percent: f64) -> Option<f64> {
        let mut smallest = None;
        let mut above: Option<(u32, f64)> = None;
        for &(size, slowdown, _) in self.points.iter().rev() {
            if slowdown > limit_percent {
                let (larger, less) = above?;
                let part = (limit_percent - less) / (slowdown - less);
                return Some(f64::from(larger) - part * f64::from(larger - size));
            }
            smallest = Some(f64::from(size));
            above = Some((size, slowdown));
        }
        smallest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    pub(super) fn sweep() -> Sweep {
        let text = "name = 'x'\nmode = 'statistical'\n[machine]\n[[machine.node]]\n\
            memory_mib = 256\ncpus = 4\nlatency_ns = [100, 300]\n[[machine.node]]\nmemory_mib = \
            512\n\
            [[process]]\nmemory_mib = 200\nthreads = 2\n[[process.phase]]\npattern = 'skewed'\n\
            hot = [0.8, 0.9]\nhot_percent = 100\naccesses = 100_000_000\n";
        Sweep {
            scenario: Scenario::parse(text, Path::new("x")).unwrap(),
            plan: Plan {
                systems: vec!["none".into(), "pghot".into()],
                settings: vec![(
                    "pghot".into(),
                    "freq_threshold".into(),
                    vec!["1".into(), "2".into()],
                )],
                top_percents: vec![25, 50, 100],
                seeds: 1,
            },
        }
    }

    #[test]
    fn less_fast_memory_is_slower_and_pghot_needs_less_of_it() {
        let rows = sweep().run(None, &|_, _| {}).unwrap().rows;
        assert_eq!(rows.len(), 9);
        let curves = curves(&rows);
        let labels: Vec<_> = curves.iter().map(|curve| curve.label.as_str()).collect();
        assert_eq!(
            labels,
            ["none", "pghot freq_threshold=1", "pghot freq_threshold=2"]
        );
        for curve in &curves {
            let slowdowns: Vec<f64> = curve
                .points
                .iter()
                .map(|(_, slowdown, _)| *slowdown)
                .collect();
            assert!(slowdowns.is_sorted_by(|a, b| a >= b), "{curve:?}");
        }
        let needs = |n: usize| curves[n].smallest_top(20.0).unwrap();
        assert!(needs(1) < needs(0), "{curves:#?}");
    }

    #[test]
    fn the_answer_is_on_the_line_between_two_runs() {
        let curve = Curve {
            label: String::new(),
            points: vec![(25, 40.0, 0.0), (50, 10.0, 0.0), (100, 0.0, 0.0)],
        };
        assert_eq!(curve.smallest_top(5.0), Some(75.0));
        assert_eq!(curve.smallest_top(25.0), Some(37.5));
        assert_eq!(curve.smallest_top(50.0), Some(25.0));
        let slow = Curve {
            label: String::new(),
            points: vec![(100, 3.0, 0.0)],
        };
        assert_eq!(slow.smallest_top(2.0), None);
    }

    #[test]
    fn a_wrong_sweep_is_named() {
        let refused = |change: &dyn Fn(&mut Plan), part: &str| {
            let mut wrong = sweep();
            change(&mut wrong.plan);
            let error = wrong.run(None, &|_, _| {}).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        refused(&|plan| plan.systems = vec!["nonsense".into()], "nonsense");
        refused(&|plan| plan.systems.clear(), "nothing");
        refused(&|plan| plan.seeds = u64::MAX, "more than 100000");
        let many = ("none".to_owned(), "x".to_owned(), vec!["1".to_owned(); 60]);
        refused(
            &|plan| plan.settings = vec![many.clone(); 12],
            "more than 100000",
        );
    }
}
