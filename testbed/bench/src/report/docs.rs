//! The results that lie in the repository, and what of the documents is made of them.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::accuracy::{self, array};
use super::advice;
use super::demo;
use super::figure::figure;
use crate::advice::Checked;
use crate::measures::with_commas;
use crate::model::{HELD_OUT, Pair};
use crate::preset::SWEPT;
use crate::systems;

/// Around a table of results.
const RESULTS_HERE: &str = "<!-- results -->";
/// Around what a sweep over one system's settings found.
const SWEEP_HERE: &str = "<!-- sweep -->";
/// Around what they say in two sentences.
const FIGURE_HERE: &str = "<!-- figure -->";
/// Around the table of the demo.
const DEMO_HERE: &str = "<!-- numbers -->";

/// A document, what stands around the part of it that is made of data, and what makes that part.
type Part = (&'static str, &'static str, fn(&Value) -> String);

/// Data, and what is made of them.
type Stored = (&'static str, &'static [Part]);

/// What systems do.
const RESULTS: Stored = (
    "data/bench.json",
    &[
        ("bench.md", RESULTS_HERE, table),
        ("bench.md", SWEEP_HERE, sweep_table),
        ("../README.md", RESULTS_HERE, short_table),
        ("../README.md", FIGURE_HERE, figure),
    ],
);

/// How far the simulator predicts it.
const ACCURACY: Stored = (
    "data/model.json",
    &[("simulator.md", RESULTS_HERE, accuracy::table)],
);

/// What `pghot advise` says, and what came to pass.
const ADVICE: Stored = (
    "data/advice.json",
    &[("sizing.md", RESULTS_HERE, advice::table)],
);

/// What `make demo` shows.
const DEMO: Stored = (
    "data/demo.json",
    &[("../README.md", DEMO_HERE, demo::stored::table)],
);

/// Takes what a comparison wrote into `docs`: its groups as data, and the table of the document;
/// and the same of the comparison with the simulator, if there was one. Groups of other workloads,
/// kernels and kinds of memory stay as an earlier comparison wrote them: all of them take days.
pub fn store(bench_json: &Path, pairs: &[Pair], docs: &Path) -> Result<()> {
    let all: Value = serde_json::from_str(&read(bench_json)?)?;
    let mut new: Vec<Value> = array(&all["groups"]).cloned().collect();
    for group in &mut new {
        group["commit"] = commit()?.into();
        group["emulator"] = all["emulator"].clone();
        group["releases"] = releases(&all).into();
    }
    let groups = with_earlier(new, &stored(&docs.join(RESULTS.0))?, &all["costs"])?;
    let data = json!({
        "machine": all["machine"],
        "costs": all["costs"],
        "groups": groups,
    });
    put(&RESULTS, &data, docs)?;
    if pairs.is_empty() {
        return Ok(());
    }
    let mut new = Vec::new();
    for pair in pairs {
        let mut pair = serde_json::to_value(pair)?;
        (pair["commit"], pair["releases"]) = (commit()?.into(), releases(&all).into());
        new.push(pair);
    }
    let pairs = with_earlier_pairs(new, &stored(&docs.join(ACCURACY.0))?);
    put(&ACCURACY, &json!({"pairs": pairs}), docs)
}

/// What is stored; null if there is nothing yet.
fn stored(path: &Path) -> Result<Value> {
    match path.exists() {
        true => serde_json::from_str(&read(path)?)
            .with_context(|| format!("{} is damaged", path.display())),
        false => Ok(Value::Null),
    }
}

/// New cells beside the model, and earlier ones of other workloads, systems, kernels, kinds of
/// memory and rooms.
fn with_earlier_pairs(new: Vec<Value>, earlier: &Value) -> Vec<Value> {
    let key = |pair: &Value| {
        let setting = &pair["setting"];
        let names = ["workload", "system", "kernel", "backing"].map(|name| setting[name].clone());
        // The oldest had the whole room, and did not say so.
        (names, setting["room_percent"].as_u64().unwrap_or(100))
    };
    let kept = others(&earlier["pairs"], &new, key);
    [new, kept].concat()
}

