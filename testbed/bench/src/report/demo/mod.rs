//! The demo: one workload under three systems. `demo.json` has every value, the terminal a table of
//! the medians, and `demo.html` tells and plots the same.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use pghot_testbed::{Machine, Node};
use serde_json::{Map, Value, json};

use super::text_table;
use crate::cell::Outcome;
use crate::measures::{self, Measure};
use crate::summary::{Group, Line};
use crate::systems::{self, System};

mod page;
pub mod stored;

/// The rows of the comparison: a measure, its name for people, and one sentence more for the page.
const ROWS: [(&str, &str, &str); 10] = [
    (
        "t50_s",
        "time to 50 % promoted",
        "from the workload's first access",
    ),
    ("t90_s", "time to 90 % promoted", ""),
    ("t100_s", "time to 100 % promoted", ""),
    (
        "promoted_pages",
        "pages promoted",
        "in the top tier when the run ended",
    ),
    ("left_pages", "pages left in the lower tier", ""),
    (
        "hint_faults",
        "hint faults",
        "interruptions of the workload to learn what it touches",
    ),
    (
        "app_kernel_s",
        "kernel time in the workload's thread",
        "beyond what it spends without balancing in the same time; for no balancing itself, what \
         it spends",
    ),
    (
        "app_kernel_us_per_page",
        "the same per promoted page",
        "what the workload pays for one page, whether or not all got there",
    ),
    (
        "daemon_cpu_s",
        "CPU time of the daemon",
        "while the workload ran",
    ),
    (
        "errors",
        "damaged pages",
        "every page carries a stamp that must survive the move",
    ),
];

/// What `demo.json` has of a run besides.
const MORE: [&str; 2] = ["kernel_promoted_pages", "worker_kernel_s"];

/// What was measured, and where.
pub struct Demo<'a> {
    machine: &'a Machine,
    outcomes: &'a [Outcome],
    group: &'a Group,
    rounds: u64,
}

/// Writes `demo.json` and `demo.html`; returns the table for the terminal.
pub fn write(
    folder: &Path,
    machine: &Machine,
    outcomes: &[Outcome],
    group: &Group,
    rounds: u64,
) -> Result<String> {
    let demo = Demo {
        machine,
        outcomes,
        group,
        rounds,
    };
    for (name, content) in [
        ("demo.json", serde_json::to_string(&demo.json())?),
        ("demo.html", demo.page()),
    ] {
        let path = folder.join(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(demo.table())
}

/// The key of a system: pghot's is the same whatever its flags.
fn key(system: &str) -> &str {
    system.split_once('-').map_or(system, |(name, _)| name)
}

/// A system as its line names it; all lines are of systems that were run.
fn system(line: &Line) -> &'static System {
    systems::find(&line.system).unwrap_or(&systems::SYSTEMS[0])
}

fn measure(name: &str) -> &'static Measure {
    measures::find(name).unwrap_or(&measures::MEASURES[0])
}

