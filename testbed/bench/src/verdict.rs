//! Who wins, in a sentence: by more than the spread, or not at all.

use crate::summary::Line;

/// A system may cost a workload that has nothing to gain so much more than doing nothing.
const HARMLESS: f64 = 0.02;

/// What came of a workload. Bounds take no part.
pub fn verdict(lines: &[Line], pays: bool, oracle_s: f64) -> String {
    let contenders: Vec<&Line> = lines.iter().filter(|line| !line.is_bound()).collect();
    let Some(none) = contenders.iter().find(|line| line.system == "none") else {
        return "nothing to compare with: `none` was not run".into();
    };
    let said = match pays {
        true => winner(&contenders, none, oracle_s),
        false => harm(&contenders, none),
    };
    match contenders.iter().any(|line| line.runs < 2) {
        true => format!("{said} (one run: the spread is not known)"),
        false => said,
    }
}

fn winner(contenders: &[&Line], none: &Line, oracle_s: f64) -> String {
    let by_time = |a: &&&Line, b: &&&Line| a.total_s.median.total_cmp(&b.total_s.median);
    let Some(fastest) = contenders.iter().min_by(by_time) else {
        return "nothing was run".into();
    };
    let system = &fastest.system;
    if system == "none" {
        return "nobody gains: moving nothing is fastest".into();
    }
    let others = contenders.iter().filter(|line| line.system != *system);
    let not_beaten = others.filter(|line| !fastest.total_s.is_below(&line.total_s));
    let not_beaten: Vec<&str> = not_beaten.map(|line| line.system.as_str()).collect();
    let gain = 100.0 * (1.0 - fastest.total_s.median / none.total_s.median);
    let above = 100.0 * (fastest.total_s.median / oracle_s - 1.0);
    let oracle = match oracle_s > 0.0 {
        true => format!(", {above:.1} % above the oracle"),
        false => String::new(),
    };
    match not_beaten.is_empty() {
        true => format!("{system} wins: {gain:.1} % less time than none{oracle}"),
        false => format!(
            "{system} is fastest ({gain:.1} % less time than none{oracle}), but within the spread \
             of {}",
            not_beaten.join(", ")
        ),
    }
}

/// Of workloads that have nothing to gain.
fn harm(contenders: &[&Line], none: &Line) -> String {
    let costs = |line: &&&Line| line.total_s.median / none.total_s.median - 1.0;
    let harmful = contenders.iter().filter(|line| costs(line) > HARMLESS);
    let harmful: Vec<String> = harmful
        .map(|line| format!("{} costs {:.1} %", line.system, costs(&line) * 100.0))
        .collect();
    let harmless = contenders.iter().filter(|line| line.system != "none");
    let harmless = harmless.filter(|line| costs(line) <= HARMLESS);
    let harmless: Vec<&str> = harmless.map(|line| line.system.as_str()).collect();
    match (harmful.is_empty(), harmless.is_empty()) {
        (true, _) => "nobody does harm".into(),
        (false, true) => harmful.join(", "),
        (false, false) => format!(
            "{}; {} does no harm",
            harmful.join(", "),
            harmless.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::line;

    #[test]
    fn who_wins_by_less_than_the_spread_does_not_win() {
        let lines = [
            line("none", &[10.0, 10.0, 10.1]),
            line("pghot", &[5.0, 5.0, 5.2]),
            line("numab2", &[5.1, 6.0]),
            line("near", &[1.0, 1.0]),
        ];
        let said = verdict(&lines, true, 4.0);
        assert!(said.starts_with("pghot is fastest (50.0 % less"), "{said}");
        assert!(said.ends_with("25.0 % above the oracle), but within the spread of numab2"));
        assert!(verdict(&lines[..2], true, 4.0).starts_with("pghot wins: 50.0 %"));
        assert!(verdict(&lines[1..], true, 4.0).contains("`none` was not run"));
    }

    #[test]
    fn moving_nothing_may_be_best() {
        let lines = [line("none", &[5.0]), line("pghot", &[6.0])];
        let said = verdict(&lines, true, 4.0);
        assert!(said.starts_with("nobody gains"));
        assert!(said.ends_with("the spread is not known)"), "of one run");
    }

    #[test]
    fn harm_is_named() {
        let lines = [
            line("none", &[10.0, 10.0]),
            line("pghot", &[10.1, 10.1]),
            line("damon", &[12.0, 12.0]),
        ];
        let said = verdict(&lines, false, 9.0);
        assert_eq!(said, "damon costs 20.0 %; pghot does no harm");
        assert_eq!(verdict(&lines[..2], false, 9.0), "nobody does harm");
    }
}