/// Those of earlier ones that none of the new ones takes the place of.
fn others<K: PartialEq>(earlier: &Value, new: &[Value], key: impl Fn(&Value) -> K) -> Vec<Value> {
    let keys: Vec<K> = new.iter().map(&key).collect();
    let others = array(earlier).filter(|it| !keys.contains(&key(it)));
    others.cloned().collect()
}

/// Takes what was asked of `pghot advise` about held-out workloads into `docs`, and nothing else of
/// that comparison.
pub fn store_advice(bench_json: &Path, checked: &[Checked], docs: &Path) -> Result<()> {
    let all: Value = serde_json::from_str(&read(bench_json)?)?;
    let is_held_out = |it: &&Checked| HELD_OUT.contains(&it.setting.workload.as_str());
    let checked: Vec<&Checked> = checked.iter().filter(is_held_out).collect();
    let data = json!({
        "commit": commit()?,
        "emulator": all["emulator"],
        "releases": releases(&all),
        "checked": checked,
    });
    put(&ADVICE, &data, docs)
}

/// Takes what a demo wrote into `docs`, without its single runs.
pub fn store_demo(demo_json: &Path, docs: &Path) -> Result<()> {
    let all = serde_json::from_str(&read(demo_json)?)?;
    let data = demo::stored::data(all, &commit()?);
    put(
        &DEMO,
        &data.context("the table takes all systems of the demo")?,
        docs,
    )
}

