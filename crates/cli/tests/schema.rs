//! What commands print with `--json` is what the schema in `docs/reference` says, checked by a
//! program of the client for Python. Those that need a daemon are checked in its own crate.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

/// What is wrong with a document, one a line.
fn errors(document: &str, value: &Value) -> String {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/tests/schema.py");
    let mut child = Command::new("python3")
        .arg(program)
        .arg(document)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("python3 is needed: `make setup` installs it");
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(value.to_string().as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.is_empty(), "{stderr}");
    String::from_utf8(output.stdout).unwrap()
}

fn assert_valid(document: &str, value: &Value) {
    assert_eq!(errors(document, value), "", "{document}");
    assert_eq!(value["schema"], 1);
}

fn printed(args: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_pghot"))
        .args(args)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {stderr}"))
}

#[test]
fn what_commands_print_is_what_the_schema_says() {
    let mut doctor = printed(&["doctor", "--json"]);
    assert_valid("doctor", &doctor);
    doctor["verdict"] = json!("perhaps");
    doctor["nodes"] = json!(null);
    let wrong = errors("doctor", &doctor);
    assert!(
        wrong.contains("perhaps") && wrong.contains("/nodes"),
        "{wrong}"
    );

    let dir = tempfile::tempdir().unwrap();
    let scenario = dir.path().join("small.toml");
    let text = "name = 'small'\n[[machine.node]]\nmemory_mib = 64\ncpus = 2\n\
                latency_ns = [100, 250]\n[[machine.node]]\nmemory_mib = 128\n[[process]]\n\
                workload = 'promote'\nmemory_mib = 16\naccesses = 2_000_000\n";
    std::fs::write(&scenario, text).unwrap();
    let scenario = scenario.to_str().unwrap();
    let systems = ["--systems", "none,pghot,numab2,damon", "--json"];
    let runs = printed(&[&["sim", "run", scenario][..], &systems].concat());
    assert_eq!(runs["runs"].as_array().unwrap().len(), 4);
    assert_valid("sim_run", &runs);
    let out = dir.path().join("out");
    let advise = printed(&["advise", scenario, "--json", "--out", out.to_str().unwrap()]);
    assert!(!advise["answers"][0]["needs"].as_array().unwrap().is_empty());
    assert_valid("advise", &advise);
    let tables = printed(&["sim", "tables", "thp", "--json"]);
    assert!(!tables["tables"][0]["cells"].as_array().unwrap().is_empty());
    assert_valid("sim_tables", &tables);
}
