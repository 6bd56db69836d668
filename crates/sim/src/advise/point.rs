//! One run of a subject, and what it came to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::subject::Subject;
use crate::Error;
use crate::machine::PAGES_PER_MIB;
use crate::run::Simulation;
use crate::systems::Setting;

/// What is run.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// The system.
    pub system: &'static str,
    /// Its settings.
    pub settings: Vec<Setting>,
    /// Size of the top tier; none for room for all.
    pub top_mib: Option<u64>,
    /// The seed.
    pub seed: u64,
    /// How many times as far the lower tier is as assumed.
    pub latency: f64,
    /// How many times as many misses a second there are.
    pub misses: f64,
}

impl Ask {
    /// What tells it apart from all others of a subject.
    pub fn key(&self) -> String {
        let settings = self
            .settings
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let settings: Vec<String> = settings.collect();
        format!(
            "{} {} {} {} {} {}",
            self.system,
            settings.join(","),
            self.top_mib.map_or("all".into(), |mib| mib.to_string()),
            self.seed,
            self.latency,
            self.misses
        )
    }
}

/// What a run came to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Came {
    /// How long the work took, in s.
    pub work_s: f64,
    /// Of the time that threads worked, the share spent waiting for the lower tier longer than the
    /// top tier would take.
    pub far_time_share: f64,
    /// Share of the accesses that the top tier served.
    pub near_share: f64,
    /// Promoted, in MiB.
    pub promoted_mib: u64,
    /// Demoted, in MiB.
    pub demoted_mib: u64,
    /// CPU time of the daemon, in s.
    pub daemon_s: f64,
    /// Whether the work was done within the time limit.
    pub is_complete: bool,
}

impl Came {
    /// By how much longer than `best_s` it took, in percent, if the accesses that the lower tier
    /// served were so many times as many. No number of a run that was not done.
    pub fn slowdown_percent(&self, best_s: f64, far_factor: f64) -> f64 {
        if !self.is_complete {
            return f64::NAN;
        }
        let more = 1.0 + (far_factor - 1.0) * self.far_time_share;
        (self.work_s * more / best_s - 1.0) * 100.0
    }
}

/// Runs it.
pub fn run(subject: &Subject, ask: &Ask) -> Result<Came, Error> {
    let scenario = subject.scenario(ask)?;
    let simulation = Simulation::new(&scenario, ask.system, &ask.settings)?;
    let run = simulation.finish(&mut |_, _| {});
    let counters = &run.counters;
    let (gap_ns, near_ns) = subject.latencies_ns();
    let gap_ns = (gap_ns + near_ns) * ask.latency - near_ns;
    let weight = subject.weight;
    let far = counters.accesses.saturating_sub(counters.near_accesses) * weight;
    let mib = |pages: u64| pages * weight / PAGES_PER_MIB;
    Ok(Came {
        work_s: run.work_s(),
        far_time_share: (far as f64 * gap_ns * 1e-9 / run.busy_s.max(1e-9)).clamp(0.0, 1.0),
        near_share: counters.near_accesses as f64 / counters.accesses.max(1) as f64,
        promoted_mib: mib(counters.promoted_pages),
        demoted_mib: mib(counters.demoted_pages),
        daemon_s: counters.daemon_ns * 1e-9,
        is_complete: run.is_complete,
    })
}
