//! The numbers that a run is judged by, each in one line of a table: reports show what is listed
//! here.

use std::collections::BTreeMap;

use pghot_workloads::spread::Spread;
use serde_json::Value;

use crate::cell::Outcome;
use crate::guest::STALL_US;
use crate::score::{Costs, Score};

/// A number of a run.
pub struct Measure {
    /// Its name in files.
    pub name: &'static str,
    /// Its name in tables of the page; empty for files only.
    pub title: &'static str,
    /// What it is.
    pub doc: &'static str,
    /// Of a value; empty for shares and counts.
    pub unit: &'static str,
    /// Digits after the point.
    pub digits: usize,
    /// The number; none where it has no meaning, infinite for a moment that never came.
    of: fn(&Run<'_>) -> Option<f64>,
}

/// A run and what is derived from it once.
struct Run<'a> {
    outcome: &'a Outcome,
    score: Score,
    accuracy: Option<Accuracy>,
    best_share: f64,
    idle: Idle,
}

/// What the workload's threads spend in the kernel anyway, timer ticks above all: as a share of
/// their time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Idle(f64);

impl Idle {
    /// By the runs without balancing.
    pub fn of(outcomes: &[&Outcome]) -> Idle {
        let runs = outcomes.iter().filter(|run| run.setting.system == "none");
        let share = |run: &&Outcome| {
            Some(number(&run.done, "worker_kernel_s")? / number(&run.done, "elapsed_s")?)
        };
        let spread = Spread::of(runs.filter_map(share));
        Idle(spread.map_or(0.0, |spread| spread.median))
    }
}

fn number(value: &Value, name: &str) -> Option<f64> {
    value[name].as_f64()
}

/// Processes whose CPU time is a system's own.
const DAEMONS: [&str; 2] = ["pghot", "memtierd"];

/// Modelled time: what systems are compared by.
pub const TOTAL_S: &str = "total_s";

