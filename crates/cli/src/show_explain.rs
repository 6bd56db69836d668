//! The decisions of `pghot explain --last`, one a line.

use std::fmt::Write;

use pghot_daemon::protocol::DecisionReport;

/// A table, the newest first.
pub fn table(decisions: &[DecisionReport]) -> String {
    if decisions.is_empty() {
        return "No decision was made yet.\n".to_owned();
    }
    let mut text = format!(
        "{:>10}  {:>11}  {:>16}  {:>16}  {:>5}  {:>4}  {:>7}  {}\n",
        "AGO", "NODE", "PID OR FILE", "ADDRESS", "PAGES", "FREQ", "AGE", "WHAT"
    );
    for decision in decisions {
        let DecisionReport {
            nid,
            target,
            pages,
            freq,
            ..
        } = decision;
        let ago = format!("{:.1} s", decision.ago_ms as f64 / 1000.0);
        let way = format!("{nid} -> {target}");
        let pid = decision.pid.map(|pid| pid.to_string());
        let owner = pid.or_else(|| decision.file.clone());
        let owner = owner.unwrap_or("-".to_owned());
        let address = decision
            .address
            .map_or("-".to_owned(), |address| format!("{address:x}"));
        let age = format!("{} ms", decision.age_ms);
        let what = format!("{} ({})", decision.why, decision.outcome);
        let _ = writeln!(
            text,
            "{ago:>10}  {way:>11}  {owner:>16}  {address:>16}  {pages:>5}  {freq:>4}  \
             {age:>7}  {what}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let decision = |pid: Option<u32>, why: &str| DecisionReport {
            ago_ms: 1500,
            pfn: Some(7),
            nid: 2,
            target: 0,
            pid,
            file: pid.is_none().then(|| "259:0:1234567".to_owned()),
            address: pid.map(|_| 0x7f5e_1c20_0000),
            pages: 512,
            freq: 2,
            age_ms: 256,
            outcome: "moved".into(),
            why: why.into(),
        };
        let text = table(&[
            decision(Some(4242), "it was promoted"),
            decision(None, "it was free"),
        ]);
        let columns: Vec<_> = text.lines().map(|line| line.rfind("  ").unwrap()).collect();
        assert!(columns.iter().all(|column| *column == columns[0]), "{text}");
        assert!(text.contains("7f5e1c200000"), "{text}");
        assert!(text.contains("259:0:1234567"), "{text}");
        assert_eq!(table(&[]), "No decision was made yet.\n");
    }
}
