//! The thread: looks at all rings by the clock, and fits the period to what that costs.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pghot_hotness::Nid;
use pghot_linux::host::monotonic;
use pghot_linux::thread_cpu;
use pghot_linux::topology::Topology;

use super::event::Event;
use super::intake::{Counters, Intake};
use super::perf;
use super::ring::Ring;
use crate::hw_sample::{ADAPT_EVERY, DRAIN_EVERY};
use crate::kernel::Error;
use crate::kernel::worker::Pace;

/// The event on one CPU.
pub struct Channel {
    event: OwnedFd,
    /// Kept open: without its leader the event would leave its group.
    _leader: Option<OwnedFd>,
    ring: Ring,
    nid: Nid,
}

/// Opens the event on every CPU. It is sampled from here on, until the channels are dropped.
pub fn open_all(event: &Event, topology: &Topology) -> Result<Vec<Channel>, Error> {
    let mut channels = Vec::new();
    for node in &topology.nodes {
        for &cpu in &node.cpus {
            match open(event, cpu, node.nid) {
                Ok(channel) => channels.push(channel),
                // It went offline a moment ago.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                Err(error) => return Err(refusal(event, cpu, &error)),
            }
        }
    }
    Ok(channels)
}

fn open(event: &Event, cpu: u32, nid: Nid) -> std::io::Result<Channel> {
    let leader = match &event.leader {
        Some(attr) => Some(perf::open(attr, cpu, None)?),
        None => None,
    };
    let fd = perf::open(&event.attr, cpu, leader.as_ref().map(AsFd::as_fd))?;
    let ring = Ring::map(fd.as_fd())?;
    Ok(Channel {
        event: fd,
        _leader: leader,
        ring,
        nid,
    })
}

fn refusal(event: &Event, cpu: u32, error: &std::io::Error) -> Error {
    let advice = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            "run pghot as root or give it CAP_PERFMON; a security module or kernel lockdown may \
             deny perf, too"
        }
        Some(libc::EMFILE) => "let pghot open more files (LimitNOFILE=), some per CPU",
        Some(libc::ENOMEM) => "let pghot lock more memory (CAP_IPC_LOCK), 132 KiB per CPU",
        Some(libc::EBUSY | libc::ENOSPC) => "end the other program that samples, such as perf",
        _ => "see crates/sources/src/hw_sample/README.md for what it needs",
    };
    Error::Setup(format!(
        "cannot sample {} on CPU {cpu}: {error}; {advice}",
        event.name
    ))
}

/// Runs until the source is dropped.
pub fn run(
    pace: &Pace,
    event: &Event,
    channels: &[Channel],
    mut intake: Intake,
    counters: &Arc<Counters>,
) {
    let mut period = event.attr.period;
    counters.period_events.store(period, Ordering::Relaxed);
    let mut spending = Spending::start(counters);
    while pace.sleep(DRAIN_EVERY) {
        let now = monotonic();
        for channel in channels {
            channel
                .ring
                .drain(&mut |record| intake.take(&record, channel.nid, now));
        }
        intake.flush(now);
        if spending.since.elapsed() >= ADAPT_EVERY {
            let (busy, elapsed, lost) = spending.spent(counters);
            let next = event.limits.next(period, busy, elapsed, lost);
            if next != period {
                period = next;
                set_period(channels, period, counters);
                counters.period_events.store(period, Ordering::Relaxed);
                Counters::add(&counters.period_changes, 1);
            }
        }
    }
}

fn set_period(channels: &[Channel], period: u64, counters: &Counters) {
    for channel in channels {
        // The event of a CPU that is offline may not take it and does not matter.
        if let Err(error) = perf::set_period(channel.event.as_fd(), period) {
            tracing::debug!("cannot set a sampling period of {period}: {error}");
            Counters::add(&counters.period_refusals, 1);
        }
    }
}

/// What was spent since the last look.
struct Spending {
    since: Instant,
    cpu: Duration,
    lost: u64,
}

impl Spending {
    fn start(counters: &Counters) -> Spending {
        Spending {
            since: Instant::now(),
            cpu: thread_cpu(),
            lost: counters.lost_samples.load(Ordering::Relaxed),
        }
    }

    /// CPU time, wall time and lost samples; starts anew.
    fn spent(&mut self, counters: &Counters) -> (Duration, Duration, u64) {
        let before = std::mem::replace(self, Spending::start(counters));
        (
            self.cpu.saturating_sub(before.cpu),
            self.since.duration_since(before.since),
            self.lost - before.lost,
        )
    }
}
