//! OTLP over HTTP, in JSON: a request for each delivery, on a connection of its own.
//!
//! The crates of OpenTelemetry would add 1.1 MB and forty crates, and do not say how many spans
//! they drop. What is sent is checked against their types in the tests.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::span::Span;

/// For the collector to take spans and to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A longer head of an answer is not read.
const HEAD_BYTES_MAX: usize = 8192;

/// Sends spans; an error, in words, if the collector did not take them.
pub fn send(collector: SocketAddr, spans: &[Span]) -> Result<(), String> {
    let status = post(collector, &body(spans).to_string()).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "it does not answer".to_owned(),
        _ => error.to_string(),
    })?;
    match status {
        200..300 => Ok(()),
        status => Err(format!("it answers {status}")),
    }
}

/// The request, as the protocol has it: numbers of 64 bits are strings, ids are in hex.
fn body(spans: &[Span]) -> Value {
    let attribute = |key: &str, value: Value| json!({ "key": key, "value": value });
    let span = |span: &Span| {
        let counts = span.attributes.iter();
        let counts =
            counts.map(|(key, count)| attribute(key, json!({ "intValue": count.to_string() })));
        json!({
            "traceId": format!("{:032x}", span.trace),
            "spanId": format!("{:016x}", span.id),
            "parentSpanId": span.parent.map_or(String::new(), |id| format!("{id:016x}")),
            "name": span.name,
            "kind": 1,
            "startTimeUnixNano": span.started_ns.to_string(),
            "endTimeUnixNano": span.ended_ns.to_string(),
            "attributes": counts.collect::<Vec<_>>(),
        })
    };
    let version = env!("CARGO_PKG_VERSION");
    json!({ "resourceSpans": [{
        "resource": { "attributes": [
            attribute("service.name", json!({ "stringValue": "pghot" })),
            attribute("service.version", json!({ "stringValue": version })),
        ] },
        "scopeSpans": [{
            "scope": { "name": "pghot", "version": version },
            "spans": spans.iter().map(span).collect::<Vec<_>>(),
        }],
    }] })
}

/// The status of the answer.
fn post(collector: SocketAddr, body: &str) -> io::Result<u16> {
    let deadline = Instant::now() + PATIENCE;
    let mut stream = TcpStream::connect_timeout(&collector, PATIENCE)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let head = format!(
        "POST /v1/traces HTTP/1.1\r\nHost: {collector}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut answer = Vec::new();
    while answer.len() < HEAD_BYTES_MAX {
        let left = deadline.saturating_duration_since(Instant::now());
        // A timeout of zero is none.
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let mut buffer = [0; 1024];
        let bytes = stream.read(&mut buffer)?;
        answer.extend(&buffer[..bytes]);
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut headers);
        match response.parse(&answer) {
            Ok(httparse::Status::Complete(_)) => return Ok(response.code.unwrap_or_default()),
            Ok(httparse::Status::Partial) if bytes > 0 => {}
            _ => break,
        }
    }
    Err(io::Error::other("its answer is not HTTP"))
}