impl Demo<'_> {
    fn pages(&self) -> u64 {
        let first = self.outcomes.first();
        first.map_or(0, |run| run.ready["pages"].as_u64().unwrap_or(0))
    }

    fn kernel(&self) -> &str {
        self.outcomes.first().map_or("", |run| &run.release)
    }

    fn fast_nodes(&self) -> Vec<usize> {
        self.machine.tiers().into_iter().next().unwrap_or_default()
    }

    fn nodes(&self) -> Vec<String> {
        let nodes = self.machine.nodes.iter().enumerate();
        nodes.map(in_words).collect()
    }

    fn runs<'b>(&'b self, line: &'b Line) -> impl Iterator<Item = &'b Outcome> {
        let runs = self.outcomes.iter();
        runs.filter(|run| run.setting.system == line.system)
    }

    fn line(&self, name: &str) -> Option<&Line> {
        self.group
            .lines
            .iter()
            .find(|line| key(&line.system) == name)
    }

    /// pghot and whom it is held against.
    fn rivals(&self) -> Option<(&Line, &Line)> {
        self.line("pghot").zip(self.line("numab2"))
    }

    /// Every value, and medians and spreads by system. Null is what was never reached, or does not
    /// apply.
    fn json(&self) -> Value {
        let systems = self.group.lines.iter().map(|line| {
            let names = ROWS.iter().map(|(name, ..)| *name);
            let spread = |name| line.get(name);
            let mut all = Map::new();
            for name in names.clone() {
                all.insert(name.to_owned(), json!(spread(name).map(|s| s.median)));
            }
            let spreads = names.map(|name| {
                let ends = spread(name).map(|s| (s.min, s.max));
                let (min, max) = ends.map_or((None, None), |(min, max)| (Some(min), Some(max)));
                (name.to_owned(), json!([min, max]))
            });
            all.insert("spread".to_owned(), spreads.collect::<Map<_, _>>().into());
            let runs: Vec<Value> = self.runs(line).map(|run| self.run(run)).collect();
            all.insert("runs".to_owned(), runs.into());
            (key(&line.system).to_owned(), Value::Object(all))
        });
        json!({
            "kernel": self.kernel(),
            "machine": self.machine.name,
            "nodes": self.nodes(),
            "fast_nodes": self.fast_nodes(),
            "rounds": self.rounds,
            "pages": self.pages(),
            "systems": systems.collect::<Map<_, _>>(),
        })
    }

    fn run(&self, run: &Outcome) -> Value {
        let values = measures::of_group(run, self.outcomes);
        let mut all = Map::new();
        let names = ROWS.iter().map(|(name, ..)| *name);
        for name in names
            .chain(MORE)
            .filter(|name| !name.ends_with("_per_page"))
        {
            all.insert(name.to_owned(), json!(values.get(name)));
        }
        let series = series(run).map(|(t_s, sample)| json!({"t_s": t_s, "nodes": sample["nodes"]}));
        all.extend([
            ("system".to_owned(), key(&run.setting.system).into()),
            ("round".to_owned(), run.setting.seed.into()),
            ("accesses".to_owned(), run.done["accesses"].clone()),
            ("elapsed_s".to_owned(), run.done["elapsed_s"].clone()),
            ("series".to_owned(), series.collect::<Vec<_>>().into()),
        ]);
        all.extend(
            run.status
                .clone()
                .map(|status| ("status".to_owned(), status)),
        );
        Value::Object(all)
    }

    /// Label, then median and spread per system, then the ratio.
    fn table(&self) -> String {
        let mut head = vec![String::new()];
        for line in &self.group.lines {
            head.extend([system(line).title.to_owned(), String::new()]);
        }
        head.extend(self.rivals().map(|_| "pghot / numa_balancing=2".to_owned()));
        let mut rows = vec![head];
        for (name, label, _) in ROWS {
            let mut row = vec![label.to_owned()];
            for line in &self.group.lines {
                let spread = self.spread_text(name, line);
                row.push(self.median_text(name, line));
                row.push(match spread.is_empty() {
                    true => spread,
                    false => format!("({spread})"),
                });
            }
            row.extend(
                self.rivals()
                    .map(|(own, other)| self.ratio_text(name, own, other)),
            );
            rows.push(row);
        }
        let mut said = format!(
            "kernel {}, machine {}, {} pages all hot; median (smallest – largest) of the runs; \
             rounds: {}\n",
            self.kernel(),
            self.machine.name,
            self.pages(),
            self.rounds
        );
        for line in &self.group.lines {
            said += &format!("  {}: {}\n", system(line).title, system(line).how());
        }
        said + "\n" + &text_table(&rows)
    }

    /// The median, in words: "3.75 s", "65,536", "> 4 s" for never within 4 s.
    fn median_text(&self, name: &str, line: &Line) -> String {
        match line.get(name).map(|spread| spread.median) {
            Some(median) if median.is_finite() => measure(name).show(median),
            Some(_) => format!("> {:.0} s", self.longest_run_s(line)),
            None => "—".to_owned(),
        }
    }

    /// Smallest to largest value; empty if there is nothing to say beyond the median.
    fn spread_text(&self, name: &str, line: &Line) -> String {
        let measure = measure(name);
        match line.get(name) {
            Some(spread) if spread.min.is_finite() && spread.min != spread.max => {
                let max = match spread.max.is_finite() {
                    true => measure.bare(spread.max),
                    false => "never".to_owned(),
                };
                format!("{} – {max}", measure.bare(spread.min))
            }
            _ => String::new(),
        }
    }

    /// How one median relates to another: "0.65 ×", or "< 0.65 ×" if the other never got there;
    /// empty where that means nothing.
    fn ratio_text(&self, name: &str, line: &Line, to: &Line) -> String {
        let median = |line: &Line| line.get(name).map(|spread| spread.median);
        match (median(line), median(to)) {
            (Some(value), Some(base)) if value.is_finite() && base.is_finite() && base > 0.0 => {
                format!("{:.2} ×", value / base)
            }
            (Some(value), Some(base)) if value.is_finite() && base > 0.0 => {
                format!("< {:.2} ×", value / self.longest_run_s(to))
            }
            _ => String::new(),
        }
    }

    fn longest_run_s(&self, line: &Line) -> f64 {
        self.runs(line).map(elapsed_s).fold(0.0, f64::max)
    }
}

