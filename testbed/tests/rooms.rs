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
    ("crates/page", &[]),
    ("crates/profile", &[]),
    ("crates/published", &[]),
    (
        "crates/sources",
        &["engine", "hint", "hotness", "linux", "profile"],
    ),
    ("crates/daemon", &["hotness", "engine", "linux", "sources"]),
    (
        "crates/cli",
        &[
            "engine", "hint", "hotness", "linux", "sources", "daemon", "sim", "profile",
        ],
    ),
    (
        "crates/sim",
        &[
            "engine",
            "hotness",
            "page",
            "sources",
            "profile",
            "published",
            "sockets",
            "workloads",
        ],
    ),
    ("crates/sockets", &["workloads"]),
    ("crates/workloads", &[]),
    ("testbed", &[]),
    (
        "testbed/bench",
        &[
            "page",
            "published",
            "sim",
            "testbed",
            "witness",
            "workloads",
        ],
    ),
    ("testbed/dilate", &[]),
    ("testbed/plugin", &["witness"]),
    ("testbed/witness", &["workloads"]),
];

#[test]
fn no_forbidden_edge() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let crates_in = |folder: &str| -> Vec<String> {
        let entries = fs::read_dir(root.join(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name());
        let paths = names.map(|name| format!("{folder}/{}", name.to_str().unwrap()));
        let is_crate = |path: &String| root.join(path).join("Cargo.toml").exists();
        paths.filter(is_crate).collect()
    };
    let mut rooms: BTreeSet<String> = crates_in("crates").into_iter().collect();
    rooms.extend(crates_in("testbed"));
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
