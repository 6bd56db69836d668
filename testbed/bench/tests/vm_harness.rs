//! The harness works: a small comparison runs, is judged, written, and resumed. Who wins is not
//! asserted.

#![allow(clippy::expect_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

fn bench(out: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pghot-bench"));
    command.args(arguments).arg("--out").arg(out);
    command.output().expect("the harness was just built")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_small_comparison_is_run_judged_and_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "skewed",
        "--systems",
        "none,pghot,numab2",
        "--seeds",
        "1",
        "--guest-s",
        "6",
        "--dilation",
        "1",
    ];
    let output = bench(folder.path(), &arguments);
    assert!(output.status.success(), "{}", stderr(&output));

    let json = fs::read(folder.path().join("bench.json")).unwrap();
    let json: Value = serde_json::from_slice(&json).unwrap();
    let group = &json["groups"][0];
    assert_eq!(group["lines"].as_array().unwrap().len(), 3);
    let none = &group["lines"][0];
    assert_eq!(none["system"], "none");
    let median = |line: &Value, name: &str| line["measures"][name]["median"].clone();
    assert_eq!(median(none, "near_share"), 0.0, "nothing moves by itself");
    assert_eq!(median(none, "promoted_pages"), 0.0);
    // The witness is independent: what it saw moved is what the kernel says it moved, but for pages
    // that nobody touched afterwards. Of a short run's cold pages those can be more than half.
    for line in &group["lines"].as_array().unwrap()[1..] {
        let seen = median(line, "promoted_pages").as_f64().unwrap();
        let moved = median(line, "kernel_moves").as_f64().unwrap();
        assert!(moved > 0.0, "nothing moved: {line:#}");
        assert!(seen <= moved && seen >= moved / 4.0, "{line:#}");
    }
    let (oracle, none_s) = (&group["oracle_s"], &none["total_s"]["median"]);
    assert!(oracle.as_f64() < none_s.as_f64(), "{group:#}");
    assert!(!group["verdict"].as_str().unwrap().is_empty());
    let csv = fs::read_to_string(folder.path().join("bench.csv")).unwrap();
    assert_eq!(csv.lines().count(), 4, "{csv}");
    let html = fs::read_to_string(folder.path().join("bench.html")).unwrap();
    assert!(html.contains("polyline") && html.ends_with("</html>\n"));
    // Of the plots' SVG; nobody fetches it.
    let namespace = "http://www.w3.org/2000/svg";
    assert!(
        !html.replace(namespace, "").contains("http"),
        "it needs no network"
    );

    // Nothing is run again.
    let again = bench(folder.path(), &arguments);
    assert!(again.status.success());
    assert_eq!(stderr(&again), "");
}

/// Processes whose parent is this one, and that run QEMU.
fn emulators_of(parent: u32) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc is there").flatten() {
        let name = entry.file_name();
        let Ok(pid) = name.to_string_lossy().parse() else {
            continue;
        };
        // "pid (name) state parent ..."; who has ended meanwhile is none.
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let Some((name, rest)) = stat.rsplit_once(')') else {
            continue;
        };
        let is_its = rest.split_ascii_whitespace().nth(1) == Some(&parent.to_string());
        if is_its && name.contains("(qemu") {
            found.push(pid);
        }
    }
    found
}

#[test]
fn a_dead_guest_costs_its_cells_only() {
    // A guest that does not come up is booted again, twice.
    const KILLED: usize = 3;
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "stream",
        "--systems",
        "none",
        "--seeds",
        "2",
        "--guest-s",
        "1",
        "--dilation",
        "1",
    ];
    let mut child = Command::new(env!("CARGO_BIN_EXE_pghot-bench"))
        .args(arguments)
        .arg("--out")
        .arg(folder.path())
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut killed = BTreeSet::new();
    while killed.len() < KILLED {
        for pid in emulators_of(child.id()) {
            if killed.insert(pid) {
                // SAFETY: no memory is involved. It is a child of our child, which has not reaped
                // it.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
        }
        assert!(child.try_wait().unwrap().is_none(), "it ended early");
        thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().unwrap();
    let said = stderr(&output);
    assert!(!output.status.success());
    assert!(
        said.contains("1 of 2 cells failed; run the same again"),
        "{said}"
    );
    let html = fs::read_to_string(folder.path().join("bench.html")).unwrap();
    assert!(
        html.contains("stream-anon-none-7000000x2-1"),
        "what failed is told"
    );

    let again = bench(folder.path(), &arguments);
    assert!(again.status.success(), "{}", stderr(&again));
    let told = stderr(&again);
    let cells = told.lines().filter(|line| line.contains(": none ")).count();
    assert_eq!(cells, 1, "the other cell is kept: {told}");
}

#[test]
fn a_missing_rival_is_named() {
    let folder = tempfile::tempdir().unwrap();
    // Nothing was fetched there, whatever this host has.
    let output = Command::new(env!("CARGO_BIN_EXE_pghot-bench"))
        .args(["stream", "--systems", "memtierd", "--seeds", "1", "--out"])
        .arg(folder.path())
        .env("PGHOT_CACHE", folder.path())
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = stderr(&output);
    assert!(
        said.contains("memtierd is missing (it was never fetched): run"),
        "{said}"
    );
}

#[test]
fn mistakes_are_answered_by_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, words) in [
        (&["promot"][..], "the workloads are promote"),
        (
            &["promote", "--systems", "autotier"],
            "the systems are none",
        ),
        (&["promote", "--kernels", "5.4"], "there is no kernel 5.4"),
        (&["promote", "--seeds", "0"], "1..=100"),
        (
            &["promote", "--store", "/proc/nowhere"],
            "it takes the folder of bench.md",
        ),
        (&["promote", "--backings", "tape"], "possible values: anon"),
        (
            &["promote", "--preset", "best"],
            "possible values: full, quick, demo",
        ),
    ] {
        let output = bench(folder.path(), arguments);
        assert!(!output.status.success());
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
    let output = bench(Path::new("/proc/nowhere"), &["promote"]);
    assert!(
        stderr(&output).contains("cannot make /proc/nowhere"),
        "{}",
        stderr(&output)
    );
}
