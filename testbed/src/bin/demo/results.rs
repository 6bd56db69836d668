//! What was measured, and what is computed from it: medians, spread, `demo.json`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use pghot_testbed::{Error, Machine, Node};
use serde::{Deserialize, Serialize};

use crate::io_error;
use crate::metrics::{METRICS, Metric};
use crate::statistics::{median, spread};
use crate::systems::System;

/// Pages per node at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Seconds since the first access.
    pub t_s: f64,
    /// Pages per node.
    pub nodes: BTreeMap<u32, u64>,
}

/// All values of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// What was at work.
    pub system: System,
    /// Its round, from 1.
    pub round: u32,
    /// Hot pages in the top tier at the end.
    pub promoted_pages: u64,
    /// Hot pages still in the lower tier at the end.
    pub left_pages: u64,
    /// Time until half of the hot pages were promoted; null for never.
    pub t50_s: Option<f64>,
    /// The same for 90 %.
    pub t90_s: Option<f64>,
    /// The same for all.
    pub t100_s: Option<f64>,
    /// NUMA hint faults in the guest.
    pub hint_faults: u64,
    /// Pages that the kernel itself promoted, at the fault.
    pub kernel_promoted_pages: u64,
    /// Time the workload's own threads spent in the kernel.
    pub worker_kernel_s: f64,
    /// The same beyond what they spend without balancing in the same time; see [`Report::new`].
    pub app_kernel_s: f64,
    /// CPU time of the daemon while the workload ran.
    pub daemon_cpu_s: Option<f64>,
    /// Pages whose contents were damaged.
    pub errors: u64,
    /// Accesses by the workload.
    pub accesses: u64,
    /// Length of the access phase.
    pub elapsed_s: f64,
    /// Pages per node over time.
    pub series: Vec<Point>,
    /// The daemon's counters at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<serde_json::Value>,
}

/// The runs of one system and what they come to.
#[derive(Debug, Serialize, Deserialize)]
pub struct SystemResult {
    /// Median per metric; null if most runs never got there.
    #[serde(flatten)]
    pub medians: BTreeMap<String, Option<f64>>,
    /// Smallest and largest value per metric; null for never.
    pub spread: BTreeMap<String, (Option<f64>, Option<f64>)>,
    /// The single values.
    pub runs: Vec<Run>,
}

/// The whole of `demo.json`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    /// Release of the guest's kernel.
    pub kernel: String,
    /// Name of the machine file.
    pub machine: String,
    /// The machine's nodes, in words.
    pub nodes: Vec<String>,
    /// Nodes of the top tier.
    pub fast_nodes: Vec<u32>,
    /// Measured rounds.
    pub rounds: u32,
    /// Pages of the workload.
    pub pages: u64,
    /// By name.
    pub systems: BTreeMap<String, SystemResult>,
}

impl Report {
    /// Puts the runs together. What the workload's threads spend in the kernel anyway (timer ticks
    /// above all) is taken off `app_kernel_s` of every system but `none`, which shows just that.
    pub fn new(
        kernel: String,
        machine: &Machine,
        rounds: u32,
        pages: u64,
        mut runs: Vec<Run>,
    ) -> Self {
        let rates = runs.iter().filter(|run| run.system == System::None);
        let rates = rates
            .map(|run| Some(run.worker_kernel_s / run.elapsed_s))
            .collect();
        let idle_rate = median(rates).unwrap_or(0.0);
        for run in runs.iter_mut().filter(|run| run.system != System::None) {
            run.app_kernel_s = run.worker_kernel_s - idle_rate * run.elapsed_s;
        }

        let mut systems = BTreeMap::new();
        for system in System::ALL {
            let of_system: Vec<Run> = runs
                .iter()
                .filter(|run| run.system == system)
                .cloned()
                .collect();
            if !of_system.is_empty() {
                systems.insert(system.name().to_owned(), SystemResult::new(of_system));
            }
        }
        let tiers = machine.tiers();
        let fast_nodes = tiers.first().into_iter().flatten();
        Self {
            kernel,
            machine: machine.name.clone(),
            nodes: machine.nodes.iter().enumerate().map(in_words).collect(),
            fast_nodes: fast_nodes.map(|&id| id as u32).collect(),
            rounds,
            pages,
            systems,
        }
    }

    /// Reads an earlier `demo.json`.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(io_error(path))?;
        serde_json::from_str(&text).map_err(|error| Error::Config {
            path: path.to_owned(),
            problem: error.to_string(),
        })
    }

    /// The text of `demo.json`.
    pub fn to_json(&self) -> Result<String, Error> {
        serde_json::to_string(self).map_err(|error| Error::Unexpected {
            what: "report".to_owned(),
            found: error.to_string(),
        })
    }

    /// The systems that were run, in the order of the table.
    pub fn in_order(&self) -> impl Iterator<Item = (System, &SystemResult)> {
        let found = |system: System| Some((system, self.systems.get(system.name())?));
        System::ALL.into_iter().filter_map(found)
    }

    /// The result of one system, if it was run.
    pub fn system(&self, system: System) -> Option<&SystemResult> {
        self.systems.get(system.name())
    }
}