fn elapsed_s(run: &Outcome) -> f64 {
    run.done["elapsed_s"].as_f64().unwrap_or(0.0)
}

/// The samples of a run, by seconds since its first access.
fn series(run: &Outcome) -> impl Iterator<Item = (f64, &Value)> {
    let samples = run.samples.iter();
    samples.filter_map(|sample| Some((sample["t_s"].as_f64()?, sample)))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::score::Costs;
    use crate::summary::summarize;
    use crate::testing::outcome;

    /// One run of each system: pghot is done after 4 s, the stock kernel not after 8.
    fn runs() -> Vec<Outcome> {
        let run = |system: &str, t100_s: Option<f64>, elapsed_s: f64, kernel_s: f64| {
            let mut run = outcome("hotset", system);
            let promoted = if t100_s.is_some() { 1000 } else { 0 };
            run.release = "<6.12> & co".to_owned();
            run.ready = json!({"pages": 1000});
            run.samples = vec![json!({"t_s": 0.5, "nodes": {"2": 1000}, "hot_fast": 0})];
            run.done = json!({
                "t50_s": t100_s, "t90_s": t100_s, "t100_s": t100_s,
                "hot_promoted": promoted, "hot_left": 1000 - promoted, "errors": 0,
                "worker_kernel_s": kernel_s, "accesses": 7, "elapsed_s": elapsed_s,
            });
            run
        };
        vec![
            run("none", None, 3.0, 0.3),
            run("numab2", None, 8.0, 8.0),
            run("pghot", Some(4.0), 4.0, 4.0),
        ]
    }

    fn with_demo<T>(look: impl FnOnce(&Demo<'_>) -> T) -> T {
        let (runs, machine) = (runs(), Machine::load("tiered3").unwrap());
        let groups = summarize(&runs, &Costs::stated());
        look(&Demo {
            machine: &machine,
            outcomes: &runs,
            group: &groups[0],
            rounds: 1,
        })
    }

    #[test]
    fn the_file_has_the_keys_that_it_always_had() {
        let value = with_demo(|demo| demo.json());
        let keys =
            |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
        let all = [
            "fast_nodes",
            "kernel",
            "machine",
            "nodes",
            "pages",
            "rounds",
            "systems",
        ];
        assert_eq!(keys(&value), all);
        let systems = &value["systems"];
        assert_eq!(keys(systems), ["none", "numab2", "pghot"]);
        let pghot = &systems["pghot"];
        assert_eq!(pghot["t100_s"], 4.0);
        assert_eq!(pghot["spread"]["t100_s"], json!([4.0, 4.0]));
        assert!(systems["numab2"]["t100_s"].is_null());
        assert_eq!(systems["none"]["left_pages"], 1000.0);
        assert_eq!(pghot["runs"][0]["series"][0]["nodes"]["2"], 1000);
        let of_run = [
            "accesses",
            "app_kernel_s",
            "daemon_cpu_s",
            "elapsed_s",
            "errors",
            "hint_faults",
            "kernel_promoted_pages",
            "left_pages",
            "promoted_pages",
            "round",
            "series",
            "system",
            "t100_s",
            "t50_s",
            "t90_s",
            "worker_kernel_s",
        ];
        assert_eq!(keys(&pghot["runs"][0]), of_run);
        // One tenth of the time is spent in the kernel anyway.
        let close =
            |value: &Value, expected: f64| (value.as_f64().unwrap() - expected).abs() < 1e-9;
        assert!(close(&systems["numab2"]["app_kernel_s"], 7.2));
        assert!(close(&pghot["runs"][0]["app_kernel_s"], 3.6));
        assert!(close(&systems["none"]["app_kernel_s"], 0.3));
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere_and_markup_in_names_stays_text() {
        let html = with_demo(|demo| demo.page());
        assert_eq!(pghot_page::faults::of(&html), [""; 0]);
        assert!(html.contains("Kernel &lt;6.12&gt; &amp; co"));
    }

    #[test]
    fn times_never_reached_are_told_as_such() {
        let html = with_demo(|demo| demo.page());
        let told = "stock kernel: &gt; 8 s<span>&lt; 0.50 ×</span>";
        assert!(html.contains(told), "{html}");
        assert!(html.contains("all after 4.00 s"));
        assert!(html.contains("0 % after 8 s"));
        let table = with_demo(|demo| demo.table());
        assert!(table.contains("> 8 s"), "{table}");
    }
}
