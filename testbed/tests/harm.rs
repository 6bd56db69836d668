//! docs/simulator.md and docs/images/harm.svg show what is stored of random scenarios, and no more.
//! `PGHOT_BLESS=1` writes both anew.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use pghot_sim::harm::{Outcome, picture, summary};

const DATA: &str = "docs/data/harm.tsv";
const PAGE: &str = "docs/simulator.md";
const PICTURE: &str = "docs/images/harm.svg";
const BEGIN: &str = "<!-- harm -->\n";
const END: &str = "<!-- end of harm -->\n";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The commits, in the order in which they come, and all outcomes.
fn stored(data: &str) -> (Vec<String>, Vec<Outcome>) {
    let (mut commits, mut outcomes) = (Vec::<String>::new(), Vec::new());
    for line in data.lines() {
        let (commit, outcome) = line.split_once('\t').unwrap();
        let is_clean = commit.chars().all(|letter| letter.is_ascii_hexdigit());
        assert!(is_clean, "{DATA}: {commit} is no commit");
        if commits.last().is_none_or(|last| last != commit) {
            commits.push(commit.to_owned());
        }
        outcomes.push(Outcome::parse(outcome).unwrap_or_else(|| panic!("{DATA}: {line}")));
    }
    let seeds = outcomes.iter().map(|it| it.seed);
    assert!(seeds.eq(0..outcomes.len() as u64), "{DATA}: one of each");
    (commits, outcomes)
}

#[test]
fn the_page_and_the_picture_show_what_is_stored() {
    let data = fs::read_to_string(root().join(DATA)).unwrap();
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    let (commits, outcomes) = stored(&data);
    let lines: Vec<String> = summary(&outcomes)
        .lines()
        .map(|line| format!("- {line}\n"))
        .collect();
    let text = format!("\n{}\nOf {}.\n\n", lines.concat(), commits.join(", "));
    let (head, rest) = page.split_once(BEGIN).unwrap();
    let (shown, tail) = rest.split_once(END).unwrap();
    if std::env::var_os("PGHOT_BLESS").is_some() {
        fs::write(root().join(PAGE), [head, BEGIN, &text, END, tail].concat()).unwrap();
        fs::write(root().join(PICTURE), picture(&outcomes)).unwrap();
        return;
    }
    assert_eq!(shown, text, "{PAGE} is not what {DATA} says");
    let drawn = fs::read_to_string(root().join(PICTURE)).unwrap();
    assert_eq!(
        drawn,
        picture(&outcomes),
        "{PICTURE} is not what {DATA} says"
    );
}
