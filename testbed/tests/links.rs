//! Documents can be found: each page of docs/ is in docs/README.md, and what a relative link leads
//! to is there, its anchor too. Addresses on the network are not asked.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The documents by their path, those of the next commit included.
fn documents() -> BTreeMap<PathBuf, String> {
    let output = Command::new("git")
        .args(["ls-files", "-co", "--exclude-standard", "*.md"])
        .current_dir(root())
        .output()
        .expect("git is needed to know which files are the project's");
    let listed = String::from_utf8(output.stdout).unwrap();
    let read = |name: &str| Some((name.into(), fs::read_to_string(root().join(name)).ok()?));
    listed.lines().filter_map(read).collect()
}

/// Lines outside of blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Where the relative links of a document lead to.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        // Between backquotes is code.
        let words: String = line.split('`').step_by(2).collect();
        let targets = words.split("](").skip(1);
        let targets = targets.filter_map(|rest| rest.split(')').next());
        let is_relative = |target: &&str| !target.contains("://") && !target.starts_with("mailto:");
        found.extend(targets.filter(is_relative).map(str::to_owned));
    }
    found
}

/// What the headings of a document are called in links, as forges make it of them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for line in prose(text) {
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let letters = heading.trim().chars().filter_map(|letter| match letter {
            ' ' => Some('-'),
            '-' | '_' => Some(letter),
            _ if letter.is_alphanumeric() => Some(letter.to_ascii_lowercase()),
            _ => None,
        });
        let name: String = letters.collect();
        let again = (1..).map(|number| format!("{name}-{number}"));
        let mut names = std::iter::once(name.clone()).chain(again);
        anchors.extend(names.find(|name| !anchors.contains(name)));
    }
    anchors
}

/// A path without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

#[test]
fn links_lead_somewhere() {
    let documents = documents();
    assert!(documents.len() > 30, "{:?}", documents.keys());
    let mut wrong = Vec::new();
    let mut count = 0;
    for (page, text) in &documents {
        for link in links(text) {
            count += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => page.clone(),
                file => plain(&page.parent().unwrap().join(file)),
            };
            let has_anchor = |text: &String| anchors(text).contains(anchor);
            if !root().join(&target).exists() {
                wrong.push(format!("{}: there is no {link}", page.display()));
            } else if !anchor.is_empty() && !documents.get(&target).is_some_and(has_anchor) {
                wrong.push(format!("{}: no heading for {link}", page.display()));
            }
        }
    }
    assert!(count > 150, "only {count} links were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_page_is_in_the_list() {
    let documents = documents();
    let list = Path::new("docs/README.md");
    let listed = links(&documents[list]).into_iter();
    let listed: BTreeSet<PathBuf> = listed
        .map(|link| plain(&Path::new("docs").join(link)))
        .collect();
    let is_page = |page: &&PathBuf| page.starts_with("docs") && *page != list;
    let missing: Vec<_> = documents.keys().filter(is_page).collect();
    assert!(missing.len() > 15, "{missing:?}");
    let missing: Vec<_> = missing
        .into_iter()
        .filter(|page| !listed.contains(*page))
        .collect();
    assert!(missing.is_empty(), "not in docs/README.md: {missing:?}");
}

#[test]
fn links_and_anchors_are_told_apart_from_code() {
    let text = "# A `b_c` d: e!\n[x](y.md#z) `[no](no)` ![i](p.png) [w](https://w)\n\
                ```\n# no\n[no](no)\n```\n## A `b_c` d: e!\n";
    assert_eq!(links(text), ["y.md#z", "p.png"]);
    let expected = ["a-b_c-d-e", "a-b_c-d-e-1"];
    assert!(anchors(text).iter().eq(&expected));
}
