//! The tables of the documents, made of the stored runs.

use serde_json::Value;

use crate::measures::with_commas;
use crate::preset::SWEPT;
use crate::summary::{Group, Line, Runs};
use crate::systems;
use crate::workloads;

/// The runs of a workload, and what comes of them.
pub(super) struct Row {
    runs: Runs,
    pub(super) group: Group,
}

/// All that are stored, those first in which pghot does worst. What is no data has none.
pub(super) fn rows(data: &Value) -> Vec<Row> {
    let runs: Vec<Runs> = serde_json::from_value(data["groups"].clone()).unwrap_or_default();
    let rows = runs.into_iter().map(|runs| Row {
        group: Group::new(&runs),
        runs,
    });
    let mut rows: Vec<Row> = rows.collect();
    rows.sort_by(|a, b| b.behind().total_cmp(&a.behind()));
    rows
}

/// A row for each workload: what is to be won or lost at all, and who wins it.
pub(super) fn short_table(data: &Value) -> String {
    let mut text = "| workload | kernel | `numa_balancing=2` | DAMON | pghot | possible |\n\
                    |---|---|---|---|---|---|\n"
        .to_owned();
    for row in rows(data) {
        let percent = |system| signed(row.against_none(system));
        text += &format!(
            "| {} | {} | {} | {} | {} | {} |\n",
            row.name(),
            row.group.kernel,
            percent("numab2"),
            percent("damon"),
            percent("pghot"),
            signed(row.possible())
        );
    }
    text
}

/// A row for each workload.
pub(super) fn table(data: &Value) -> String {
    let is_shown = |system: &str| system != "none" && !SWEPT.contains(&system);
    table_of(&rows(data), is_shown)
}

/// A row for each workload of the sweep over DAMON's settings.
pub(super) fn sweep_table(data: &Value) -> String {
    let mut rows = rows(data);
    rows.retain(|row| SWEPT.iter().any(|system| row.group.line(system).is_some()));
    table_of(&rows, |system| system.starts_with("damon"))
}

fn table_of(rows: &[Row], is_shown: impl Fn(&str) -> bool) -> String {
    let has = |system: &str| rows.iter().any(|row| row.group.line(system).is_some());
    let systems = systems::SYSTEMS.iter().map(|system| system.name);
    let systems: Vec<&str> = systems.filter(|name| is_shown(name) && has(name)).collect();
    let mut text = format!(
        "| workload | kernel | guest, s | {} | verdict |\n",
        systems.join(" | ")
    );
    text += &"|---".repeat(systems.len() + 4);
    text += "|\n";
    for row in rows {
        let cells: Vec<String> = systems.iter().map(|system| row.cell(system)).collect();
        text += &format!(
            "| {} | {} | {} | {} | {} |\n",
            row.name(),
            row.group.kernel,
            row.length(),
            cells.join(" | "),
            row.group.verdict
        );
    }
    text
}

/// In percent.
fn signed(percent: Option<f64>) -> String {
    percent.map_or("–".to_owned(), |percent| format!("{percent:+.1} %"))
}

fn median(line: &Line, measure: &str) -> Option<f64> {
    line.get(measure).map(|spread| spread.median)
}

impl Row {
    fn name(&self) -> String {
        workloads::shown(&self.group.workload, &self.group.backing)
    }

    /// Modelled time, in s.
    pub(super) fn total_s(&self, system: &str) -> Option<f64> {
        self.group.line(system).map(|line| line.total_s.median)
    }

    /// How long a run without balancing took by the guest's clock, in s.
    fn length(&self) -> String {
        let none = self.group.line("none");
        let seconds = none.and_then(|none| median(none, "guest_s"));
        seconds.map_or("–".to_owned(), |seconds| format!("{seconds:.0}"))
    }

    /// How many times longer pghot takes than the best of the others.
    fn behind(&self) -> f64 {
        let is_rival = |system: &str| !system.starts_with("pghot") && !systems::is_bound(system);
        let rivals = self
            .group
            .lines
            .iter()
            .filter(|line| is_rival(&line.system));
        let best = rivals
            .map(|line| line.total_s.median)
            .fold(f64::INFINITY, f64::min);
        self.total_s("pghot").map_or(0.0, |pghot_s| pghot_s / best)
    }

