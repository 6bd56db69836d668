//! The demo as it lies in the repository: what its table in the README shows, without the runs.

use serde_json::{Value, json};

use super::{ROWS, measure};

/// The columns: a system by its key, and how it is called.
const SYSTEMS: [(&str, &str); 3] = [
    ("none", "no balancing"),
    ("numab2", "`numa_balancing=2`"),
    ("pghot", "pghot"),
];

/// What of `demo.json` is kept: all but the single runs, and how long the longest of them took.
/// `None` if a system of the table was not run.
pub fn data(mut demo: Value, commit: &str) -> Option<Value> {
    let mut longest_s = 0.0_f64;
    for (key, _) in SYSTEMS {
        let system = demo.get_mut("systems")?.get_mut(key)?.as_object_mut()?;
        let runs = system.remove("runs").unwrap_or_default();
        let times = runs.as_array().into_iter().flatten();
        let times = times.filter_map(|run| run["elapsed_s"].as_f64());
        longest_s = times.fold(longest_s, f64::max);
    }
    demo["longest_run_s"] = json!(longest_s);
    demo["commit"] = commit.into();
    Some(demo)
}

/// The table, and a line about where it is from.
pub fn table(data: &Value) -> String {
    let mut text = "|".to_owned();
    for (_, title) in SYSTEMS {
        text += &format!(" | {title}");
    }
    text += " | pghot / `numa_balancing=2` |\n|---|---|---|---|---|\n";
    for (name, label, _) in ROWS {
        text += &format!("| {label} |");
        for (key, _) in SYSTEMS {
            text += &format!(" {} |", cell(&data["systems"][key], name));
        }
        match ratio(data, name) {
            Some(ratio) => text += &format!(" {ratio:.2} |\n"),
            None => text += " |\n",
        }
    }
    // Without what the distribution adds.
    let release = data["kernel"].as_str().unwrap_or_default();
    let kernel = release.split('+').next().unwrap_or(release);
    text + &format!(
        "\nRounds: {}, on kernel {kernel} (`make demo`); a run ends when all is promoted, or after \
         {:.0} s.\n",
        data["rounds"],
        data["longest_run_s"].as_f64().unwrap_or_default()
    )
}

/// The median, and the smallest and largest value where they differ.
fn cell(system: &Value, name: &str) -> String {
    let measure = measure(name);
    let Some(median) = system[name].as_f64() else {
        // A time that was not reached is not in JSON, nor is what a system does not have.
        let is_time = ["t50_s", "t90_s", "t100_s"].contains(&name);
        return if is_time { "never" } else { "—" }.to_owned();
    };
    let spread = &system["spread"][name];
    let end = |index: usize| spread[index].as_f64().unwrap_or(f64::INFINITY);
    match end(0) == end(1) {
        true => measure.show(median),
        false => format!(
            "{} ({}–{})",
            measure.show(median),
            measure.bare(end(0)),
            measure.bare(end(1))
        ),
    }
}

fn ratio(data: &Value, name: &str) -> Option<f64> {
    let median = |key: &str| data["systems"][key][name].as_f64();
    let base = median("numab2").filter(|base| *base > 0.0)?;
    Some(median("pghot")? / base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_medians_spreads_and_what_was_never_reached() {
        let system = |t50_s: Value, ends: [f64; 2]| {
            json!({
                "t50_s": t50_s, "daemon_cpu_s": null, "left_pages": 0.0,
                "spread": {"t50_s": ends, "left_pages": [0.0, 0.0]},
                "runs": [{"elapsed_s": 12.6}],
            })
        };
        let demo = json!({
            "kernel": "6.12.1+deb12", "rounds": 3,
            "systems": {
                "none": system(Value::Null, [0.0, 0.0]),
                "numab2": system(json!(2.0), [1.0, 3.0]),
                "pghot": system(json!(1.5), [1.5, 1.5]),
            },
        });
        assert_eq!(data(json!({"systems": {"none": {}}}), "abc"), None);
        let data = data(demo, "abc").unwrap();
        assert!(data["systems"]["pghot"]["runs"].is_null());
        let table = table(&data);
        let rows: Vec<&str> = table.lines().collect();
        let head = "| | no balancing | `numa_balancing=2` | pghot | pghot / `numa_balancing=2` |";
        assert_eq!(rows[0], head);
        let t50 = "| time to 50 % promoted | never | 2.00 s (1.00–3.00) | 1.50 s | 0.75 |";
        assert_eq!(rows[2], t50);
        assert!(
            table.contains("| pages left in the lower tier | 0 | 0 | 0 | |\n"),
            "{table}"
        );
        assert!(
            table.contains("| CPU time of the daemon | — | — | — | |\n"),
            "{table}"
        );
        assert!(table.ends_with(
            "on kernel 6.12.1 (`make demo`); a run ends when all is promoted, or after 13 s.\n"
        ));
    }
}