/// All measures, in the order of tables.
#[rustfmt::skip]
pub static MEASURES: &[Measure] = &[
    Measure { name: TOTAL_S, title: "time, s", unit: " s", digits: 4,
        of: |r| Some(r.score.total_s()),
        doc: "Modelled time: all of the following." },
    Measure { name: "memory_s", title: "memory, s", unit: " s", digits: 4,
        of: |r| Some(r.score.memory_s),
        doc: "Of it, memory accesses of the workload's threads." },
    Measure { name: "stolen_s", title: "stolen, s", unit: " s", digits: 4,
        of: |r| Some(r.score.stolen_s),
        doc: "Of it, faults, marking and moves in the workload's own threads." },
    Measure { name: "moving_s", title: "moving, s", unit: " s", digits: 4,
        of: |r| Some(r.score.moving_s),
        doc: "Of it, moves of pages by others." },
    Measure { name: "watching_s", title: "watching, s", unit: " s", digits: 4,
        of: |r| Some(r.score.watching_s),
        doc: "Of it, CPU time of the daemon and of kernel threads: the share of time that they \
              would take." },
    Measure { name: "near_share", title: "near", unit: "", digits: 3,
        of: |r| r.score.near_share,
        doc: "Share of the accesses beyond the cache that the top tier served." },
    Measure { name: "promote_s", title: "until 90 %, s", unit: " s", digits: 1,
        of: |r| time_to_promote(r),
        doc: "Seconds in the guest until the top tier first served nine tenths of what it could." },
    Measure { name: "promoted_pages", title: "promoted, pages", unit: "", digits: 0,
        of: |r| r.promoted_pages(),
        doc: "Pages that the witness found promoted, each time counted; without a witness, hot \
              pages in the top tier at the end." },
    Measure { name: "demoted_pages", title: "demoted, pages", unit: "", digits: 0,
        of: |r| r.moved(0, 1),
        doc: "Pages that the witness found demoted, each time counted." },
    Measure { name: "returned_pages", title: "ping-pong, pages", unit: "", digits: 0,
        of: |r| r.returned(),
        doc: "Of both, those that came back to where they had been." },
    Measure { name: "kernel_moves", title: "", unit: "", digits: 0,
        of: |r| Some(r.counter("pgmigrate_success")),
        doc: "Pages that the kernel moved, in whatever direction and for whomever." },
    Measure { name: "failed_moves", title: "", unit: "", digits: 0,
        of: |r| Some(r.counter("pgmigrate_fail")),
        doc: "Pages that the kernel tried to move and did not." },
    Measure { name: "precision", title: "precision", unit: "", digits: 3,
        of: |r| Some(r.accuracy?.precision),
        doc: "Of the pages in the top tier at their last access, the share that is hot." },
    Measure { name: "recall", title: "recall", unit: "", digits: 3,
        of: |r| Some(r.accuracy?.recall),
        doc: "Of the hot pages that the top tier has room for, the share that is there." },
    Measure { name: "f1", title: "F1", unit: "", digits: 3,
        of: |r| Some(r.accuracy?.f1()),
        doc: "The harmonic mean of precision and recall." },
    Measure { name: "daemon_cpu_s", title: "daemon, s", unit: " s", digits: 2,
        of: |r| r.daemon_cpu_s(),
        doc: "CPU time of the system's own process: the emulator's seconds." },
    Measure { name: "kernel_cpu_s", title: "kthreads, s", unit: " s", digits: 2,
        of: |r| Some(r.kernel_cpu_s()),
        doc: "CPU time of kernel threads that move, watch or reclaim pages: the emulator's \
              seconds." },
    Measure { name: "stall_ms", title: "stalls, ms", unit: " ms", digits: 1,
        of: |r| Some(r.counter(STALL_US) / 1e3),
        doc: "Time in which some thread waited for memory (pressure stall information)." },
    Measure { name: "guest_s", title: "guest, s", unit: " s", digits: 2,
        of: |r| r.outcome.done["elapsed_s"].as_f64(),
        doc: "Time in the guest: the emulator's, which is no machine's." },
    Measure { name: "t50_s", title: "", unit: " s", digits: 2,
        of: |r| r.moment("t50_s"),
        doc: "From the workload's first access until half of its hot pages were in the top tier." },
    Measure { name: "t90_s", title: "", unit: " s", digits: 2,
        of: |r| r.moment("t90_s"),
        doc: "The same for nine tenths." },
    Measure { name: "t100_s", title: "", unit: " s", digits: 2,
        of: |r| r.moment("t100_s"),
        doc: "The same for all." },
    Measure { name: "left_pages", title: "", unit: "", digits: 0,
        of: |r| r.said("hot_left"),
        doc: "Hot pages that were in the lower tier at the end." },
    Measure { name: "hint_faults", title: "", unit: "", digits: 0,
        of: |r| Some(r.counter("numa_hint_faults")),
        doc: "Interruptions of programs to learn what they touch." },
    Measure { name: "kernel_promoted_pages", title: "", unit: "", digits: 0,
        of: |r| Some(r.counter("pgpromote_success")),
        doc: "Pages that the kernel itself promoted, in the fault." },
    Measure { name: "worker_kernel_s", title: "", unit: " s", digits: 2,
        of: |r| r.said("worker_kernel_s"),
        doc: "Time that the workload's own threads spent in the kernel." },
    Measure { name: "app_kernel_s", title: "", unit: " s", digits: 2,
        of: |r| r.app_kernel_s(),
        doc: "The same beyond what they spend without balancing in the same time; for no \
              balancing itself, what it spends." },
    Measure { name: "app_kernel_us_per_page", title: "", unit: " µs", digits: 1,
        of: |r| r.app_kernel_us_per_page(),
        doc: "The same for one promoted page." },
    Measure { name: "errors", title: "", unit: "", digits: 0,
        of: |r| r.said("errors"),
        doc: "Pages whose contents were damaged." },
];

/// All measures of a run that have a meaning for it, by name.
pub fn of(outcome: &Outcome, costs: &Costs, idle: Idle) -> BTreeMap<&'static str, f64> {
    let run = Run {
        idle,
        outcome,
        score: Score::new(outcome, costs),
        accuracy: accuracy(outcome),
        best_share: best_share(outcome),
    };
    let measured = MEASURES.iter();
    let measured = measured.filter_map(|measure| Some((measure.name, (measure.of)(&run)?)));
    measured.collect()
}

