//! The results that lie in the repository, and what of the documents is made of them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::accuracy::{self, array};
use super::advice;
use super::demo;
use super::figure::figure;
use super::results::{short_table, sweep_table, table};
use crate::advice::Checked;
use crate::commit::commit;
use crate::model::{HELD_OUT, Pair};
use crate::summary::Runs;

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

/// Takes the runs of a comparison into `docs`, and makes its tables; and the same of the comparison
/// with the simulator, if there was one. Other runs stay as they were measured: all of them take
/// days.
pub fn store(bench_json: &Path, new: Vec<Runs>, pairs: &[Pair], docs: &Path) -> Result<()> {
    let all: Value = serde_json::from_str(&read(bench_json)?)?;
    let data = json!({
        "machine": all["machine"],
        "costs": all["costs"],
        "groups": with_earlier(new, stored_runs(docs, &all["costs"])?)?,
    });
    put(&RESULTS, &data, docs)?;
    if pairs.is_empty() {
        return Ok(());
    }
    let new = pairs.iter().map(serde_json::to_value);
    let new = new.collect::<Result<Vec<Value>, _>>()?;
    let pairs = with_earlier_pairs(new, &stored(&docs.join(ACCURACY.0))?);
    put(&ACCURACY, &json!({"pairs": pairs}), docs)
}

/// The runs that are stored. Modelled times are only comparable if everything costs the same.
fn stored_runs(docs: &Path, costs: &Value) -> Result<Vec<Runs>> {
    let stored = stored(&docs.join(RESULTS.0))?;
    if stored.is_null() {
        return Ok(Vec::new());
    }
    ensure!(
        stored["costs"] == *costs,
        "the stored results were scored by other costs: measure all workloads anew, or remove \
         docs/{}",
        RESULTS.0
    );
    serde_json::from_value(stored["groups"].clone())
        .with_context(|| format!("docs/{} is of another version, or damaged", RESULTS.0))
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

/// Earlier runs, and the new ones.
fn with_earlier(new: Vec<Runs>, mut all: Vec<Runs>) -> Result<Vec<Runs>> {
    for new in new {
        match all.iter_mut().find(|runs| runs.is_same(&new)) {
            Some(runs) => runs.add(new)?,
            None => all.push(new),
        }
    }
    Ok(all)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::score::Costs;
    use crate::testing::outcome;

    #[test]
    fn other_workloads_stay_as_they_were_measured() {
        let runs = |workloads: &[&str]| {
            let cells = workloads.iter().map(|name| outcome(name, "none"));
            Runs::of_all(&cells.collect::<Vec<_>>(), &Costs::stated())
        };
        let all = with_earlier(runs(&["b", "c"]), runs(&["a", "b"])).unwrap();
        let names: Vec<_> = all
            .iter()
            .map(|it| (it.workload.as_str(), it.runs.len()))
            .collect();
        assert_eq!(names, [("a", 1), ("b", 1), ("c", 1)]);
    }

    #[test]
    fn results_of_other_costs_are_not_mixed() {
        let folder = tempfile::tempdir().unwrap();
        let new = folder.path().join("bench.json");
        fs::write(&new, r#"{"costs": 2}"#).unwrap();
        fs::create_dir(folder.path().join("data")).unwrap();
        fs::write(
            folder.path().join(RESULTS.0),
            r#"{"costs": 1, "groups": [1]}"#,
        )
        .unwrap();
        let error = store(&new, Vec::new(), &[], folder.path()).unwrap_err();
        assert!(error.to_string().contains("other costs"), "{error}");
        fs::write(&new, r#"{"costs": 1}"#).unwrap();
        let error = store(&new, Vec::new(), &[], folder.path()).unwrap_err();
        assert!(error.to_string().contains("another version"), "{error}");
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