impl SystemResult {
    fn new(runs: Vec<Run>) -> Self {
        let values = |metric: &Metric| runs.iter().map(metric.value).collect::<Vec<_>>();
        let name = |metric: &Metric| metric.name.to_owned();
        Self {
            medians: METRICS
                .iter()
                .map(|m| (name(m), median(values(m))))
                .collect(),
            spread: METRICS
                .iter()
                .map(|m| (name(m), spread(values(m))))
                .collect(),
            runs,
        }
    }

    /// A metric's median; `None` for "never" and for "does not apply".
    pub fn median(&self, metric: &str) -> Option<f64> {
        self.medians.get(metric).copied().flatten()
    }

    /// The run in the middle, to stand for all in the plot: by the time to promote all, and among
    /// those that never did by the pages they left.
    pub fn median_run(&self) -> Option<&Run> {
        let mut runs: Vec<&Run> = self.runs.iter().collect();
        let time_s = |run: &Run| run.t100_s.unwrap_or(f64::INFINITY);
        runs.sort_by(|a, b| {
            let by_time = time_s(a).total_cmp(&time_s(b));
            by_time.then(a.left_pages.cmp(&b.left_pages))
        });
        runs.get(runs.len().saturating_sub(1) / 2).copied()
    }
}

/// "node 2: 1024 MiB, no CPU".
fn in_words((id, node): (usize, &Node)) -> String {
    let cpus = match node.cpus {
        0 => "no CPU".to_owned(),
        1 => "1 CPU".to_owned(),
        cpus => format!("{cpus} CPUs"),
    };
    format!("node {id}: {} MiB, {cpus}", node.memory_mib)
}

/// One run of each system: pghot is done after 4 s, the stock kernel not after 8.
#[cfg(test)]
pub fn example_report() -> Report {
    let machine = Machine::load("tiered3").expect("the machine file is part of the source");
    let run = |system, t100_s: Option<f64>, elapsed_s| Run {
        system,
        round: 1,
        promoted_pages: if t100_s.is_some() { 1000 } else { 0 },
        left_pages: if t100_s.is_some() { 0 } else { 1000 },
        t50_s: t100_s,
        t90_s: t100_s,
        t100_s,
        hint_faults: 1000,
        kernel_promoted_pages: 0,
        worker_kernel_s: elapsed_s,
        app_kernel_s: elapsed_s,
        daemon_cpu_s: None,
        errors: 0,
        accesses: 1,
        elapsed_s,
        series: vec![Point {
            t_s: 0.0,
            nodes: BTreeMap::from([(2, 1000)]),
        }],
        status: None,
    };
    let mut idle = run(System::None, None, 3.0);
    idle.worker_kernel_s = 0.3;
    idle.app_kernel_s = 0.3;
    let runs = vec![
        idle,
        run(System::Numab2, None, 8.0),
        run(System::Pghot, Some(4.0), 4.0),
    ];
    Report::new("6.12".to_owned(), &machine, 1, 1000, runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_kernel_time_is_taken_off_all_but_the_idle_system() {
        let report = example_report();
        let app_kernel_s = |system| {
            report
                .system(system)
                .unwrap()
                .median("app_kernel_s")
                .unwrap()
        };
        // One tenth of the time, as without balancing.
        assert!((app_kernel_s(System::Numab2) - 7.2).abs() < 1e-9);
        assert!((app_kernel_s(System::Pghot) - 3.6).abs() < 1e-9);
        assert!((app_kernel_s(System::None) - 0.3).abs() < 1e-9);
    }

    #[test]
    fn the_file_has_medians_by_system_and_can_be_read_again() {
        let text = example_report().to_json().unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["systems"]["pghot"]["t100_s"], 4.0);
        assert!(value["systems"]["numab2"]["t100_s"].is_null());
        assert_eq!(value["systems"]["none"]["left_pages"], 1000.0);
        assert_eq!(
            value["systems"]["pghot"]["runs"][0]["series"][0]["nodes"]["2"],
            1000
        );
        let again: Report = serde_json::from_str(&text).unwrap();
        assert_eq!(again.to_json().unwrap(), text);
    }

    #[test]
    fn the_median_run_of_those_that_never_finished_is_the_middle_one() {
        let example = example_report();
        let unfinished = &example.system(System::Numab2).unwrap().runs[0];
        let runs = [(1, 900), (2, 100), (3, 500)].map(|(round, left_pages)| Run {
            round,
            left_pages,
            ..unfinished.clone()
        });
        let result = SystemResult::new(runs.to_vec());
        assert_eq!(result.median_run().unwrap().round, 3);
    }
}