/// The same, idle time by the other runs.
pub fn of_group(outcome: &Outcome, all: &[Outcome]) -> BTreeMap<&'static str, f64> {
    let all: Vec<&Outcome> = all.iter().collect();
    of(outcome, &Costs::stated(), Idle::of(&all))
}

/// The measure of that name.
pub fn find(name: &str) -> Option<&'static Measure> {
    MEASURES.iter().find(|measure| measure.name == name)
}

impl Measure {
    /// A value with its unit.
    pub fn show(&self, value: f64) -> String {
        self.bare(value) + self.unit
    }

    /// A value without.
    pub fn bare(&self, value: f64) -> String {
        match (value.is_finite(), self.digits) {
            (false, _) => "never".to_owned(),
            (true, 0) => with_commas(value),
            (true, digits) => format!("{value:.digits$}"),
        }
    }
}

/// A count with its thousands set apart: `65,536`.
pub fn with_commas(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    match value <= -0.5 {
        true => format!("-{text}"),
        false => text,
    }
}

/// The most that a top tier could have served: the most accessed pages in it from the first access
/// on, as many as it has room for.
pub fn best_share(outcome: &Outcome) -> f64 {
    let witness = &outcome.witness;
    let mut pages = match witness.page_accesses.is_empty() {
        false => witness.page_accesses.clone(),
        true => witness.physical_accesses.concat(),
    };
    pages.sort_unstable_by(|a, b| b.cmp(a));
    let sum = |pages: &[u32]| -> u64 { pages.iter().map(|count| u64::from(*count)).sum() };
    let room = pages.len().min(outcome.room_pages as usize);
    sum(&pages[..room]) as f64 / sum(&pages).max(1) as f64
}

impl Run<'_> {
    fn counter(&self, name: &str) -> f64 {
        self.outcome.growth.counter(name) as f64
    }

    /// Pages that were seen to move. Only pages of the measured memory can be followed.
    fn moved(&self, from: usize, to: usize) -> Option<f64> {
        let moves = &self.outcome.witness.moves.by_nodes;
        let moved = *moves.get(from)?.get(to)?;
        self.follows_pages().then_some(moved as f64)
    }

    fn returned(&self) -> Option<f64> {
        let returned = self.outcome.witness.moves.returned;
        self.follows_pages().then_some(returned as f64)
    }

    fn follows_pages(&self) -> bool {
        !self.outcome.witness.page_nodes.is_empty()
    }

    /// Of the system's own process, if it has one.
    fn daemon_cpu_s(&self) -> Option<f64> {
        let times = &self.outcome.growth.cpu_s;
        let own = DAEMONS.iter().filter_map(|name| times.get(*name).copied());
        own.reduce(|sum, seconds| sum + seconds)
    }

    fn kernel_cpu_s(&self) -> f64 {
        self.outcome.growth.cpu_total_s() - self.daemon_cpu_s().unwrap_or(0.0)
    }

    /// What the workload said at its end.
    fn said(&self, name: &str) -> Option<f64> {
        number(&self.outcome.done, name)
    }

    /// A moment that it may never have come to.
    fn moment(&self, name: &str) -> Option<f64> {
        let said = self.outcome.done.get(name)?;
        Some(said.as_f64().unwrap_or(f64::INFINITY))
    }

    fn promoted_pages(&self) -> Option<f64> {
        self.moved(1, 0).or_else(|| self.said("hot_promoted"))
    }

    fn app_kernel_s(&self) -> Option<f64> {
        let spent_s = self.said("worker_kernel_s")?;
        match self.outcome.setting.system.as_str() {
            "none" => Some(spent_s),
            _ => Some(spent_s - self.idle.0 * self.said("elapsed_s")?),
        }
    }

    fn app_kernel_us_per_page(&self) -> Option<f64> {
        let pages = self.promoted_pages().filter(|pages| *pages > 0.0)?;
        Some(1e6 * self.app_kernel_s()? / pages)
    }
}

/// Where the hot pages were at the end.
#[derive(Clone, Copy)]
struct Accuracy {
    precision: f64,
    recall: f64,
}

