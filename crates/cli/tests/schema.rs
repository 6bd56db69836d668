//! What commands print with `--json` is what the schema in `docs/reference` says, each document of
//! it, checked by a program of the client for Python. The daemon is a fake that answers on its
//! socket; what a real one says is checked in its own crate.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use pghot_daemon::owners::{By, OwnerMoves, OwnerRow, OwnersReport};
use pghot_daemon::protocol::{
    DecisionReport, Explanation, RecordReport, Request, Response, read_request, to_line,
};
use pghot_daemon::status::{LowerNode, SCHEMA, Status};
use pghot_profile::{Interval, Process, Profile, Touched, file};
use serde_json::{Value, json};

/// Every document of the schema, and the command line that prints it in a folder of [`files`].
const DOCUMENTS: [(&str, &str); 10] = [
    ("status", "status --socket sock"),
    ("status_by", "status --by cgroup --socket sock"),
    ("heatmap", "heatmap a.profile"),
    ("explain", "explain 1 7f00 --socket sock"),
    ("explain_last", "explain --last 2 --socket sock"),
    ("doctor", "doctor"),
    ("advise", "advise small.toml --out out"),
    ("profile_show", "profile show a.profile"),
    (
        "sim_run",
        "sim run small.toml --systems none,pghot,numab2,damon",
    ),
    ("sim_tables", "sim tables thp"),
];

fn schema_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/pghot.schema.json")
}

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

fn printed(dir: &Path, line: &str) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_pghot"))
        .args(line.split(' ').chain(["--json"]))
        .current_dir(dir)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let value = serde_json::from_slice(&output.stdout);
    value.unwrap_or_else(|error| panic!("{line}: {error}: {stderr}"))
}

/// A folder with a scenario, a profile and a daemon's socket.
fn files() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let text = "name = 'small'\n[[machine.node]]\nmemory_mib = 64\ncpus = 2\n\
                latency_ns = [100, 250]\n[[machine.node]]\nmemory_mib = 128\n[[process]]\n\
                workload = 'promote'\nmemory_mib = 16\naccesses = 2_000_000\n";
    fs::write(dir.path().join("small.toml"), text).unwrap();
    let profile = Profile {
        kernel: "6.12.0".into(),
        interval_ms: 1000,
        intervals: 4,
        elapsed_ms: 0,
        disturbed_by: Vec::new(),
        processes: vec![Process {
            name: "one".into(),
            cgroup: String::new(),
            blocks: 2,
            huge_blocks: 0,
            intervals: vec![Interval {
                number: 1,
                cpu_us: 500_000,
                touched: Touched::of(std::iter::once(0..512).collect()),
                lower: Touched::of(std::iter::once(256..512).collect()),
            }],
        }],
    };
    fs::write(dir.path().join("a.profile"), file::encode(&profile)).unwrap();
    let listener = UnixListener::bind(dir.path().join("sock")).unwrap();
    // Ends with the process.
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut requests = BufReader::new(&stream);
            while let Ok(Some(Ok(request))) = read_request(&mut requests) {
                let _ = (&stream).write_all(&to_line(&answer(&request)));
            }
        }
    });
    dir
}

fn answer(request: &Request) -> Response {
    let decision = || DecisionReport {
        ago_ms: 7,
        pfn: Some(5),
        nid: 2,
        target: 0,
        pid: None,
        file: Some("8:1:77".into()),
        address: Some(0x1000),
        pages: 512,
        freq: 2,
        age_ms: 100,
        outcome: "busy".into(),
        why: "the kernel found it busy".into(),
    };
    let row = OwnerRow {
        moves: OwnerMoves {
            name: "/a".into(),
            not_moved: [("busy".to_owned(), 3)].into(),
            ..OwnerMoves::default()
        },
        bytes: Some([(0, 4096)].into()),
        ..OwnerRow::default()
    };
    match request {
        Request::Status => Response::Status(Box::new(Status {
            schema: SCHEMA,
            lower_tier: vec![LowerNode::default()],
            cgroups: vec![row],
            ..Status::default()
        })),
        Request::Owners { .. } => Response::Owners(Box::new(OwnersReport {
            by: By::Cgroup,
            rows: vec![row],
            notes: vec!["so it is".into()],
        })),
        Request::Explain { pid, address } => Response::Explanation(Box::new(Explanation {
            pid: *pid,
            address: *address,
            pfn: Some(5),
            nid: None,
            record: Some(RecordReport {
                freq: 2,
                age_ms: 3,
                ready: true,
            }),
            decision: Some(decision()),
            sentences: vec!["It waits.".into()],
        })),
        _ => Response::Decisions(vec![decision()]),
    }
}

/// A document that is new is in the schema, and then it must be in the table.
#[test]
fn the_table_has_every_document() {
    let schema: Value = serde_json::from_slice(&fs::read(schema_file()).unwrap()).unwrap();
    let documents = schema["anyOf"].as_array().unwrap().iter();
    let documents = documents.map(|document| document["$ref"].as_str().unwrap());
    let expected = DOCUMENTS.map(|(name, _)| format!("#/$defs/{name}"));
    assert_eq!(documents.collect::<Vec<_>>(), expected);
}

#[test]
fn what_commands_print_is_what_the_schema_says() {
    let dir = files();
    for (document, line) in DOCUMENTS {
        let value = printed(dir.path(), line);
        assert_eq!(errors(document, &value), "", "{document}");
        assert_eq!(value["schema"], SCHEMA, "{document}");
        // And a field that is missing is found: each document requires some.
        let nothing = errors(document, &json!({ "schema": SCHEMA }));
        assert!(!nothing.is_empty(), "{document}");
    }
}

/// What is checked is there.
#[test]
fn the_documents_are_not_empty() {
    let dir = files();
    let filled = |line: &str, pointer: &str| {
        let value = printed(dir.path(), line);
        let list = value.pointer(pointer).and_then(Value::as_array);
        let is_filled = list.is_some_and(|list| !list.is_empty());
        assert!(is_filled, "{line}: {pointer}: {value}");
    };
    filled("heatmap a.profile", "/programs/0/touched");
    filled("profile show a.profile", "/profiles");
    filled("sim tables thp", "/tables/0/cells");
    filled("sim run small.toml", "/runs");
    filled("advise small.toml --out out", "/answers/0/needs");
}

#[test]
fn what_is_wrong_is_named() {
    let dir = files();
    let mut doctor = printed(dir.path(), "doctor");
    doctor["verdict"] = json!("perhaps");
    doctor["nodes"] = json!(null);
    let wrong = errors("doctor", &doctor);
    let is_named = |part: &str| wrong.contains(part);
    assert!(is_named("perhaps") && is_named("/nodes"), "{wrong}");
}
