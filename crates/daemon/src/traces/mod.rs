//! Traces: a span of each pass that saw ready pages, with a span of each of its batches, for a
//! collector of OpenTelemetry.
//!
//! A migrator leaves them in an [`Outbox`], and a thread sends them. While the collector does not
//! take them, spans are lost and counted, and nobody waits.

mod otlp;
mod span;

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use pghot_engine::{Owner, PassReport};
use pghot_events::event;
use pghot_hotness::Nid;
use pghot_linux::host::monotonic;
use span::Span;

use crate::outbox::{Delivery, Outbox};
use crate::timed::TimedBatch;

/// Spans that may wait for the collector.
const SPANS_MAX: usize = 4096;

/// Spans of so long a time are sent together.
const LINGER: Duration = Duration::from_secs(1);

/// Where spans are left; nowhere, if no collector is named. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct Spans(Option<Outbox<Span>>);

impl Spans {
    /// Begins to send spans to the collector, if there is one. The sending ends with what is
    /// returned beside them.
    pub fn start(collector: Option<SocketAddr>) -> io::Result<(Spans, Option<Delivery<Span>>)> {
        let Some(collector) = collector else {
            return Ok((Spans::default(), None));
        };
        let outbox = Outbox::new(SPANS_MAX);
        let mut were_taken = None;
        let delivery = outbox.start("traces", LINGER, move |spans| {
            let sent = otlp::send(collector, &spans);
            // Once, not for each attempt.
            if were_taken.replace(sent.is_ok()) != Some(sent.is_ok()) {
                match &sent {
                    Ok(()) => event!(spans_taken, "{collector} takes traces"),
                    Err(why) => event!(spans_not_taken, "{collector} takes no traces: {why}"),
                }
            }
            if sent.is_ok() { 0 } else { spans.len() as u64 }
        })?;
        Ok((Spans(Some(outbox)), Some(delivery)))
    }

    /// Spans that were lost since the start.
    pub fn lost(&self) -> u64 {
        self.0.as_ref().map_or(0, Outbox::lost)
    }

    /// A pass over node `nid` is over. Times are those of `CLOCK_MONOTONIC`.
    pub fn note_pass(
        &self,
        nid: Nid,
        (started_ns, ended_ns): (u64, u64),
        pass: &PassReport,
        batches: &[TimedBatch],
    ) {
        let Some(outbox) = self.0.as_ref().filter(|_| pass.ready > 0) else {
            return;
        };
        let since_1970 = UNIX_EPOCH.elapsed().unwrap_or_default();
        let offset_ns = since_1970.saturating_sub(monotonic()).as_nanos() as u64;
        let span = Span {
            name: "pass",
            trace: (u128::from(new_id()) << 64) | u128::from(new_id()),
            id: new_id(),
            parent: None,
            started_ns: started_ns + offset_ns,
            ended_ns: ended_ns + offset_ns,
            attributes: of_pass(nid, pass),
        };
        for batch in batches {
            outbox.offer(Span {
                name: "batch",
                id: new_id(),
                parent: Some(span.id),
                started_ns: batch.started_ns + offset_ns,
                ended_ns: batch.ended_ns + offset_ns,
                attributes: of_batch(nid, batch),
                ..span
            });
        }
        outbox.offer(span);
    }
}

fn of_pass(nid: Nid, pass: &PassReport) -> Vec<(String, u64)> {
    let mut attributes = vec![
        ("pghot.nid".to_owned(), nid.into()),
        ("pghot.ready_pages".to_owned(), pass.ready),
        ("pghot.picked_pages".to_owned(), pass.picked),
        ("pghot.moved_pages".to_owned(), pass.moved_pages),
    ];
    let held = pass.held.iter();
    attributes.extend(held.map(|(held, pages)| (format!("pghot.held.{}", held.name()), *pages)));
    attributes
}

fn of_batch(nid: Nid, batch: &TimedBatch) -> Vec<(String, u64)> {
    let mut attributes = vec![
        ("pghot.nid".to_owned(), nid.into()),
        ("pghot.target_nid".to_owned(), batch.target.into()),
        ("pghot.folios".to_owned(), batch.folios),
        ("pghot.pages".to_owned(), batch.pages),
        ("pghot.moved_pages".to_owned(), batch.moved_pages),
    ];
    if let Owner::Process(pid) = batch.owner {
        attributes.push(("pghot.pid".to_owned(), pid.into()));
    }
    attributes
}

/// An id that no other span of this process has, and most likely none of any other.
fn new_id() -> u64 {
    static KEYS: std::sync::LazyLock<RandomState> = std::sync::LazyLock::new(RandomState::new);
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // 0 means none.
    KEYS.hash_one(COUNT.fetch_add(1, Ordering::Relaxed)).max(1)
}

#[cfg(test)]
mod tests;