/// New groups, and earlier ones of other cells. Modelled times are only comparable if everything
/// costs the same.
fn with_earlier(new: Vec<Value>, earlier: &Value, costs: &Value) -> Result<Vec<Value>> {
    let key = |group: &Value| ["workload", "kernel", "backing"].map(|name| group[name].clone());
    let kept = others(&earlier["groups"], &new, key);
    ensure!(
        kept.is_empty() || earlier["costs"] == *costs,
        "the stored results were scored by other costs: measure all workloads anew, or remove \
         docs/{}",
        RESULTS.0
    );
    Ok([new, kept].concat())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn put((name, parts): &Stored, data: &Value, docs: &Path) -> Result<()> {
    let write = |path: &Path, text: String| {
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    fs::create_dir_all(docs.join("data")).context("cannot make the folder of the data")?;
    write(&docs.join(name), serde_json::to_string_pretty(data)? + "\n")?;
    for (document, marker, make) in *parts {
        let document = docs.join(document);
        let text = with_part(&read(&document)?, marker, &make(data))
            .with_context(|| format!("{} has no place for it", document.display()))?;
        write(&document, text)?;
    }
    Ok(())
}

/// What was measured.
fn commit() -> Result<String> {
    let output = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .output()
        .context("cannot run git")?;
    ensure!(output.status.success(), "this is no git repository");
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn releases(all: &Value) -> Vec<&str> {
    let mut releases: Vec<&str> = array(&all["cells"])
        .filter_map(|cell| cell["release"].as_str())
        .collect();
    releases.sort_unstable();
    releases.dedup();
    releases
}

/// The document with this text between its two markers.
fn with_part(document: &str, marker: &str, text: &str) -> Result<String> {
    let parts: Vec<&str> = document.split(marker).collect();
    ensure!(parts.len() == 3, "it takes two lines of {marker}");
    Ok([parts[0], marker, "\n\n", text, "\n", marker, parts[2]].concat())
}

/// Those first in which pghot does worst.
fn sorted_groups(data: &Value) -> Vec<&Value> {
    let mut groups: Vec<&Value> = array(&data["groups"]).collect();
    groups.sort_by(|a, b| behind(b).total_cmp(&behind(a)));
    groups
}

/// A row for each workload: what is to be won or lost at all, and who wins it.
fn short_table(data: &Value) -> String {
    let mut text = "| workload | kernel | `numa_balancing=2` | DAMON | pghot | possible |\n\
                    |---|---|---|---|---|---|\n"
        .to_owned();
    for group in sorted_groups(data) {
        let of = |name: &str| group[name].as_str().unwrap_or_default();
        let percent = |system| signed(against_none(group, system));
        text += &format!(
            "| {} | {} | {} | {} | {} | {} |\n",
            of("workload"),
            of("kernel"),
            percent("numab2"),
            percent("damon"),
            percent("pghot"),
            signed(possible(group))
        );
    }
    text
}

/// A row for each workload.
fn table(data: &Value) -> String {
    let is_shown = |system: &str| system != "none" && !SWEPT.contains(&system);
    table_of(sorted_groups(data), is_shown)
}

/// A row for each workload of the sweep over DAMON's settings.
fn sweep_table(data: &Value) -> String {
    let mut groups = sorted_groups(data);
    groups.retain(|group| SWEPT.iter().any(|system| line(group, system).is_some()));
    table_of(groups, |system| system.starts_with("damon"))
}

fn table_of(groups: Vec<&Value>, is_shown: impl Fn(&str) -> bool) -> String {
    let mut systems: Vec<&str> = Vec::new();
    for line in groups.iter().flat_map(|group| array(&group["lines"])) {
        let system = line["system"].as_str().unwrap_or_default();
        if is_shown(system) && !systems.contains(&system) {
            systems.push(system);
        }
    }
    let mut text = format!(
        "| workload | kernel | guest, s | {} | verdict |\n",
        systems.join(" | ")
    );
    text += &"|---".repeat(systems.len() + 4);
    text += "|\n";
    for group in groups {
        let of = |name: &str| group[name].as_str().unwrap_or_default();
        let cells: Vec<String> = systems.iter().map(|system| cell(group, system)).collect();
        text += &format!(
            "| {} | {} | {} | {} | {} |\n",
            of("workload"),
            of("kernel"),
            length(group),
            cells.join(" | "),
            of("verdict")
        );
    }
    text
}

pub(super) fn line<'a>(group: &'a Value, system: &str) -> Option<&'a Value> {
    array(&group["lines"]).find(|line| line["system"] == *system)
}

pub(super) fn total_s(line: &Value) -> f64 {
    line["total_s"]["median"].as_f64().unwrap_or(f64::NAN)
}

/// How long a run without balancing took by the guest's clock, in s.
fn length(group: &Value) -> String {
    let none = line(group, "none").map(|none| &none["measures"]["guest_s"]["median"]);
    let seconds = none.and_then(Value::as_f64);
    seconds.map_or("–".to_owned(), |seconds| format!("{seconds:.0}"))
}

/// How many times longer pghot takes than the best of the others.
fn behind(group: &Value) -> f64 {
    let is_rival = |line: &&Value| {
        let system = line["system"].as_str().unwrap_or_default();
        !system.starts_with("pghot") && !systems::is_bound(system)
    };
    let times = array(&group["lines"]).filter(is_rival).map(total_s);
    let best = times.fold(f64::INFINITY, f64::min);
    line(group, "pghot").map_or(0.0, |pghot| total_s(pghot) / best)
}

/// In percent.
fn signed(percent: Option<f64>) -> String {
    percent.map_or("–".to_owned(), |percent| format!("{percent:+.1} %"))
}

/// How much longer it takes with foresight than doing nothing, in percent.
fn possible(group: &Value) -> Option<f64> {
    let none = line(group, "none")?;
    Some(100.0 * (group["foresight_s"].as_f64()? / total_s(none) - 1.0))
}

/// How much longer than doing nothing, in percent.
fn against_none(group: &Value, system: &str) -> Option<f64> {
    let (none, line) = (line(group, "none")?, line(group, system)?);
    Some(100.0 * (total_s(line) / total_s(none) - 1.0))
}

/// What one system does: time against doing nothing, share of the accesses served near, moves.
fn cell(group: &Value, system: &str) -> String {
    let (Some(percent), Some(line)) = (against_none(group, system), line(group, system)) else {
        return "–".into();
    };
    let median = |name: &str| line["measures"][name]["median"].as_f64();
    let near = median("near_share").map_or("–".into(), |share| format!("{share:.2}"));
    let moves = median("kernel_moves").map_or("–".into(), with_commas);
    format!(
        "{percent:+.1} %, {near} near, {moves} moves, {} runs",
        line["runs"]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(workload: &str, times: [f64; 3]) -> Value {
        let lines = ["none", "numab2", "pghot"].iter().zip(times);
        let lines: Vec<Value> = lines
            .map(|(system, s)| {
                json!({
                    "system": system, "runs": 3, "total_s": {"median": s},
                    "measures": {
                        "near_share": {"median": 0.5},
                        "kernel_moves": {"median": 1234.0},
                        "guest_s": {"median": 20.4},
                    },
                })
            })
            .collect();
        json!({
            "workload": workload, "kernel": "6.12", "lines": lines, "verdict": "so",
            "foresight_s": 1.0,
        })
    }

    #[test]
    fn losses_stand_first() {
        let data =
            json!({"groups": [group("won", [4.0, 3.0, 2.0]), group("lost", [4.0, 2.0, 3.0])]});
        let table = table(&data);
        let rows: Vec<&str> = table.lines().collect();
        assert_eq!(
            rows[0],
            "| workload | kernel | guest, s | numab2 | pghot | verdict |"
        );
        assert_eq!(rows[1], "|---|---|---|---|---|---|");
        let lost = "| lost | 6.12 | 20 | -50.0 %, 0.50 near, 1,234 moves, 3 runs | \
                    -25.0 %, 0.50 near, 1,234 moves, 3 runs | so |";
        assert_eq!(rows[2], lost);
        assert!(rows[3].starts_with("| won "));
        let short = short_table(&data);
        let rows: Vec<&str> = short.lines().collect();
        assert_eq!(rows[2], "| lost | 6.12 | -50.0 % | – | -25.0 % | -75.0 % |");
    }

    #[test]
    fn other_workloads_stay_as_they_were_measured() {
        let earlier = json!({
            "costs": 1,
            "groups": [group("a", [4.0, 3.0, 2.0]), group("b", [4.0, 3.0, 2.0])],
        });
        let new = || vec![group("b", [9.0, 8.0, 7.0])];
        let all = with_earlier(new(), &earlier, &json!(1)).unwrap();
        let times: Vec<_> = all.iter().map(|it| total_s(&it["lines"][0])).collect();
        assert_eq!(times, [9.0, 4.0]);
        let error = with_earlier(new(), &earlier, &json!(2)).unwrap_err();
        assert!(error.to_string().contains("other costs"), "{error}");
        assert_eq!(
            with_earlier(new(), &Value::Null, &json!(2)).unwrap().len(),
            1
        );
    }

    #[test]
    fn other_cells_stay_beside_the_model_as_they_were() {
        let pair = |workload: &str, system: &str, seed: u64| {
            let setting = json!({"workload": workload, "system": system, "seed": seed});
            json!({ "setting": setting })
        };
        let earlier = json!({"pairs": [pair("a", "none", 1), pair("a", "pghot", 1)]});
        let mut new = vec![pair("a", "pghot", 2), pair("b", "pghot", 1)];
        new[0]["setting"]["room_percent"] = 100.into();
        let all = with_earlier_pairs(new.clone(), &earlier);
        assert_eq!(all, [&new[..], &[pair("a", "none", 1)]].concat());
        assert_eq!(with_earlier_pairs(new.clone(), &Value::Null), new);
    }

    #[test]
    fn the_documents_show_the_data_of_the_repository() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        for (data, parts) in [RESULTS, ACCURACY, ADVICE, DEMO] {
            let data: Value = serde_json::from_str(&read(&docs.join(data)).unwrap()).unwrap();
            for (document, marker, make) in parts {
                let text = read(&docs.join(document)).unwrap();
                assert!(
                    text == with_part(&text, marker, &make(&data)).unwrap(),
                    "docs/{document} is not of its data: run pghot-bench with --store docs"
                );
            }
        }
        assert!(with_part("no place", FIGURE_HERE, "").is_err());
    }
}
