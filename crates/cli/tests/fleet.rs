//! The Python package in `fleet/`, on a Ray cluster of this machine, and the queries over profiles
//! in `packaging/queries`, with this very binary. What they need is where `testbed/setup.sh` puts
//! it.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;

use pghot_profile::{Interval, Process, Profile, Touched, file};

fn cache() -> PathBuf {
    let cache = std::env::var_os("PGHOT_CACHE").map(PathBuf::from);
    let xdg = || Some(PathBuf::from(std::env::var_os("XDG_CACHE_HOME")?).join("pghot"));
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/pghot"));
    cache.or_else(xdg).or_else(home).unwrap()
}

fn python() -> Command {
    let python = cache().join("fleet/bin/python");
    assert!(
        python.exists(),
        "{} is missing: run testbed/setup.sh, which installs Ray and Optuna",
        python.display()
    );
    let mut command = Command::new(python);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

#[test]
fn the_fleet_package_passes_its_tests() {
    let output = python()
        .args(["-m", "unittest", "discover", "-s", "tests", "-v"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fleet"))
        .env("PGHOT", env!("CARGO_BIN_EXE_pghot"))
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("OK") && !said.contains("skipped"), "{said}");
}

/// Of one host: two programs, the numbers of which depend on `seed`.
fn profile(seed: u32) -> Profile {
    let process = |number: u32| Process {
        name: format!("program{number}"),
        blocks: 5 + seed % 3,
        huge_blocks: number,
        intervals: (number..12)
            .filter(|it| !(it + seed).is_multiple_of(4))
            .map(|number| Interval {
                number,
                cpu_us: u64::from(seed % 977 * 1013 + number),
                touched: Touched::of(vec![number..7 + seed % 100, 700..1201 + seed % 7]),
                lower: Touched::of(std::iter::once(700..900 + number).collect()),
            })
            .collect(),
    };
    Profile {
        kernel: "6.12.0".into(),
        interval_ms: 700 + seed % 3 * 150,
        intervals: 12,
        disturbed_by: Vec::new(),
        processes: vec![process(0), process(1)],
    }
}

#[test]
fn sql_over_a_thousand_hosts_says_what_pghot_says() {
    let dir = tempfile::tempdir().unwrap();
    let hosts: Vec<String> = (0..1000).map(|n| format!("host{n:04}.profile")).collect();
    for (host, seed) in hosts.iter().zip(0..) {
        std::fs::write(dir.path().join(host), file::encode(&profile(seed))).unwrap();
    }
    let pghot = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pghot"));
        let output = command.args(args).current_dir(dir.path()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    };
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let export = [&["profile", "export", "-o", "fleet.parquet"], &hosts[..]].concat();
    assert_eq!(pghot(&export), "fleet.parquet: 1000 hosts\n");
    let shown = pghot(&["profile", "show", "fleet.parquet", "--json"]);
    // What the table says is what the profiles say.
    let direct = pghot(&[&["profile", "show", "--json"], &hosts[..]].concat());
    assert!(shown == direct && shown.len() > 100_000);
    std::fs::write(dir.path().join("shown.json"), shown).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fleet/tests/queries.py");
    let output = python()
        .arg(script)
        .args(["fleet.parquet", "shown.json"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert_eq!(String::from_utf8_lossy(&said), "");

    let back = [
        "profile",
        "import",
        "fleet.parquet",
        "--host",
        "host0123",
        "-o",
        "back",
    ];
    pghot(&back);
    let read = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    assert!(
        read("back") == read("host0123.profile"),
        "a profile comes back as it was"
    );
}
