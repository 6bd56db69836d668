//! Whether what `pghot advise` says of held-out workloads holds: the table of docs/sizing.md.

use serde_json::Value;

use super::accuracy::array;
use crate::advice::Checked;

/// Of the data of the repository.
pub fn table(data: &Value) -> String {
    let checked = array(&data["checked"]).filter_map(|it| serde_json::from_value(it.clone()).ok());
    of_checked(&checked.collect::<Vec<Checked>>())
}

/// First how many lie inside, then each, those outside first.
pub fn of_checked(checked: &[Checked]) -> String {
    let inside = checked.iter().filter(|it| it.is_inside()).count();
    let mut text = format!(
        "{inside} of {} measured slowdowns lie in the interval.\n\n\
         | workload | seed | system | top tier | of the memory | measured | model | interval | |\n\
         |---|---|---|---|---|---|---|---|---|\n",
        checked.len()
    );
    let mut sorted: Vec<&Checked> = checked.iter().collect();
    sorted.sort_by_key(|it| it.is_inside());
    for it in sorted {
        let percent = 100 * it.top_mib / it.memory_mib.max(1);
        let verdict = if it.is_inside() { "inside" } else { "outside" };
        text += &format!(
            "| {} | {} | {} | {} MiB | {percent} % | {:.1} % | {:.1} % | {:.1} to {:.1} % | \
             {verdict} |\n",
            it.setting.workload,
            it.setting.seed,
            it.setting.system,
            it.top_mib,
            it.measured_percent,
            it.model_percent,
            it.low_percent,
            it.high_percent,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::outcome;

    #[test]
    fn what_did_not_hold_stands_first() {
        let checked = |workload: &str, measured_percent| Checked {
            setting: outcome(workload, "pghot").setting,
            top_mib: 96,
            memory_mib: 480,
            measured_percent,
            model_percent: 10.0,
            low_percent: 8.0,
            high_percent: 13.0,
        };
        let text = of_checked(&[checked("drift", 9.0), checked("sparse", 20.0)]);
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows[0], "1 of 2 measured slowdowns lie in the interval.");
        assert_eq!(
            rows[4],
            "| sparse | 1 | pghot | 96 MiB | 20 % | 20.0 % | 10.0 % | 8.0 to 13.0 % | outside |"
        );
        assert!(rows[5].ends_with("| inside |"), "{}", rows[5]);
    }
}
