//! Runs `hotset` on this machine's node 0, as home and fast node at once: what needs no tiers.

#![allow(
    clippy::unwrap_used,
    reason = "the helpers of these tests are not marked as tests"
)]

use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn hotset(flags: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hotset"));
    command.args(flags.split_whitespace());
    command
}

fn events(output: &Output) -> Vec<Value> {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = std::str::from_utf8(&output.stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The events of a run on node 0.
fn run(flags: &str) -> Vec<Value> {
    let common = "--size-mib 8 --home 0 --fast 0";
    events(&hotset(&format!("{common} {flags}")).output().unwrap())
}

#[test]
fn all_hot_run_reports_every_page() {
    for backing in ["anon", "shared"] {
        let events = run(&format!("--seconds 0.5 --backing {backing}"));
        let (ready, done) = (&events[0], &events[events.len() - 1]);
        assert_eq!(ready["event"], "ready");
        assert_eq!(ready["pages"], 2048);
        assert_eq!(ready["nodes"]["0"], 2048);
        let samples = &events[1..events.len() - 1];
        assert!(samples.len() >= 2, "{} samples", samples.len());
        assert!(samples.iter().all(|sample| sample["event"] == "sample"));
        assert!(samples.iter().all(|sample| sample["hot_fast"] == 2048));
        assert_eq!(done["event"], "done");
        assert_eq!(done["hot_promoted"], 2048);
        assert_eq!(done["hot_left"], 0);
        assert_eq!(done["recall"], 1.0);
        assert_eq!(done["errors"], 0);
        assert!(done["accesses"].as_u64().unwrap() > 0);
        assert!(done["worker_user_s"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn a_part_hot_run_tells_hot_from_cold() {
    let events = run("--seconds 0.5 --hot-percent 10 --cold-sweep-seconds 0.1 --threads 2");
    assert_eq!(events[0]["hot_pages"], 205);
    let done = &events[events.len() - 1];
    assert_eq!(done["hot_promoted"], 205);
    assert_eq!(done["cold_promoted"], 1843);
    assert!((done["precision"].as_f64().unwrap() - 0.1001).abs() < 1e-3);
}

#[test]
fn until_promoted_ends_early() {
    let events = run("--until-promoted --seconds 60");
    assert!(events[events.len() - 1]["elapsed_s"].as_f64().unwrap() < 5.0);
}

#[test]
fn forked_children_share_the_pages_and_go_away() {
    let events = run("--seconds 0.2 --forks 2 --store-percent 0");
    assert_eq!(events[events.len() - 1]["errors"], 0);
}

#[test]
fn held_it_begins_when_the_file_is_there() {
    let go = std::env::temp_dir().join(format!("hotset-go-{}", std::process::id()));
    let mut child = hotset("--size-mib 2 --home 0 --fast 0 --seconds 0.1 --hold")
        .arg(&go)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none(), "it did not wait");
    std::fs::write(&go, "").unwrap();
    let events = events(&child.wait_with_output().unwrap());
    assert_eq!(events[0]["event"], "ready");
    assert!(!go.exists());
}

#[test]
fn bad_input_is_one_sentence_and_no_panic() {
    let cases = [
        ("--size-mib 0 --home 0 --fast 0", "0 is not in 2..=8388608"),
        ("--size-mib 2 --home 0 --fast x", "'x' is not a number"),
        (
            "--size-mib 2 --home 0 --fast 0 --hot-percent 101",
            "101 is not in 1..=100",
        ),
        (
            "--size-mib 2 --home 0 --fast 0 --seconds -1",
            "expected a number of seconds",
        ),
        (
            "--size-mib 2 --home 0 --fast 0 --seconds nan",
            "expected a number of seconds",
        ),
        (
            "--size-mib 2 --home 999 --fast 0",
            "node 999 does not exist",
        ),
        (
            "--size-mib 8000000 --home 0 --fast 0",
            "node 0 has room for",
        ),
        (
            "--size-mib 2 --home 0 --fast 0 --cpus 8000",
            "CPU 8000 is not one",
        ),
    ];
    for (flags, expected) in cases {
        let output = hotset(flags).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{flags} was accepted");
        assert!(error.contains(expected), "{flags}: {error}");
        assert!(!error.contains("panicked"), "{flags}: {error}");
    }
}