    /// How much longer it takes with foresight than doing nothing, in percent.
    fn possible(&self) -> Option<f64> {
        Some(100.0 * (self.group.foresight_s? / self.total_s("none")? - 1.0))
    }

    /// How much longer than doing nothing, in percent.
    fn against_none(&self, system: &str) -> Option<f64> {
        Some(100.0 * (self.total_s(system)? / self.total_s("none")? - 1.0))
    }

    /// What one system does: time against doing nothing, share of the accesses served near, moves.
    fn cell(&self, system: &str) -> String {
        let (Some(percent), Some(line)) = (self.against_none(system), self.group.line(system))
        else {
            return "–".into();
        };
        let near = median(line, "near_share").map_or("–".into(), |share| format!("{share:.2}"));
        let moves = median(line, "kernel_moves").map_or("–".into(), with_commas);
        // What pghot does is another thing at each commit; what others do is not.
        let commits = match (system.starts_with("pghot"), self.runs.commits(system)) {
            (false, _) | (_, 1) => String::new(),
            (true, commits) => format!(" of {commits} commits"),
        };
        let runs = match line.runs {
            1 => "1 run".to_owned(),
            runs => format!("{runs} runs"),
        };
        format!("{percent:+.1} %, {near} near, {moves} moves, {runs}{commits}")
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// Stored runs of a workload: of each system its modelled times.
    pub(in super::super) fn stored(workload: &str, of: &[(&str, &[f64])]) -> Value {
        let runs = of.iter().flat_map(|(system, times)| {
            times.iter().zip(1..).map(move |(total_s, seed)| {
                json!({
                    "system": system, "seed": seed, "release": "6.12", "emulator": "QEMU",
                    "accesses": 600, "commit": format!("{seed}"),
                    "oracle_s": 1.0, "foresight_s": 1.0,
                    "measures": {
                        "total_s": total_s, "near_share": 0.5, "kernel_moves": 1234.0,
                        "guest_s": 20.4, "promote_s": null,
                    },
                })
            })
        });
        let runs: Vec<Value> = runs.collect();
        json!({
            "workload": workload, "kernel": "6.12", "backing": "anon", "pays": true, "runs": runs,
        })
    }

    #[test]
    fn losses_stand_first() {
        let group = |name, [none, numab2, pghot]: [f64; 3]| {
            stored(
                name,
                &[
                    ("none", &[none]),
                    ("numab2", &[numab2]),
                    ("pghot", &[pghot, pghot]),
                ],
            )
        };
        let data =
            json!({"groups": [group("won", [4.0, 3.0, 2.0]), group("lost", [4.0, 2.0, 3.0])]});
        let table = table(&data);
        let rows: Vec<&str> = table.lines().collect();
        assert_eq!(
            rows[0],
            "| workload | kernel | guest, s | numab2 | pghot | verdict |"
        );
        assert_eq!(rows[1], "|---|---|---|---|---|---|");
        let lost = "| lost | 6.12 | 20 | -50.0 %, 0.50 near, 1,234 moves, 1 run | -25.0 %, 0.50 \
                    near, 1,234 moves, 2 runs of 2 commits | undecided: numab2 is fastest (-50.0 %";
        assert!(rows[2].starts_with(lost), "{}", rows[2]);
        assert!(rows[3].starts_with("| won "));
        let short = short_table(&data);
        let rows: Vec<&str> = short.lines().collect();
        assert_eq!(rows[2], "| lost | 6.12 | -50.0 % | – | -25.0 % | -75.0 % |");
        assert_eq!(sweep_table(&data).lines().count(), 2, "nobody swept");
    }

    #[test]
    fn another_kind_of_memory_is_named() {
        let row = |workload, backing: &str| {
            let mut group = stored(workload, &[("none", &[1.0])]);
            group["backing"] = backing.into();
            let table = short_table(&json!({"groups": [group]}));
            let rows: Vec<&str> = table.lines().collect();
            rows[2].split(" | ").next().map(str::to_owned)
        };
        assert_eq!(row("promote", "anon").unwrap(), "| promote");
        assert_eq!(row("promote", "thp").unwrap(), "| promote, thp");
        assert_eq!(row("sparse", "thp").unwrap(), "| sparse", "it has no other");
    }
}
