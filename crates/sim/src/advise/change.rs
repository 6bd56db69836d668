//! What would change an answer: one thing at a time is made larger or smaller, and the search goes
//! on from the answer.

use schemars::JsonSchema;
use serde::Serialize;

use super::interval::{LATENCY_BAND, Verdict};
use super::runner::{Limit, Runner};
use super::subject::MISSES;
use super::{SYSTEMS, Size};
use crate::Error;

/// Runs of one change at most; what is further away than they reach is told as that far.
const RUNS: u32 = 5;

/// Settings of pghot that are tried: how often a page must be touched and how soon again, and how
/// soon after its mark one touch is enough. Others bound what it may cost, not what it finds.
const TUNABLES: [(&str, &str); 5] = [
    ("freq_threshold", "1"),
    ("freq_threshold", "3"),
    ("freq_window_ms", "1500"),
    ("freq_window_ms", "3968"),
    ("quick_fault_ms", "0"),
];

/// How many are tried.
pub const COUNT: usize = TUNABLES.len() + 4;

/// One thing that would be otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Change {
    /// What, in words.
    pub what: String,
    /// The system whose need it is.
    pub system: String,
    /// What it would need then; none if no size would suffice.
    pub top: Option<Size>,
    /// By how much that is more, in percent of the working set.
    pub by_percent: i64,
}

/// The changes, largest first: what is assumed of the machine and of the program for the system of
/// the verdict, and settings for pghot.
pub fn changes(
    runner: &Runner<'_>,
    verdict: Verdict,
    answers: &[Option<u32>],
) -> Result<Vec<Change>, Error> {
    let subject = runner.subject;
    let chosen = Limit::of(subject, verdict.system());
    let pghot = Limit::of(subject, "pghot");
    let tasks = tasks(subject.is_recorded(), &chosen, &pghot);
    let answer_of = |system: &str| {
        let place = SYSTEMS.iter().position(|name| *name == system)?;
        answers.get(place).copied().flatten()
    };
    let max = subject.points_max();
    let tried = runner.each(&tasks, |(what, limit)| -> Result<Option<Change>, Error> {
        let Some(answer) = answer_of(limit.system) else {
            return Ok(None);
        };
        let found = runner.near(limit, answer, RUNS)?;
        Ok(Some(Change {
            what: what.clone(),
            system: limit.system.to_owned(),
            top: found.map(|percent| Size {
                mib: subject.mib_of(percent),
                percent,
            }),
            by_percent: i64::from(found.unwrap_or(max)) - i64::from(answer),
        }))
    });
    let tried: Vec<Option<Change>> = tried.into_iter().collect::<Result<_, _>>()?;
    let mut changes: Vec<Change> = tried.into_iter().flatten().collect();
    // In the order above where they are equal.
    changes.sort_by_key(|change| std::cmp::Reverse(change.by_percent.abs()));
    Ok(changes)
}

/// What is tried, in words: first what is assumed, then settings.
fn tasks(is_recorded: bool, chosen: &Limit, pghot: &Limit) -> Vec<(String, Limit)> {
    let misses = |factor: f64| match (is_recorded, factor < 1.0) {
        (true, true) => "half as many misses a second (--misses)",
        (true, false) => "twice as many misses a second (--misses)",
        (false, true) => "twice the time between two misses (machine.costs.compute_ns)",
        (false, false) => "half the time between two misses (machine.costs.compute_ns)",
    };
    let mut tasks: Vec<(String, Limit)> = Vec::new();
    for latency in [1.0 / LATENCY_BAND, LATENCY_BAND] {
        let what = format!("a lower tier that is {latency:.2} times as far");
        tasks.push((
            what,
            Limit {
                latency,
                ..chosen.clone()
            },
        ));
    }
    for factor in [MISSES[0], MISSES[2]] {
        let more = Limit {
            misses: factor,
            ..chosen.clone()
        };
        tasks.push((misses(factor).to_owned(), more));
    }
    for (name, value) in TUNABLES {
        let settings = vec![(name.to_owned(), value.to_owned())];
        tasks.push((
            format!("{name} = {value}"),
            Limit {
                settings,
                ..pghot.clone()
            },
        ));
    }
    tasks
}
