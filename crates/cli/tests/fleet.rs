//! The Python package in `fleet/`, on a Ray cluster of this machine, the queries over profiles in
//! `packaging/queries`, and the rules that compare hosts, with this very binary. What they need is
//! where `testbed/setup.sh` puts it.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;

use pghot_profile::{Interval, Process, Profile, Touched, file};
use serde_json::Value;

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
        cgroup: format!("/kubepods.slice/pod{}", number + seed % 3),
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
        elapsed_ms: 0,
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

/// What a modelled host of this seed counts in a minute, as the series of a fleet's Prometheus.
fn host(track: &str, seed: u32, settings: &[&str]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pghot = Command::new(env!("CARGO_BIN_EXE_pghot"));
    pghot.args(["sim", "run", "crates/sim/scenarios/promote.toml", "--json"]);
    pghot.args(["--systems", "pghot", "--seed", &seed.to_string()]);
    for setting in settings {
        pghot.args(["--set", &format!("pghot.{setting}")]);
    }
    let output = pghot.current_dir(root).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let run = &answer["runs"][0];
    let minutes = run["elapsed_s"].as_f64().unwrap() / 60.0;
    let mut series = String::new();
    let mut add = |name: &str, labels: &str, count: &Value| {
        let per_minute = count.as_f64().unwrap() / minutes;
        let labels = format!("instance=\"{track}{seed}\",track=\"{track}\"{labels}");
        series += &format!("  - series: 'pghot_{name}_total{{{labels}}}'\n");
        series += &format!("    values: '0+{per_minute}x60'\n");
    };
    let details = &run["details"];
    let faults = details["marking"]["fault_times"].as_array().unwrap();
    for (class, count) in faults[..8].iter().enumerate() {
        let until_ms = format!(",until_ms=\"{}\"", 8 << class);
        add("hint_faults", &until_ms, count);
    }
    let counters = &run["counters"];
    let marked = ",counter=\"numa_pte_updates\"";
    add("vmstat_growth", marked, &counters["marked_pages"]);
    let returned = &details["lower_tier"][0]["totals"]["returned_pages"];
    add("returned_pages", ",nid=\"1\"", returned);
    let cpu_s = counters["daemon_ns"].as_f64().unwrap() / 1e9;
    add("cpu_seconds", "", &cpu_s.into());
    series
}

/// Hosts with these settings, of which each has another seed.
fn hosts(track: &str, settings: &[&str]) -> Vec<String> {
    let seeds = if track == "stable" { 1..7 } else { 11..16 };
    seeds.map(|seed| host(track, seed, settings)).collect()
}

/// What fires after an hour on such a fleet, by `touched_soon`; nothing else may.
fn fires(stable: &[String], canary: &[String], expected: &[&str]) {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/prometheus");
    let alerts = expected.iter().map(|alert| {
        let labels = format!("alertname=\"{alert}\",measure=\"touched_soon\"");
        format!("\n    - labels: '{{{labels}}}'\n      value: 1")
    });
    let test = format!(
        "rule_files: ['{}']\nevaluation_interval: 1m\ntests:\n- interval: 1m\n  \
         input_series:\n{}  promql_expr_test:\n  \
         - expr: 'count by (alertname, measure) (ALERTS{{alertstate=\"firing\"}})'\n    \
         eval_time: 60m\n    exp_samples:{}\n",
        rules.join("canary.rules.yml").display(),
        [stable, canary].concat().concat(),
        alerts.collect::<String>(),
    );
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("hosts.yml");
    std::fs::write(&file, &test).unwrap();
    let mut promtool = Command::new(cache().join("bench/prometheus/usr/bin/promtool"));
    let output = promtool
        .args(["test", "rules"])
        .arg(&file)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "{said}\n{test}");
}

#[test]
fn a_canary_tells_harm_from_noise_on_modelled_hosts() {
    let slow = &["promote_rate_limit_MBps=1"];
    let (usual, slow_canary) = (hosts("stable", &[]), hosts("canary", slow));
    let other_batches = hosts("canary", &["kmigrated_batch_nr=1024"]);
    fires(&usual, &other_batches, &[]);
    fires(&usual, &slow_canary, &["PghotCanaryWorse"]);
    fires(&usual, &slow_canary[..4], &[]);
    let slow = hosts("stable", slow);
    fires(&slow, &hosts("canary", &[]), &["PghotCanaryBetter"]);
}
