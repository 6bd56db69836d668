//! Many runs of one scenario: other sizes of the top tier, other settings, other seeds, on all
//! CPUs.

#[cfg(feature = "parquet")]
pub mod parquet;
pub mod report;

use pghot_workloads::spread::median;
use serde::Serialize;

use crate::Error;
use crate::parallel;
use crate::run::Simulation;
use crate::scenario::Scenario;
use crate::systems::{self, Setting};

/// The most runs of one sweep.
const RUNS_MAX: usize = 100_000;

/// What is varied. Every combination is run.
#[derive(Debug, Clone)]
pub struct Sweep {
    /// The scenario that everything starts from.
    pub scenario: Scenario,
    /// The systems.
    pub systems: Vec<String>,
    /// Values of a system's settings: `(system, name, values)`.
    pub settings: Vec<(String, String, Vec<String>)>,
    /// The top tier's size, in percent of the scenario's; what it loses the lower tier gains.
    pub top_percents: Vec<u32>,
    /// Runs of each, with seeds from the scenario's on.
    pub seeds: u64,
}

/// A run's place in the sweep.
#[derive(Debug, Clone, PartialEq)]
struct Point {
    system: String,
    settings: Vec<Setting>,
    top_percent: u32,
    seed: u64,
}

/// What one run came to.
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
    /// Runs all; `progress` is told how many of how many are done. In the order of the points,
    /// whichever thread was first.
    pub fn run(&self, progress: &(dyn Fn(usize, usize) + Sync)) -> Result<Vec<Row>, Error> {
        let points = self.points()?;
        let best_s = self.all_near_s()?;
        let run = |point: &Point| self.run_one(point, best_s);
        let rows = parallel::each(&points, run, &|done| progress(done, points.len()));
        rows.into_iter().collect()
    }

    fn points(&self) -> Result<Vec<Point>, Error> {
        let mut points = Vec::new();
        for system in &self.systems {
            systems::find(system)?;
            for settings in self.settings_of(system) {
                for &top_percent in &self.top_percents {
                    for seed in 0..self.seeds {
                        points.push(Point {
                            system: system.clone(),
                            settings: settings.clone(),
                            top_percent,
                            seed: self.scenario.seed.wrapping_add(seed),
                        });
                    }
                }
            }
        }
        match points.len() {
            0 => Err(Error::field("sweep", "there is nothing to run")),
            n if n > RUNS_MAX => Err(Error::field(
                "sweep",
                format!("{n} runs are more than {RUNS_MAX}"),
            )),
            _ => Ok(points),
        }
    }

    /// Every combination of the values of a system's settings.
    fn settings_of(&self, system: &str) -> Vec<Vec<Setting>> {
        let own = self.settings.iter().filter(|(of, _, _)| of == system);
        own.fold(vec![Vec::new()], |all, (_, name, values)| {
            let mut more = Vec::with_capacity(all.len() * values.len());
            for (value, settings) in values.iter().flat_map(|v| all.iter().map(move |s| (v, s))) {
                let mut settings = settings.clone();
                settings.push((name.clone(), value.clone()));
                more.push(settings);
            }
            more
        })
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
            node.memory_mib = keeps;
        }
        let lower = nodes.iter_mut().find(|node| !node.is_top_tier());
        let lower = lower.ok_or_else(|| Error::field("machine.node", "there is no lower tier"))?;
        lower.memory_mib += moved_mib;
        for process in &mut scenario.process {
            process.near_share = Some(1.0);
        }
        Ok(scenario)
    }

    /// How long it takes if the top tier has room for all.
    fn all_near_s(&self) -> Result<f64, Error> {
        let mut scenario = self.sized(100, self.scenario.seed)?;
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
            node.memory_mib = node.memory_mib.max(2 * wanted + 1024);
        }
        let run = Simulation::new(&scenario, "none", &[])?.finish(&mut |_, _| {});
        Ok(run.work_s())
    }

    fn run_one(&self, point: &Point, best_s: f64) -> Result<Row, Error> {
        let scenario = self.sized(point.top_percent, point.seed)?;
        let simulation = Simulation::new(&scenario, &point.system, &point.settings)?;
        let run = simulation.finish(&mut |_, _| {});
        let settings: Vec<String> = (point.settings.iter())
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let counters = &run.counters;
        Ok(Row {
            system: point.system.clone(),
            settings: settings.join(" "),
            top_percent: point.top_percent,
            seed: point.seed,
            elapsed_s: run.elapsed_s,
            slowdown_percent: (run.work_s() / best_s - 1.0) * 100.0,
            near_share: counters.near_accesses as f64 / counters.accesses.max(1) as f64,
            promoted_pages: counters.promoted_pages,
            demoted_pages: counters.demoted_pages,
            daemon_s: counters.daemon_ns * 1e-9,
            stolen_s: counters.stolen_ns * 1e-9,
        })
    }
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

    fn sweep() -> Sweep {
        let text = "name = 'x'\nmode = 'statistical'\n[machine]\n[[machine.node]]\n\
            memory_mib = 256\ncpus = 4\nlatency_ns = [100, 300]\n[[machine.node]]\nmemory_mib = \
            512\n\
            [[process]]\nmemory_mib = 200\nthreads = 2\n[[process.phase]]\npattern = 'skewed'\n\
            hot = [0.8, 0.9]\nhot_percent = 100\naccesses = 100_000_000\n";
        Sweep {
            scenario: Scenario::parse(text, Path::new("x")).unwrap(),
            systems: vec!["none".into(), "pghot".into()],
            settings: vec![(
                "pghot".into(),
                "freq_threshold".into(),
                vec!["1".into(), "2".into()],
            )],
            top_percents: vec![25, 50, 100],
            seeds: 1,
        }
    }

    #[test]
    fn less_fast_memory_is_slower_and_pghot_needs_less_of_it() {
        let rows = sweep().run(&|_, _| {}).unwrap();
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
        let mut wrong = sweep();
        wrong.systems = vec!["nonsense".into()];
        assert!(
            wrong
                .run(&|_, _| {})
                .unwrap_err()
                .to_string()
                .contains("nonsense")
        );
        wrong.systems.clear();
        assert!(
            wrong
                .run(&|_, _| {})
                .unwrap_err()
                .to_string()
                .contains("nothing")
        );
    }
}
