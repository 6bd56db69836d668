//! Who wins, in a sentence: by a test, or not at all.

use super::Line;
use super::significance::Compared;

/// A system may cost a workload that has nothing to gain so much more than doing nothing.
const HARMLESS: f64 = 1.01;

/// Runs without which nobody is named: of three and three not even ranks without any overlap are
/// unlikely enough.
const RUNS_MIN: usize = 5;

/// How likely chance may be where a difference is named.
const P_MAX: f64 = 0.05;

/// What came of a workload. Bounds take no part.
pub fn verdict(lines: &[Line], pays: bool, oracle_s: f64) -> String {
    let contenders: Vec<&Line> = lines.iter().filter(|line| !line.is_bound()).collect();
    let Some(none) = contenders.iter().find(|line| line.system == "none") else {
        return "nothing to compare with: `none` was not run".into();
    };
    match pays {
        true => winner(&contenders, none, oracle_s),
        false => harm(&contenders, none),
    }
}

fn compared(line: &Line, other: &Line) -> Compared {
    Compared::new(&line.totals_s, &other.totals_s)
}

/// Whether the first is faster by more than chance.
fn beats(line: &Line, other: &Line) -> bool {
    let compared = compared(line, other);
    compared.ratio < 1.0 && compared.p < P_MAX && has_runs(line) && has_runs(other)
}

fn has_runs(line: &Line) -> bool {
    line.runs >= RUNS_MIN
}

fn winner(contenders: &[&Line], none: &Line, oracle_s: f64) -> String {
    let by_time = |a: &&&Line, b: &&&Line| a.total_s.median.total_cmp(&b.total_s.median);
    let Some(fastest) = contenders.iter().min_by(by_time) else {
        return "nothing was run".into();
    };
    let others = contenders
        .iter()
        .filter(|line| line.system != fastest.system);
    let not_beaten = others.filter(|line| !beats(fastest, line));
    let not_beaten: Vec<&str> = not_beaten.map(|line| line.system.as_str()).collect();
    let above = 100.0 * (fastest.total_s.median / oracle_s - 1.0);
    let oracle = match oracle_s > 0.0 {
        true => format!(", {above:.1} % above the oracle"),
        false => String::new(),
    };
    let system = &fastest.system;
    let gain = match system == "none" {
        true => "moving nothing".to_owned(),
        false => format!("{} against none", compared(fastest, none).in_percent()),
    };
    match (
        not_beaten.is_empty(),
        contenders.iter().all(|line| has_runs(line)),
    ) {
        (true, _) => format!("{system} wins: {gain}{oracle}"),
        (false, true) => format!(
            "undecided: {system} is fastest ({gain}{oracle}), by no more than chance before {}",
            not_beaten.join(", ")
        ),
        (false, false) => format!(
            "undecided: {system} is fastest ({gain}{oracle}), but it takes {RUNS_MIN} runs of each"
        ),
    }
}

/// Of workloads that have nothing to gain: harm is what lies above the limit with all of its
/// interval, and harmless what lies below it.
fn harm(contenders: &[&Line], none: &Line) -> String {
    let mut said = [Vec::new(), Vec::new(), Vec::new()];
    for line in contenders.iter().filter(|line| line.system != "none") {
        let compared = compared(line, none);
        let told = format!("{} {}", line.system, compared.in_percent());
        let is_known = has_runs(line) && has_runs(none);
        let place = match is_known {
            true if compared.low > HARMLESS => 0,
            true if compared.high <= HARMLESS => 2,
            _ => 1,
        };
        said[place].push(told);
    }
    let words = ["harm", "undecided", "no harm"];
    let told = words.iter().zip(&said).filter(|(_, who)| !who.is_empty());
    let told: Vec<String> = told
        .map(|(word, who)| format!("{word}: {}", who.join(", ")))
        .collect();
    match told.is_empty() {
        true => "nobody else was run".into(),
        false => told.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::line;

    #[test]
    fn a_winner_takes_five_runs_and_no_chance() {
        let none = line("none", &[10.0, 10.0, 10.1, 10.2, 10.0]);
        let pghot = line("pghot", &[5.0, 5.0, 5.2, 5.1, 5.0]);
        let close = line("numab2", &[5.1, 6.0, 5.3, 5.0, 5.2]);
        let near = line("near", &[1.0, 1.0]);
        let said = verdict(&[none.clone(), pghot.clone(), close, near], true, 4.0);
        assert!(
            said.starts_with("undecided: pghot is fastest (-50.0 %"),
            "{said}"
        );
        assert!(
            said.ends_with("by no more than chance before numab2"),
            "{said}"
        );
        let said = verdict(&[none.clone(), pghot.clone()], true, 4.0);
        assert!(said.starts_with("pghot wins: -50.0 %"), "{said}");
        assert!(said.ends_with("25.0 % above the oracle"), "{said}");
        assert!(verdict(&[pghot], true, 4.0).contains("`none` was not run"));
        let few = verdict(&[none, line("pghot", &[5.0, 5.0, 5.0])], true, 4.0);
        assert!(few.contains("it takes 5 runs of each"), "{few}");
    }

    #[test]
    fn moving_nothing_may_be_best() {
        let lines = [line("none", &[5.0; 5]), line("pghot", &[6.0; 5])];
        let said = verdict(&lines, true, 4.0);
        assert!(
            said.starts_with("none wins: moving nothing, 25.0 %"),
            "{said}"
        );
    }

    #[test]
    fn harm_is_named_with_its_interval() {
        let lines = [
            line("none", &[10.0, 10.0, 10.0, 10.01, 10.0]),
            line("pghot", &[10.05, 10.05, 10.06, 10.05, 10.04]),
            line("damon", &[12.0, 12.0, 12.1, 12.0, 11.9]),
            line("numab2", &[9.0, 12.0, 10.0, 10.1, 11.0]),
        ];
        let said = verdict(&lines, false, 9.0);
        assert!(said.starts_with("harm: damon +20.0 %"), "{said}");
        assert!(said.contains("; undecided: numab2 +1.0 %"), "{said}");
        assert!(said.contains("; no harm: pghot +0.5 %"), "{said}");
        assert_eq!(verdict(&lines[..1], false, 9.0), "nobody else was run");
    }
}