impl Accuracy {
    fn f1(self) -> f64 {
        match self.precision + self.recall {
            0.0 => 0.0,
            sum => 2.0 * self.precision * self.recall / sum,
        }
    }
}

/// Of the last phase's hot pages, by where their last access went. None if the workload does not
/// say what is hot.
fn accuracy(outcome: &Outcome) -> Option<Accuracy> {
    let truth: &Value = outcome.ready["truth"].as_array()?.last()?;
    let first = truth["first_hot"].as_u64()? as usize;
    let hot = truth["hot_pages"].as_u64()? as usize;
    let nodes = &outcome.witness.page_nodes;
    let near = |node: &&Option<u8>| **node == Some(0);
    let all_near = nodes.iter().filter(near).count();
    let hot_near = nodes.iter().skip(first).take(hot).filter(near).count();
    let possible = hot.min(outcome.room_pages as usize);
    (possible > 0).then(|| Accuracy {
        recall: (hot_near as f64 / possible as f64).min(1.0),
        precision: hot_near as f64 / all_near.max(1) as f64,
    })
}

/// From the start until the end of the first slice in which the top tier served nine tenths of what
/// it could at best. Infinite if it never did.
fn time_to_promote(run: &Run<'_>) -> Option<f64> {
    const ENOUGH: f64 = 0.9;
    let witness = &run.outcome.witness;
    let last_ns = witness.slices.last()?.host_ns as f64;
    let guest_s = run.outcome.done["elapsed_s"].as_f64()?;
    let mut before = (0, 0);
    for slice in &witness.slices {
        let made: u64 = slice.nodes.iter().map(|node| node.misses).sum();
        let near = slice.nodes.first()?.misses;
        let share = (near - before.1) as f64 / (made - before.0) as f64;
        if made > before.0 && share >= ENOUGH * run.best_share {
            // The host's clock and the guest's differ by a factor if the guest's is dilated.
            return Some(slice.host_ns as f64 / last_ns * guest_s);
        }
        before = (made, near);
    }
    Some(f64::INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::outcome;

    #[test]
    fn names_are_unique_and_documented() {
        let mut names: Vec<_> = MEASURES.iter().map(|measure| measure.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), MEASURES.len());
        assert!(MEASURES.iter().all(|measure| measure.doc.ends_with('.')));
    }

    #[test]
    fn thousands_are_set_apart() {
        for (value, text) in [
            (0.0, "0"),
            (999.0, "999"),
            (1000.0, "1,000"),
            (65_536.0, "65,536"),
            (-1234.5, "-1,234"),
        ] {
            assert_eq!(with_commas(value), text);
        }
        let time = find("t50_s").unwrap();
        assert_eq!(time.show(3.754), "3.75 s");
        assert_eq!(time.bare(f64::INFINITY), "never");
    }

    #[test]
    fn a_run_is_measured() {
        let mut run = outcome("promote", "pghot");
        run.room_pages = 2;
        run.ready = serde_json::json!({"truth": [{"first_hot": 1, "hot_pages": 2}]});
        run.done = serde_json::json!({"elapsed_s": 10.0});
        run.witness.page_accesses = vec![1, 50, 49];
        run.witness.page_nodes = vec![Some(0), Some(0), Some(1)];
        run.witness.moves.by_nodes = vec![vec![0, 0], vec![2, 0]];
        let slice = |host_ns, near, far| crate::testing::slice(host_ns, near, far);
        run.witness.slices = vec![slice(1, 0, 10), slice(2, 1, 20), slice(4, 81, 20)];
        let measured = of(&run, &Costs::stated(), Idle::default());
        assert_eq!(best_share(&run), 0.99);
        assert_eq!(measured["promote_s"], 10.0, "in the third slice");
        assert_eq!((measured["recall"], measured["precision"]), (0.5, 0.5));
        assert_eq!(measured["f1"], 0.5);
        assert_eq!(
            (measured["promoted_pages"], measured["demoted_pages"]),
            (2.0, 0.0)
        );
        run.done = Value::Null;
        run.ready = Value::Null;
        let measured = of(&run, &Costs::stated(), Idle::default());
        assert!(!measured.contains_key("f1") && !measured.contains_key("promote_s"));
    }
}
