//! What `pghot status --by` prints: one line for each owner, those with hot far memory first.

use std::fmt::Write;

use pghot_daemon::owners::{By, OwnerMoves, OwnerRow, OwnersReport};
use pghot_linux::processes::printable;

use crate::units::{bytes, count};

/// Bytes of a base page.
const PAGE: u64 = 4096;

/// The whole table.
pub fn text(report: &OwnersReport) -> String {
    let who = match report.by {
        By::Cgroup => "CGROUP",
        By::Process => "PID      PROCESS",
    };
    let mut text = format!(
        "{:>10} {:>10} {:>6} {:>10} {:>10} {:>10} {:>10}  {who}\n",
        "LOWER", "TOP", "SHARE", "LIMIT", "HOT BELOW", "PROMOTED", "DEMOTED"
    );
    for row in &report.rows {
        line(&mut text, row);
    }
    if report.rows.is_empty() {
        text.push_str("nobody has memory, and nothing has moved\n");
    }
    for note in &report.notes {
        let _ = writeln!(text, "\nnote: {note}");
    }
    text
}

fn line(text: &mut String, row: &OwnerRow) {
    let size = |size: Option<u64>| size.map_or_else(|| "-".to_owned(), bytes);
    let pages = |pages| match pages {
        0 => "0".to_owned(),
        pages => bytes(pages * PAGE),
    };
    let moves = &row.moves;
    let share = row.top_share.map(|share| format!("{:.1} %", 100.0 * share));
    let pid = moves.pid.map(|pid| format!("{pid:<8} "));
    let _ = write!(
        text,
        "{:>10} {:>10} {:>6} {:>10} {:>10} {:>10} {:>10}  {}{}",
        size(row.lower_bytes),
        size(row.top_bytes),
        share.unwrap_or_else(|| "-".to_owned()),
        size(row.limit_bytes),
        pages(moves.ready_pages),
        pages(moves.promoted_pages),
        moves.demoted_pages.map_or_else(|| "-".to_owned(), pages),
        pid.unwrap_or_default(),
        printable(&moves.name),
    );
    let _ = match remarks(row, moves) {
        remarks if remarks.is_empty() => writeln!(text),
        remarks => writeln!(text, "  ({})", remarks.join(", ")),
    };
}

fn remarks(row: &OwnerRow, moves: &OwnerMoves) -> Vec<String> {
    let excluded = row.excluded.then(|| "excluded by a policy".to_owned());
    let protected = row.protected.then(|| "protected by a policy".to_owned());
    let share = row.share_bytes;
    let share = share.map(|share| format!("its weight gives it {}", bytes(share)));
    let others = moves.not_moved.iter();
    let others = others.map(|(outcome, pages)| format!("{outcome} {}", count(*pages)));
    let all = [excluded, protected, share].into_iter().flatten();
    all.chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_is_known_and_no_letter_obeys() {
        let row = OwnerRow {
            moves: OwnerMoves {
                name: "/a\x1b[2J".into(),
                ready_pages: 512,
                promoted_pages: 256,
                demoted_pages: Some(0),
                not_moved: [("busy".to_owned(), 1200)].into(),
                ..OwnerMoves::default()
            },
            lower_bytes: Some(8 << 20),
            top_bytes: Some(2 << 20),
            top_share: Some(0.25),
            share_bytes: Some(3 << 20),
            excluded: true,
            ..OwnerRow::default()
        };
        let report = OwnersReport {
            by: By::Cgroup,
            rows: vec![row],
            notes: vec!["so it is".into()],
        };
        let text = text(&report);
        let words: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(
            words.join(" "),
            "8 MiB 2 MiB 25.0 % - 2 MiB 1 MiB 0 /a?[2J (excluded by a policy, its weight gives \
             it 3 MiB, busy 1,200)"
        );
        assert!(text.ends_with("\nnote: so it is\n"), "{text}");
    }
}
