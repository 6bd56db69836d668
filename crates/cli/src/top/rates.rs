//! What happened in a second: the difference of two statuses. A counter that fell, because the
//! daemon or a source was restarted, gives no rate at all, never a negative one.

use std::collections::BTreeMap;

use pghot_daemon::status::{SourceReport, Status};
use pghot_engine::Outcome;
use pghot_engine::demoter::DemoterReport;

/// The kernel's counters of demotion, whoever asked for it.
const DEMOTIONS: [&str; 4] = [
    "pgdemote_kswapd",
    "pgdemote_direct",
    "pgdemote_khugepaged",
    "pgdemote_proactive",
];

/// Per second, between two statuses of one daemon; `None` where it cannot be told.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rates {
    /// Base pages promoted; in a dry run, those that would have been.
    pub up: Option<f64>,
    /// Base pages that the kernel promoted by itself.
    pub up_by_kernel: Option<f64>,
    /// Base pages demoted, by the kernel or for pghot.
    pub down: Option<f64>,
    /// CPU time of the daemon, as a share of one CPU.
    pub cpu: Option<f64>,
    /// Base pages by outcome.
    pub outcomes: BTreeMap<Outcome, f64>,
    /// By name of the source.
    pub sources: BTreeMap<String, SourceRates>,
}

/// What a source did per second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SourceRates {
    /// Accesses that it recorded.
    pub recorded: Option<f64>,
    /// Accesses that made a page ready.
    pub ready: Option<f64>,
    /// Its CPU time, as far as it is counted, as a share of one CPU.
    pub cpu: Option<f64>,
}

impl Rates {
    /// The rates between two statuses; all unknown if the daemon was restarted in between.
    pub fn between(before: &Status, now: &Status) -> Rates {
        let ms = now.now_ms.saturating_sub(before.now_ms);
        if ms == 0 || now.uptime_s < before.uptime_s {
            return Rates::default();
        }
        let seconds = ms as f64 / 1000.0;
        let rate = |before: u64, now: u64| Some(now.checked_sub(before)? as f64 / seconds);
        let outcome = |outcome| rate(outcome_pages(before, outcome), outcome_pages(now, outcome));
        let counter = |names: &[&str]| rate(growth(before, names)?, growth(now, names)?);
        let huge = |pages: fn(&DemoterReport) -> u64| {
            rate(pages(&before.demoter), pages(&now.demoter)).unwrap_or(0.0)
        };
        let more = |rate: Option<f64>, by_name: f64| Some(rate? + by_name);
        let outcomes = Outcome::ALL.iter();
        let cpu_s = now.cpu_s - before.cpu_s;
        Rates {
            up: more(
                outcome(if now.dry_run {
                    Outcome::WouldMove
                } else {
                    Outcome::Moved
                }),
                huge(|it| it.huge_promoted_pages),
            ),
            up_by_kernel: counter(&["pgpromote_success"]),
            down: more(counter(&DEMOTIONS), huge(|it| it.huge_demoted_pages))
                .or_else(|| rate(before.demoter.demoted_pages, now.demoter.demoted_pages)),
            cpu: (cpu_s >= 0.0).then_some(cpu_s / seconds),
            outcomes: outcomes
                .filter_map(|known| Some((*known, outcome(*known)?)))
                .collect(),
            sources: now
                .sources
                .iter()
                .map(|source| (source.name.clone(), of_source(before, source, seconds)))
                .collect(),
        }
    }
}

/// Base pages of all lower-tier nodes that ended so.
pub fn outcome_pages(status: &Status, outcome: Outcome) -> u64 {
    let nodes = status.lower_tier.iter();
    nodes.map(|node| node.totals.outcomes.get(outcome)).sum()
}

/// The sum of some of the kernel's counters; `None` if it has none of them.
fn growth(status: &Status, names: &[&str]) -> Option<u64> {
    let known = names
        .iter()
        .filter_map(|name| *status.vmstat_growth.get(*name)?);
    known.reduce(|a, b| a + b)
}

fn of_source(before: &Status, now: &SourceReport, seconds: f64) -> SourceRates {
    let before = before.sources.iter().find(|known| known.name == now.name);
    let rate = |counter: fn(&SourceReport) -> Option<u64>| {
        let grown = counter(now)?.checked_sub(counter(before?)?)?;
        Some(grown as f64 / seconds)
    };
    // A source without thread whose BPF programs are not timed has a cost that nobody counts.
    let cpu_ns = |source: &SourceReport| {
        let cost = source.cost?;
        let is_counted = cost.thread_cpu_ns > 0 || cost.bpf_runs > 0;
        is_counted.then_some(cost.thread_cpu_ns + cost.bpf_ns)
    };
    SourceRates {
        recorded: rate(|source| Some(source.stats?.recorded)),
        ready: rate(|source| Some(source.stats?.became_ready)),
        cpu: rate(cpu_ns).map(|ns_per_s| ns_per_s / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::testing::{status, status_at};

    #[test]
    fn rates_are_differences_per_second() {
        let (before, now) = (status_at(10.0), status_at(12.0));
        let rates = Rates::between(&before, &now);
        // The fake daemon does so much a second.
        assert_eq!(rates.up, Some(1200.0));
        assert_eq!(rates.down, Some(300.0));
        assert_eq!(rates.up_by_kernel, Some(0.0));
        assert_eq!(rates.outcomes[&Outcome::Busy], 2.0);
        let faults = rates.sources["hint_fault"];
        assert_eq!(faults.recorded, Some(2500.0));
        assert_eq!(faults.cpu, None, "nobody counts it");
        let scans = rates.sources["pgtscan"].cpu.unwrap();
        assert!((scans - 0.021).abs() < 1e-9, "{scans}");
        assert!((rates.cpu.unwrap() - 0.034).abs() < 1e-9);
    }

    #[test]
    fn a_restart_gives_blanks_and_never_negative_rates() {
        let rates = Rates::between(&status_at(1000.0), &status());
        assert_eq!(rates, Rates::default());
        // As long up as before, if it was looked at late.
        let mut later = status_at(30.0);
        later.now_ms += 100_000;
        later.lower_tier[0].totals = Default::default();
        later.sources[0].stats = None;
        later.sources[1].stats = Some(Default::default());
        later.sources[1].cost = Some(Default::default());
        later.vmstat_growth.clear();
        let rates = Rates::between(&status_at(20.0), &later);
        assert_eq!(
            (rates.up, rates.sources["hint_fault"].recorded),
            (None, None)
        );
        assert_eq!(rates.sources["pgtscan"], SourceRates::default());
        assert!(rates.down.is_some_and(|down| down >= 0.0));
        let all = rates.outcomes.values().chain(&rates.cpu);
        assert!(all.clone().all(|rate| *rate >= 0.0), "{rates:?}");
    }

    #[test]
    fn a_dry_run_counts_what_would_move() {
        let (mut before, mut now) = (status_at(10.0), status_at(11.0));
        (before.dry_run, now.dry_run) = (true, true);
        let moves = &mut now.lower_tier[0].totals.outcomes;
        moves.add(Outcome::WouldMove, 77);
        assert_eq!(Rates::between(&before, &now).up, Some(77.0));
    }

    #[test]
    fn the_same_status_twice_is_no_division_by_zero() {
        assert_eq!(Rates::between(&status(), &status()), Rates::default());
    }
}
