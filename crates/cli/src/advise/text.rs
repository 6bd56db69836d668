//! Advice for a terminal.

use std::fmt::Write;

use pghot_sim::advise::{Advice, Need, Size};

use super::Answers;
use crate::units::bytes;

/// Changes that are told; those that change nothing are not.
const CHANGES_MAX: usize = 5;

/// All answers, and their sum if there are several.
pub fn text(answers: &Answers) -> String {
    let mut text: Vec<String> = answers.answers.iter().map(one).collect();
    if answers.answers.len() > 1 {
        text.push(match &answers.together {
            Some(all) => format!(
                "together: {} of top tier, {} to {}, if each has its own\n",
                gib(all.top_mib),
                gib(all.low_mib),
                gib(all.high_mib)
            ),
            None => "together: no sum, for one of them has no answer\n".to_owned(),
        });
    }
    text.join("\n")
}

/// So much memory.
pub fn gib(mib: u64) -> String {
    bytes(mib << 20)
}

/// The answer in one sentence.
pub fn answer(advice: &Advice) -> String {
    let accepted = advice.slowdown_percent;
    match (advice.top, advice.low, advice.high) {
        (Some(top), Some(low), Some(high)) => format!(
            "{} of top tier ({} to {}), {} % of the working set of {} ({} to {} %), for a slowdown \
             of {accepted} %",
            gib(top.mib),
            gib(low.mib),
            gib(high.mib),
            top.percent,
            gib(advice.working_set_mib),
            low.percent,
            high.percent
        ),
        _ => format!("no size of the top tier keeps the slowdown within {accepted} %"),
    }
}

fn one(advice: &Advice) -> String {
    let mut text = format!(
        "{}: {}\n{}\n\n  {:<8} {:>10} {:>6} {:>24} {:>8} {:>13} {:>12}\n",
        advice.name,
        answer(advice),
        advice.verdict.sentence(),
        "",
        "top tier",
        "",
        "interval",
        "near",
        "promoted MiB",
        "demoted MiB"
    );
    for need in &advice.needs {
        text += &row(need);
    }
    let mut changes = advice
        .changes
        .iter()
        .filter(|change| change.by_percent != 0);
    let told: Vec<_> = changes.by_ref().take(CHANGES_MAX).collect();
    if !told.is_empty() {
        text += "\nWhat would change it most, of what was tried one at a time:\n";
    }
    for change in told {
        let _ = writeln!(
            text,
            "  {:>+4} % of the working set: {}{}",
            change.by_percent,
            change.what,
            of_system(&change.system)
        );
    }
    if !advice.remarks.is_empty() {
        text += "\n";
    }
    for remark in &advice.remarks {
        let _ = writeln!(text, "{remark}");
    }
    text
}

/// Whose change it is.
pub fn of_system(system: &str) -> String {
    format!(", of {}", system_name(system))
}

/// A system by what an operator sets.
pub fn system_name(system: &str) -> &str {
    match system {
        "none" => "no balancing",
        "numab2" => "numa_balancing=2",
        other => other,
    }
}

fn row(need: &Need) -> String {
    let name = &need.system;
    let (Some(top), Some(low), Some(high)) = (need.top, need.low, need.high) else {
        return format!("  {name:<8} no size suffices\n");
    };
    let at = need.curve.iter().find(|point| point.size == top);
    let came = at.map_or_else(String::new, |point| {
        let came = &point.came;
        format!(
            "{:>8.3} {:>13} {:>12}",
            came.near_share, came.promoted_mib, came.demoted_mib
        )
    });
    let interval = |Size { mib, .. }: Size| gib(mib);
    format!(
        "  {name:<8} {:>10} {:>4} % {:>24} {came}\n",
        gib(top.mib),
        top.percent,
        format!("{} to {}", interval(low), interval(high))
    )
}
