//! How far the simulator predicts what guests do: the table of docs/simulator.md.

use serde_json::Value;

use crate::measures::with_commas;
use crate::model::Pair;
use crate::workloads;

/// Of the data of the repository.
pub fn table(data: &Value) -> String {
    let pairs = array(&data["pairs"]).filter_map(|pair| serde_json::from_value(pair.clone()).ok());
    of_pairs(&pairs.collect::<Vec<Pair>>())
}

/// First how many cells agree, then each, those that do not agree first.
pub fn of_pairs(pairs: &[Pair]) -> String {
    let (held_out, others): (Vec<&Pair>, Vec<&Pair>) =
        pairs.iter().partition(|pair| pair.is_held_out);
    let mut text =
        "| workloads | cells | places agree | moves agree |\n|---|---|---|---|\n".to_owned();
    for (name, pairs) in [
        ("looked at while the model was made", others),
        ("held out", held_out),
    ] {
        let count = |agree: fn(&Pair) -> bool| pairs.iter().filter(|pair| agree(pair)).count();
        text += &format!(
            "| {name} | {} | {} | {} |\n",
            pairs.len(),
            count(Pair::places_agree),
            count(Pair::moves_agree)
        );
    }
    text += "\n| workload | system | guest, s | near, first half | near, second half | up | down | \
             hint faults | daemon, s |\n|---|---|---|---|---|---|---|---|---|\n";
    let mut sorted: Vec<&Pair> = pairs.iter().collect();
    sorted.sort_by_key(|pair| pair.places_agree() && pair.moves_agree());
    for pair in sorted {
        text += &row(pair);
    }
    text
}

fn row(pair: &Pair) -> String {
    let (guest, model) = (&pair.guest, &pair.model);
    let star = if pair.is_held_out { "*" } else { "" };
    let share = |half: usize| format!("{:.2} / {:.2}", guest.near[half], model.near[half]);
    let count = |guest: u64, model: u64| {
        let [guest, model] = [guest, model].map(|count| with_commas(count as f64));
        format!("{guest} / {model}")
    };
    format!(
        "| {}{star} | {} | {:.0} | {} | {} | {} | {} | {} | {:.2} / {:.2} |\n",
        workloads::shown(&pair.setting.workload, &pair.setting.backing),
        pair.setting.system,
        guest.elapsed_s,
        share(0),
        share(1),
        count(guest.up_pages, model.up_pages),
        count(guest.down_pages, model.down_pages),
        count(guest.hint_faults, model.hint_faults),
        guest.daemon_s,
        model.daemon_s
    )
}

/// What an array holds; nothing if it is none.
pub fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Seen;
    use crate::testing::outcome;

    #[test]
    fn cells_that_do_not_agree_stand_first() {
        let seen = Seen {
            near: [0.25, 0.5],
            up_pages: 1000,
            down_pages: 0,
            hint_faults: 7,
            daemon_s: 0.0,
            elapsed_s: 1.0,
        };
        let pair = |workload: &str, up_pages| Pair {
            setting: outcome(workload, "numab2").setting,
            commit: "a".into(),
            release: "7.2".into(),
            is_held_out: workload == "chunks",
            room_pages: 1000,
            guest: seen,
            model: Seen { up_pages, ..seen },
        };
        let text = of_pairs(&[pair("skewed", 1000), pair("chunks", 2000)]);
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(
            rows[2],
            "| looked at while the model was made | 1 | 1 | 1 |"
        );
        assert_eq!(rows[3], "| held out | 1 | 1 | 0 |");
        assert_eq!(
            rows[7],
            "| chunks* | numab2 | 1 | 0.25 / 0.25 | 0.50 / 0.50 | 1,000 / 2,000 | 0 / 0 | 7 / 7 | \
             0.00 / 0.00 |"
        );
        assert!(rows[8].starts_with("| skewed |"));
        let mut huge = pair("skewed", 1000);
        huge.setting.backing = "thp".into();
        assert!(of_pairs(&[huge]).contains("\n| skewed, thp |"));
    }
}
