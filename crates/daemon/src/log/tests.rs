//! What readers of every kind get, and that none of them is waited for.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use serde_json::Value;

use super::*;

/// What is written while `log` logs.
fn written(format: LogFormat, log: impl FnOnce()) -> Vec<String> {
    let (reader, writer) = io::pipe().unwrap();
    let lines = Outbox::new(LINES_MAX);
    let delivery = deliver(&lines, writer, |_| {}).unwrap();
    let to = dispatch(format, EnvFilter::new("info"), false, lines.clone());
    tracing::dispatcher::with_default(&to, log);
    drop((to, delivery));
    let lines = BufReader::new(reader).lines();
    lines.map(|line| line.unwrap()).collect()
}

fn say() {
    let source = "hint_fault";
    event!(source_started, source, "source {source} started");
    tracing::debug!("a detail");
    event!(setting_restored, path = %"/proc/x", "it is 1 again\nat last");
}

#[test]
fn a_line_for_people_is_a_sentence_with_its_id() {
    let lines = written(LogFormat::Text, say);
    assert!(
        lines[0].ends_with("  INFO source hint_fault started [source_started]"),
        "{lines:?}"
    );
    assert!(!lines.concat().contains("a detail"), "{lines:?}");
}

#[test]
fn a_line_for_programs_is_an_object() {
    let lines = written(LogFormat::Json, say);
    let line: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(line["level"], "INFO");
    assert_eq!(line["event"], "source_started");
    assert_eq!(line["source"], "hint_fault");
    assert_eq!(line["message"], "source hint_fault started");
    assert!(line["timestamp"].as_str().unwrap().ends_with('Z'));
    assert_eq!(
        lines.len(),
        2,
        "a break in a sentence is no break of the line"
    );
}

#[test]
fn an_entry_of_the_journal_has_fields() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let journal = UnixDatagram::bind(&path).unwrap();
    let lines = Outbox::new(LINES_MAX);
    let socket = journal::Socket::open(path.to_str().unwrap()).unwrap();
    let delivery = deliver(&lines, socket, |_| {}).unwrap();
    let to = dispatch(LogFormat::Journald, EnvFilter::new("info"), false, lines);
    tracing::dispatcher::with_default(&to, say);
    let mut buffer = [0; 4096];
    let length = journal.recv(&mut buffer).unwrap();
    let entry = String::from_utf8(buffer[..length].to_vec()).unwrap();
    for line in [
        "PRIORITY=6",
        "SYSLOG_IDENTIFIER=pghot",
        "PGHOT_EVENT=source_started",
        "PGHOT_SOURCE=hint_fault",
        "MESSAGE=source hint_fault started",
    ] {
        assert!(entry.lines().any(|it| it == line), "{line} in {entry}");
    }
    // A value of several lines has its length before it.
    let length = journal.recv(&mut buffer).unwrap();
    let message = b"MESSAGE\n\x15\0\0\0\0\0\0\0it is 1 again\nat last\n";
    let entry = &buffer[..length];
    assert!(entry.windows(message.len()).any(|it| it == message));
    drop(delivery);
}

#[test]
fn the_journal_is_known_by_its_stream() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, other) = (dir.path().join("ours"), dir.path().join("other"));
    let (ours, other) = (File::create(ours).unwrap(), File::create(other).unwrap());
    let meant = ours.metadata().unwrap();
    let stream = format!("{}:{}", meant.dev(), meant.ino());
    assert!(journal::is_stream(&stream, &ours));
    assert!(!journal::is_stream(&stream, &other));
    assert!(!journal::is_stream("", &ours));
}

#[test]
fn no_journal_is_one_sentence() {
    let error = journal::Socket::open("/nonexistent/socket").err().unwrap();
    let error = LogError(error).to_string();
    assert!(
        error.contains("no journal listens on /nonexistent"),
        "{error}"
    );
}

/// More lines than any pipe or queue takes.
const FLOOD: u64 = 50_000;

/// Logs them, and says how long the slowest call took.
fn flood(format: LogFormat, lines: &Outbox<Line>) -> Duration {
    let to = dispatch(format, EnvFilter::new("info"), false, lines.clone());
    let mut longest = Duration::ZERO;
    tracing::dispatcher::with_default(&to, || {
        for number in 0..FLOOD {
            let before = Instant::now();
            event!(source_started, number, "{number}");
            longest = longest.max(before.elapsed());
        }
    });
    println!("the slowest of {FLOOD} calls took {longest:?}");
    longest
}

/// Far more than a call takes on a busy machine, and nothing to who waits for a reader that never
/// reads.
const PATIENCE: Duration = Duration::from_secs(2);

#[test]
fn a_full_pipe_delays_nobody_and_its_reader_learns_what_is_missing() {
    let (reader, writer) = io::pipe().unwrap();
    let lines = Outbox::new(LINES_MAX);
    let (to, from) = mpsc::channel();
    let delivery = deliver(&lines, writer, move |missing| to.send(missing).unwrap()).unwrap();
    let longest = flood(LogFormat::Text, &lines);
    assert!(longest < PATIENCE, "{longest:?}");
    let lost = lines.lost();
    assert!(lost > 10_000, "{lost}");
    // The reader comes back.
    let mut read = BufReader::new(reader).lines();
    let first = read.next().unwrap().unwrap();
    assert!(first.ends_with(" 0 [source_started]"), "{first}");
    let rest = thread::spawn(move || read.count());
    assert_eq!(from.recv().unwrap(), lost);
    drop(delivery);
    assert_eq!(rest.join().unwrap() as u64 + 1 + lost, FLOOD);
}

#[test]
fn a_journal_that_hangs_delays_neither_who_logs_nor_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let hanging = UnixDatagram::bind(&path).unwrap();
    let lines = Outbox::new(LINES_MAX);
    let socket = journal::Socket::open(path.to_str().unwrap()).unwrap();
    let delivery = deliver(&lines, socket, |_| {}).unwrap();
    let longest = flood(LogFormat::Journald, &lines);
    assert!(longest < PATIENCE, "{longest:?}");
    assert!(lines.lost() > 10_000, "{}", lines.lost());
    let before = Instant::now();
    drop(delivery);
    assert!(before.elapsed() < 2 * PATIENCE, "{:?}", before.elapsed());
    drop(hanging);
}

#[test]
fn a_reader_that_is_gone_is_counted() {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let lines = Outbox::new(LINES_MAX);
    let delivery = deliver(&lines, writer, |_| {}).unwrap();
    let to = dispatch(
        LogFormat::Text,
        EnvFilter::new("info"),
        false,
        lines.clone(),
    );
    tracing::dispatcher::with_default(&to, say);
    drop(delivery);
    assert_eq!(lines.lost(), 2);
}
