//! Whatever is logged at level info or above carries an id of the table, and every id is used.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pghot_events::EVENTS;

/// The rooms that log.
const ROOMS: [&str; 4] = ["cli", "daemon", "linux", "sources"];

/// What logs without an id.
const BARE: [&str; 4] = ["info!(", "warn!(", "error!(", "tracing::event!("];

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files(&path, found),
            false if path.extension().is_some_and(|it| it == "rs") => found.push(path),
            false => {}
        }
    }
}

/// The code of a file, without comments.
fn code(text: &str) -> String {
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// What code logs without an id; `compile_error!(` is another word.
fn without_id(code: &str) -> Option<&'static str> {
    let is_word = |at: usize| !code[..at].ends_with(|it: char| it.is_alphanumeric() || it == '_');
    let is_there = |bare: &&str| code.match_indices(*bare).any(|(at, _)| is_word(at));
    BARE.into_iter().find(is_there)
}

/// The ids that code logs.
fn logged(code: &str) -> impl Iterator<Item = &str> {
    let calls = code.split("event!(").skip(1);
    calls.map(|call| call.split(',').next().unwrap_or_default().trim())
}

#[test]
fn every_call_has_an_id_and_every_id_a_call() {
    let mut found = Vec::new();
    for room in ROOMS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(room);
        files(&folder.join("src"), &mut found);
    }
    let mut used = BTreeSet::new();
    for file in found {
        let code = code(&fs::read_to_string(&file).unwrap());
        let bare = without_id(&code);
        assert!(bare.is_none(), "{}: {bare:?} has no id", file.display());
        used.extend(logged(&code).map(str::to_owned));
    }
    let known: BTreeSet<String> = EVENTS.iter().map(|event| event.name.to_owned()).collect();
    assert_eq!(used, known);
}

#[test]
fn ids_are_distinct_and_sentences_end() {
    let names: BTreeSet<&str> = EVENTS.iter().map(|event| event.name).collect();
    assert_eq!(names.len(), EVENTS.len());
    for event in EVENTS {
        let may_be_read = |text: &str| text.ends_with('.') && !text.contains(['|', '\n']);
        assert!(may_be_read(event.meaning), "{}", event.name);
        assert!(
            event.remedy.is_empty() || may_be_read(event.remedy),
            "{}",
            event.name
        );
    }
}

#[test]
fn a_call_without_an_id_would_be_found() {
    let code = code("// info!(\"x\")\nevent!(source_started, \"x\");\nwarn!(\"y\");\n");
    assert_eq!(logged(&code).collect::<Vec<_>>(), ["source_started"]);
    assert_eq!(without_id(&code), Some("warn!("));
    assert_eq!(without_id("compile_error!(\"z\")"), None);
}
