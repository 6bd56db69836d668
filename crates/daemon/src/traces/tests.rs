//! Collectors of every kind.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Instant;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span as Taken;
use pghot_engine::fake::FakeMachine;
use pghot_engine::{Gates, Held, History, Migrator};

use super::*;
use crate::testing::{LOWER_PFN, daemon};
use crate::{lock, migrator};

/// For anything here that takes a moment.
const LIMIT: Duration = Duration::from_secs(60);

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Takes one request, and answers it.
fn take(listener: &TcpListener, status: &str) -> ExportTraceServiceRequest {
    let (mut stream, _) = listener.accept().unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut length = 0;
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line == "\r\n" {
            break;
        }
        if let Some(text) = line.strip_prefix("Content-Length: ") {
            length = text.trim().parse().unwrap();
        }
        head.push(line);
    }
    assert_eq!(head[0], "POST /v1/traces HTTP/1.1\r\n");
    assert!(head.contains(&"Content-Type: application/json\r\n".to_owned()));
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\n{{}}").unwrap();
    serde_json::from_slice(&body).unwrap()
}

fn spans(request: &ExportTraceServiceRequest) -> &[Taken] {
    &request.resource_spans[0].scope_spans[0].spans
}

fn count(span: &Taken, key: &str) -> Option<i64> {
    let attribute = span.attributes.iter().find(|it| it.key == key)?;
    match attribute.value.as_ref()?.value.as_ref()? {
        Value::IntValue(count) => Some(*count),
        other => panic!("{key} is {other:?}"),
    }
}

/// The migrator of node 2 promotes a page of process 4242, and another one finds no room.
#[test]
fn a_collector_gets_a_span_of_the_pass_and_of_its_batch() {
    let (listener, address) = listener();
    let dir = tempfile::tempdir().unwrap();
    let (mut shared, _) = daemon(dir.path());
    let (to, delivery) = Spans::start(Some(address)).unwrap();
    Arc::get_mut(&mut shared).unwrap().spans = to;
    let mut machine = FakeMachine::tiered3();
    machine.now_ms = monotonic().as_millis() as u64;
    machine.batch_ms = 30;
    machine.room_pages = [(0, 0), (1, 1)].into();
    let (settings, rule) = shared.settings_and_rule();
    for pfn in [LOWER_PFN, LOWER_PFN + 1] {
        machine.map(4242, pfn);
        for _ in 0..settings.freq_threshold {
            shared.table.report(pfn, 0, machine.now_ms, &rule);
        }
    }
    let passing = Arc::clone(&shared);
    let passes = thread::spawn(move || {
        let state = &passing.migrators[0];
        let journal = state.journal.clone();
        let migrator = Migrator::new(2, History::default(), Gates::default(), journal);
        migrator::run(&passing, state, migrator, &mut machine);
    });
    let request = take(&listener, "200 OK");
    shared.stop.request();
    passes.join().unwrap();
    let resource = request.resource_spans[0].resource.as_ref().unwrap();
    assert_eq!(resource.attributes[0].key, "service.name");
    let batch = spans(&request)
        .iter()
        .find(|it| it.name == "batch")
        .unwrap();
    let is_its_pass = |it: &&Taken| it.span_id == batch.parent_span_id;
    let pass = spans(&request).iter().find(is_its_pass).unwrap();
    assert_eq!((pass.name.as_str(), pass.parent_span_id.len()), ("pass", 0));
    assert_eq!((pass.trace_id.len(), pass.span_id.len()), (16, 8));
    assert_eq!(pass.trace_id, batch.trace_id);
    for (key, expected) in [
        ("pghot.nid", 2),
        ("pghot.ready_pages", 2),
        ("pghot.picked_pages", 1),
        ("pghot.moved_pages", 1),
        ("pghot.held.no_room", 1),
    ] {
        assert_eq!(count(pass, key), Some(expected), "{key}");
    }
    for (key, expected) in [
        ("pghot.target_nid", 1),
        ("pghot.pid", 4242),
        ("pghot.pages", 1),
    ] {
        assert_eq!(count(batch, key), Some(expected), "{key}");
    }
    let took_ns = |span: &Taken| span.end_time_unix_nano - span.start_time_unix_nano;
    assert_eq!(took_ns(batch), 30_000_000);
    assert!(took_ns(pass) >= 30_000_000);
    let now_ns = UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let age_s = now_ns.abs_diff(pass.start_time_unix_nano) / 1_000_000_000;
    assert!(age_s < 600, "{age_s} s");
    let published = lock(&shared.migrators[0].published).clone();
    assert_eq!(published.batches.counts.iter().sum::<u64>(), 1);
    drop(listener);
    drop(delivery);
}

fn pass() -> PassReport {
    PassReport {
        ready: 7,
        held: [(Held::RateLimit, 7)].into(),
        ..PassReport::default()
    }
}

/// Notes passes until `is_enough`, and says how long the slowest took.
fn note_until(spans: &Spans, is_enough: impl Fn() -> bool) -> Duration {
    let (deadline, mut longest) = (Instant::now() + LIMIT, Duration::ZERO);
    while !is_enough() {
        assert!(Instant::now() < deadline, "{} lost", spans.lost());
        let before = Instant::now();
        spans.note_pass(2, (1, 2), &pass(), &[]);
        longest = longest.max(before.elapsed());
    }
    println!("the slowest pass took {longest:?} to leave its span");
    longest
}

/// It accepts, as the kernel does for every listener, and never answers.
#[test]
fn a_collector_that_hangs_delays_neither_a_pass_nor_the_end() {
    let (listener, address) = listener();
    let (spans, delivery) = Spans::start(Some(address)).unwrap();
    let longest = note_until(&spans, || spans.lost() > 100_000);
    assert!(longest < Duration::from_secs(2), "{longest:?}");
    let before = Instant::now();
    drop(delivery);
    assert!(before.elapsed() < Duration::from_secs(4));
    drop(listener);
}

#[test]
fn what_a_collector_refuses_or_is_not_there_for_is_counted() {
    let (listener, address) = listener();
    let (to, _delivery) = Spans::start(Some(address)).unwrap();
    to.note_pass(2, (1, 2), &pass(), &[]);
    let request = take(&listener, "503 Service Unavailable");
    assert_eq!(count(&spans(&request)[0], "pghot.held.rate_limit"), Some(7));
    note_until(&to, || to.lost() > 0);
    drop(listener);
    let lost = to.lost();
    note_until(&to, || to.lost() > lost);
}

#[test]
fn idle_passes_are_not_worth_a_span() {
    let (listener, address) = listener();
    let (to, delivery) = Spans::start(Some(address)).unwrap();
    to.note_pass(2, (1, 2), &PassReport::default(), &[]);
    to.note_pass(3, (1, 2), &pass(), &[]);
    let (sender, taken) = mpsc::channel();
    let taking = thread::spawn(move || sender.send(take(&listener, "200 OK")).unwrap());
    drop(delivery);
    let request = taken.recv_timeout(LIMIT).unwrap();
    assert_eq!(spans(&request).len(), 1);
    assert_eq!(to.lost(), 0);
    taking.join().unwrap();
}
