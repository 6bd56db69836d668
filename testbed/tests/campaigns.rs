//! docs/campaigns.md shows what is stored of campaigns, and no more. `PGHOT_BLESS=1` writes the
//! table anew.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const DATA: &str = "docs/data/campaigns.tsv";
const PAGE: &str = "docs/campaigns.md";
const BEGIN: &str = "<!-- campaigns -->\n";
const END: &str = "<!-- end -->\n";

/// All parts of one campaign in one place.
#[derive(Default)]
struct Sum {
    times: u64,
    parts: u64,
    commits: Vec<String>,
    last: String,
    /// What was counted, in the order of the first part.
    found: Vec<(String, u64)>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Sums, but for what is called the most or the least.
fn add(found: &mut Vec<(String, u64)>, name: &str, count: u64) {
    match found.iter_mut().find(|(known, _)| known == name) {
        None => found.push((name.to_owned(), count)),
        Some((_, sum)) if name.starts_with("most_") => *sum = count.max(*sum),
        Some((_, sum)) if name.starts_with("least_") => *sum = count.min(*sum),
        Some((_, sum)) => *sum += count,
    }
}

fn sums(data: &str) -> BTreeMap<(String, String), Sum> {
    let mut sums: BTreeMap<_, Sum> = BTreeMap::new();
    for line in data.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [date, commit, campaign, on, times, found] = fields[..] else {
            panic!("{DATA}: {line:?} has not six fields");
        };
        let is_clean = commit.chars().all(|letter| letter.is_ascii_hexdigit());
        assert!(is_clean, "{DATA}: {commit} is no commit");
        let sum = sums.entry((campaign.into(), on.into())).or_default();
        sum.times += times.parse::<u64>().unwrap();
        sum.parts += 1;
        sum.last = date.to_owned();
        if !sum.commits.iter().any(|known| known == commit) {
            sum.commits.push(commit.to_owned());
        }
        for word in found.split(' ') {
            let (name, count) = word.split_once('=').unwrap();
            add(&mut sum.found, name, count.parse().unwrap());
        }
    }
    sums
}

fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups = groups.map(|group| String::from_utf8_lossy(group));
    groups.collect::<Vec<_>>().join(",")
}

fn table(data: &str) -> String {
    let mut table = "| campaign | on | times | parts | commits, the last at | counted |\n\
                     |---|---|---|---|---|---|\n"
        .to_owned();
    for ((campaign, on), sum) in sums(data) {
        let found = sum.found.iter().map(|(name, count)| {
            let name = name.replace('_', " ");
            format!("{name}: {}", thousands(*count))
        });
        table += &format!(
            "| {campaign} | {on} | {} | {} | {}, {} | {} |\n",
            thousands(sum.times),
            sum.parts,
            sum.commits.join(" "),
            sum.last,
            found.collect::<Vec<_>>().join(", ")
        );
    }
    table
}

#[test]
fn the_page_shows_what_is_stored() {
    let data = fs::read_to_string(root().join(DATA)).unwrap();
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    let (head, rest) = page.split_once(BEGIN).unwrap();
    let (shown, tail) = rest.split_once(END).unwrap();
    let table = table(&data);
    if std::env::var_os("PGHOT_BLESS").is_some() {
        fs::write(root().join(PAGE), [head, BEGIN, &table, END, tail].concat()).unwrap();
        return;
    }
    assert_eq!(shown, table, "{PAGE} is not what {DATA} says");
}

#[test]
fn parts_are_added_up() {
    let line =
        |times: u64, found: &str| format!("2026-01-0{times}\tabc\tkills\t7\t{times}\t{found}\n");
    let data = [
        line(1, "changed=3 most_ms=7"),
        line(2, "changed=4 most_ms=5"),
    ]
    .concat();
    let expected = "| kills | 7 | 3 | 2 | abc, 2026-01-02 | changed: 7, most ms: 7 |";
    assert!(table(&data).contains(expected), "{}", table(&data));
    assert_eq!(thousands(1_234_567), "1,234,567");
    assert_eq!(thousands(12), "12");
}
