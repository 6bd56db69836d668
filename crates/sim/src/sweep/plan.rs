//! What a sweep runs: its points, in an order that depends on nothing but the plan.

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::systems::{self, Setting};

/// The most runs of one sweep.
pub const RUNS_MAX: usize = 100_000;

/// What is varied. Every combination is run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The systems.
    pub systems: Vec<String>,
    /// Values of a system's settings: `(system, name, values)`.
    pub settings: Vec<(String, String, Vec<String>)>,
    /// The top tier's size, in percent of the scenario's; what it loses the lower tier gains.
    pub top_percents: Vec<u32>,
    /// Runs of each.
    pub seeds: u64,
}

/// A run's place in the sweep.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Point {
    pub system: String,
    pub settings: Vec<Setting>,
    pub top_percent: u32,
    pub seed: u64,
}

impl Point {
    /// Its settings as `name=value`.
    pub(super) fn settings_text(&self) -> String {
        let settings = self.settings.iter();
        let settings: Vec<String> = settings
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        settings.join(" ")
    }
}

impl Plan {
    /// All points; seeds go on from the first.
    pub(super) fn points(&self, first_seed: u64) -> Result<Vec<Point>, Error> {
        self.check_size()?;
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
                            seed: first_seed.wrapping_add(seed),
                        });
                    }
                }
            }
        }
        Ok(points)
    }

    /// Before there is a point: a plan may ask for more than memory holds.
    fn check_size(&self) -> Result<(), Error> {
        let of_each = self.seeds.saturating_mul(self.top_percents.len() as u64);
        let of_system = |system: &String| {
            let own = self.settings.iter().filter(|(of, _, _)| of == system);
            own.fold(of_each, |all, (_, _, values)| {
                all.saturating_mul(values.len() as u64)
            })
        };
        let runs = self.systems.iter().map(of_system);
        match runs.fold(0, u64::saturating_add) {
            0 => Err(Error::field("sweep", "there is nothing to run")),
            n if n > RUNS_MAX as u64 => Err(Error::field(
                "sweep",
                format!("{n} runs are more than {RUNS_MAX}"),
            )),
            _ => Ok(()),
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
}
