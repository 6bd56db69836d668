//! The stored results in two sentences: how often pghot is behind the kernel's own tiering, and how
//! far at worst.

use serde_json::Value;

use super::results::{Row, rows};

/// Up to here two times count as the same, in percent.
const EVEN_PERCENT: f64 = 1.0;

/// Of each workload, by how much pghot takes longer than `numa_balancing=2`, in percent.
fn compared(rows: &[Row]) -> Vec<(&str, f64)> {
    let compared = rows.iter().filter_map(|row| {
        let (own_s, kernel_s) = (row.total_s("pghot")?, row.total_s("numab2")?);
        let percent = 100.0 * (own_s / kernel_s - 1.0);
        Some((row.group.workload.as_str(), percent))
    });
    let mut compared: Vec<_> = compared.collect();
    compared.sort_by(|a, b| a.1.total_cmp(&b.1));
    compared
}

/// How many runs a time is of.
fn runs(rows: &[Row]) -> String {
    let lines = rows
        .iter()
        .flat_map(|row| ["pghot", "numab2"].map(|system| row.group.line(system)));
    let runs = lines.flatten().map(|line| line.runs);
    let (min, max) = runs.fold((usize::MAX, 0), |(min, max), runs| {
        (min.min(runs), max.max(runs))
    });
    match (min, max) {
        (1, 1) => "one run each".to_owned(),
        (min, max) if min == max => format!("{min} runs each"),
        (min, max) => format!("{min} to {max} runs each"),
    }
}

/// What stands below the picture of the README.
pub fn figure(data: &Value) -> String {
    let rows = rows(data);
    let compared = compared(&rows);
    let [(best, least), .., (worst, most)] = compared[..] else {
        return String::new();
    };
    let less = compared.iter().filter(|it| it.1 < -EVEN_PERCENT).count();
    let more = compared.iter().filter(|it| it.1 > EVEN_PERCENT).count();
    format!(
        "Of {} workloads, pghot takes less time than the kernel's own tiering (`numa_balancing=2`) \
         on {less},\nmore on {more}, and the same within {EVEN_PERCENT} % on {}. At best it takes \
         {} (`{best}`), at worst {} (`{worst}`).\nModelled time, {}.\n",
        compared.len(),
        compared.len() - less - more,
        in_words(least),
        in_words(most),
        runs(&rows)
    )
}

fn in_words(percent: f64) -> String {
    let word = if percent < 0.0 { "less" } else { "more" };
    format!("{:.0} % {word}", percent.abs())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::results::tests::stored;

    #[test]
    fn wins_losses_and_draws_are_counted() {
        let group = |workload: &str, numab2: f64, runs: usize| {
            let (numab2, pghot) = (vec![numab2; runs], vec![10.0; runs]);
            stored(workload, &[("numab2", &numab2), ("pghot", &pghot)])
        };
        let groups = [
            group("won", 20.0, 1),
            group("lost", 8.0, 1),
            group("even", 10.05, 1),
        ];
        let expected = "Of 3 workloads, pghot takes less time than the kernel's own tiering \
                        (`numa_balancing=2`) on 1,\nmore on 1, and the same within 1 % on 1. At \
                        best it takes 50 % less (`won`), at worst 25 % more (`lost`).\nModelled \
                        time, one run each.\n";
        assert_eq!(figure(&json!({"groups": groups})), expected);
        assert_eq!(
            runs(&rows(
                &json!({"groups": [group("a", 1.0, 1), group("b", 1.0, 3)]})
            )),
            "1 to 3 runs each"
        );
        assert_eq!(figure(&json!({"groups": []})), "");
    }
}
