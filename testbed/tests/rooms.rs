//! The rooms of ARCHITECTURE.md: which crate may use which. Fails on a forbidden edge.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Each room with all it may use of the others. A new crate needs a line here, and a reason.
const ALLOWED: &[(&str, &[&str])] = &[
    ("crates/hint", &[]),
    ("crates/hotness", &[]),
    ("crates/engine", &["hotness"]),
    ("crates/linux", &["hotness", "engine"]),
    ("crates/sources", &["hint", "hotness", "linux"]),
    ("crates/daemon", &["hotness", "engine", "linux", "sources"]),
    (
        "crates/cli",
        &["engine", "hint", "hotness", "linux", "sources", "daemon"],
    ),
    ("crates/workloads", &[]),
    ("testbed", &[]),
];

#[test]
fn no_forbidden_edge() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut rooms: BTreeSet<String> = fs::read_dir(root.join("crates"))
        .unwrap()
        .map(|entry| format!("crates/{}", entry.unwrap().file_name().to_str().unwrap()))
        .collect();
    rooms.insert("testbed".into());
    let known: BTreeSet<String> = ALLOWED.iter().map(|(room, _)| (*room).into()).collect();
    assert_eq!(rooms, known, "the rooms and this table differ");
    for (room, allowed) in ALLOWED {
        let text = fs::read_to_string(root.join(room).join("Cargo.toml")).unwrap();
        let manifest: toml::Table = text.parse().unwrap();
        let Some(dependencies) = manifest.get("dependencies").and_then(|d| d.as_table()) else {
            continue;
        };
        for used in dependencies
            .keys()
            .filter_map(|name| name.strip_prefix("pghot-"))
        {
            assert!(allowed.contains(&used), "{room} must not use {used}");
        }
    }
}
