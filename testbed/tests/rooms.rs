//! The rooms of ARCHITECTURE.md: which crate uses which, what the model needs to be built, and
//! which rooms are pure.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A crate, by its folder.
struct Room {
    folder: &'static str,
    /// The other rooms that it uses.
    uses: &'static [&'static str],
    /// Those that its tests use, too.
    tested_with: &'static [&'static str],
    /// What its build script uses, rooms or not: that decides what a host needs to build it.
    built_with: &'static [&'static str],
}

const fn room(folder: &'static str, uses: &'static [&'static str]) -> Room {
    Room {
        folder,
        uses,
        tested_with: &[],
        built_with: &[],
    }
}

/// Every room with every edge. A new crate needs a line here, and a surprising edge its reason.
const ROOMS: &[Room] = &[
    room("crates/events", &[]),
    room("crates/hint", &[]),
    Room {
        // The rule is in C, which BPF programs include.
        built_with: &["cc"],
        ..room("crates/hotness", &[])
    },
    room("crates/engine", &["hotness"]),
    Room {
        built_with: &["libbpf-cargo"],
        ..room("crates/linux", &["hotness", "engine", "events"])
    },
    room("crates/page", &[]),
    room("crates/profile", &[]),
    room("crates/published", &[]),
    Room {
        // Of these only `engine` and `hotness` without the feature `kernel`.
        built_with: &["libbpf-cargo"],
        ..room(
            "crates/sources",
            &["engine", "events", "hint", "hotness", "linux", "profile"],
        )
    },
    room(
        "crates/daemon",
        &["hotness", "engine", "events", "linux", "profile", "sources"],
    ),
    Room {
        // A plan that knows its hot set, for what is drawn of it.
        tested_with: &["workloads"],
        ..room(
            "crates/cli",
            &[
                "engine", "events", "hint", "hotness", "linux", "page", "sources", "daemon", "sim",
                "profile",
            ],
        )
    },
    room(
        "crates/sim",
        &[
            "engine",
            "hotness",
            "page",
            "sources",
            "profile",
            "published",
            "sockets",
            // The plans: what they say of accesses is what the model plays.
            "workloads",
        ],
    ),
    // Random numbers.
    room("crates/sockets", &["workloads"]),
    Room {
        // A workload that hints by the C header, as an application would.
        built_with: &["cc"],
        ..room("crates/workloads", &[])
    },
    Room {
        // VM tests play what a guest did on the model, and compare with what the witness counted.
        tested_with: &["sim", "witness"],
        ..room("testbed", &[])
    },
    room(
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
    room("testbed/dilate", &[]),
    room("testbed/plugin", &["witness"]),
    // The marks by which a workload says where it is.
    room("testbed/witness", &["workloads"]),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn cargo(arguments: &[&str]) -> String {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(arguments).args(["--offline", "--locked"]);
    let output = cargo.current_dir(root()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo {arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// What a package depends on, without the `pghot-` of rooms; others are left out unless asked for.
fn dependencies(package: &Value, kind: Option<&str>, with_others: bool) -> BTreeSet<String> {
    let all = package["dependencies"].as_array().unwrap().iter();
    let names = all
        .filter(|it| it["kind"].as_str() == kind)
        .map(|it| it["name"].as_str().unwrap());
    let named = |name: &str| match name.strip_prefix("pghot-") {
        Some(room) => Some(room.to_owned()),
        None => with_others.then(|| name.to_owned()),
    };
    names.filter_map(named).collect()
}

#[test]
fn every_edge_is_stated_and_every_stated_edge_is_there() {
    let metadata: Value =
        serde_json::from_str(&cargo(&["metadata", "--no-deps", "--format-version=1"])).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let folder = |package: &Value| {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let folder = manifest.parent().unwrap().strip_prefix(root());
        folder.unwrap().to_str().unwrap().to_owned()
    };
    let mut packages: BTreeMap<String, &Value> =
        packages.iter().map(|it| (folder(it), it)).collect();
    for room in ROOMS {
        let stated = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let package = packages
            .remove(room.folder)
            .unwrap_or_else(|| panic!("there is no room {}", room.folder));
        for (kind, uses, with_others) in [
            (None, room.uses, false),
            (Some("dev"), room.tested_with, false),
            (Some("build"), room.built_with, true),
        ] {
            let found = dependencies(package, kind, with_others);
            let stated: BTreeSet<String> = stated(uses);
            assert_eq!(found, stated, "{}, {kind:?}", room.folder);
        }
    }
    let unstated: Vec<_> = packages.keys().collect();
    assert!(unstated.is_empty(), "rooms without a line: {unstated:?}");
}

/// The model is for every machine, a laptop without a lower tier and a CI job without clang too.
#[test]
fn the_model_is_built_without_bpf() {
    let tree = cargo(&[
        "tree",
        "--package=pghot-sim",
        "--edges=normal,build,dev",
        "--prefix=none",
    ]);
    let names: BTreeSet<&str> = tree.lines().filter_map(|it| it.split(' ').next()).collect();
    assert!(names.contains("pghot-sources"), "{names:?}");
    for name in names {
        let is_bpf = ["bpf", "libelf", "bindgen", "clang"].map(|part| name.contains(part));
        assert!(!is_bpf.contains(&true), "{name}");
        assert_ne!(name, "pghot-linux");
    }
}

/// Where the same input gives the same output: nothing there asks a clock or the system. The halves
/// of sources that touch the kernel stand in modules of that name.
const PURE: &[&str] = &[
    "crates/engine/src",
    "crates/hotness/src",
    "crates/published/src",
    "crates/sim/src",
    "crates/sources/src",
];

/// What a pure file must not name; `std::{` would hide it.
const IMPURE: &[&str] = &[
    "Instant",
    "SystemTime",
    "libc",
    "std::env",
    "std::fs",
    "std::net",
    "std::os",
    "std::process",
    "std::thread",
    "std::{",
];

/// What may be named all the same. An entry that is not needed any more fails too.
const EXEMPT: &[(&str, &[&str])] = &[
    // Scenarios are files.
    ("crates/sim/src/scenario/file.rs", &["std::fs"]),
    // Runs that know nothing of each other, side by side.
    ("crates/sim/src/parallel.rs", &["std::thread"]),
    ("crates/sim/src/tables/autonuma.rs", &["std::thread"]),
    // Records profiles of a running machine; no source, and compiled for a kernel alone.
    (
        "crates/sources/src/recorder/mod.rs",
        &["libc", "std::fs", "std::process"],
    ),
    (
        "crates/sources/src/recorder/order.rs",
        &["std::fs", "std::thread"],
    ),
];

fn rust_files(folder: &Path, sink: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.extension() {
            None if path.is_dir() => rust_files(&path, sink),
            Some(extension) if extension == "rs" => sink.push(path),
            _ => {}
        }
    }
}

/// Whether the code names it, comments aside.
fn names(code: &str, what: &str) -> bool {
    let is_part = |char: char| char.is_alphanumeric() || char == '_';
    let lines = code.lines().filter(|it| !it.trim_start().starts_with("//"));
    let mut found = lines.flat_map(|line| line.match_indices(what).map(move |(at, _)| (line, at)));
    found.any(|(line, at)| {
        let before = line[..at].chars().next_back();
        let behind = line[at + what.len()..].chars().next();
        let is_longer = what.ends_with(is_part) && behind.is_some_and(is_part);
        !is_longer && !before.is_some_and(is_part)
    })
}

#[test]
fn pure_rooms_ask_no_clock_and_no_system() {
    let mut found = BTreeMap::<String, BTreeSet<&str>>::new();
    for folder in PURE {
        let mut files = Vec::new();
        rust_files(&root().join(folder), &mut files);
        assert!(files.len() > 2, "{folder} has moved");
        for file in files {
            let path = file.strip_prefix(root()).unwrap().to_str().unwrap();
            let is_kernels = path.contains("/kernel/") || path.ends_with("/kernel.rs");
            if is_kernels && *folder == "crates/sources/src" {
                continue;
            }
            let code = fs::read_to_string(&file).unwrap();
            let named = IMPURE.iter().copied().filter(|what| names(&code, what));
            let named: BTreeSet<&str> = named.collect();
            if !named.is_empty() {
                found.insert(path.to_owned(), named);
            }
        }
    }
    let exempt = |(path, what): &(&str, &[&'static str])| {
        let what: BTreeSet<&str> = what.iter().copied().collect();
        ((*path).to_owned(), what)
    };
    assert_eq!(found, EXEMPT.iter().map(exempt).collect());
}
