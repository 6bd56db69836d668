//! A source's own thread: it works, says what that cost, and sleeps until it is time or the source
//! is dropped. And what sources have in common whose thread reports.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pghot_linux::thread_cpu;

use crate::bulk::BulkReporter;
use crate::{Config, Descriptor, ReadySample, SourceStats};

use super::{Error, Source, SourceCost};

/// A running thread. Dropping it ends the thread and waits for that.
pub(crate) struct Worker {
    pace: Arc<Pace>,
    thread: Option<JoinHandle<()>>,
}

/// The thread's side: when to go on, and when to end.
#[derive(Default)]
pub(crate) struct Pace {
    is_ending: Mutex<bool>,
    ended: Condvar,
    cpu_ns: AtomicU64,
}

impl Worker {
    /// Starts a thread for source `name`. `body` returns soon after [`Pace::sleep`] says so.
    pub fn spawn(
        name: &'static str,
        body: impl FnOnce(&Pace) + Send + 'static,
    ) -> Result<Worker, Error> {
        let pace = Arc::new(Pace::default());
        let of_thread = Arc::clone(&pace);
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                body(&of_thread);
                of_thread.note_cpu();
            })
            .map_err(|source| Error::Thread { name, source })?;
        Ok(Worker {
            pace,
            thread: Some(thread),
        })
    }

    /// Whether the thread has ended already: nothing but a panic does that.
    pub fn is_dead(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// CPU time of the thread until its last sleep, in ns.
    pub fn cpu_ns(&self) -> u64 {
        self.pace.cpu_ns.load(Ordering::Relaxed)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let ending = self.pace.is_ending.lock();
        *ending.unwrap_or_else(PoisonError::into_inner) = true;
        self.pace.ended.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            pghot_events::event!(
                source_failed,
                "the thread of a source panicked; its statistics are incomplete"
            );
        }
    }
}

impl Pace {
    /// Sleeps; false means that the source is being dropped and the thread must end.
    pub fn sleep(&self, duration: Duration) -> bool {
        self.note_cpu();
        let until = Instant::now() + duration;
        let mut ending = self
            .is_ending
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        while !*ending {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            let woken = self.ended.wait_timeout(ending, left);
            ending = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }

    /// Whether the thread must end; for loops that work long between two sleeps.
    pub fn is_ending(&self) -> bool {
        *self
            .is_ending
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn note_cpu(&self) {
        self.cpu_ns
            .store(thread_cpu().as_nanos() as u64, Ordering::Relaxed);
    }
}

/// A source whose thread reports by a [`BulkReporter`].
pub(crate) struct WorkerSource<O> {
    pub descriptor: &'static Descriptor,
    pub reporter: Arc<BulkReporter>,
    /// Owns what the thread works with, which ends with it.
    pub worker: Worker,
    pub own: O,
}

/// What only one such source has.
pub(crate) trait Own: Send {
    /// Works so from now on; the rule is the reporter's.
    fn configure(&mut self, _config: &Config) {}

    /// What it costs besides the thread.
    fn cost(&self) -> SourceCost {
        SourceCost::default()
    }

    /// Its own counters.
    fn details(&self) -> BTreeMap<String, u64>;
}

impl<O: Own> Source for WorkerSource<O> {
    fn descriptor(&self) -> &'static Descriptor {
        self.descriptor
    }

    fn configure(&mut self, config: &Config) -> Result<(), Error> {
        self.reporter.set_rule(&config.rule);
        self.own.configure(config);
        Ok(())
    }

    fn stats(&self) -> Result<SourceStats, Error> {
        Ok(self.reporter.stats())
    }

    fn drain_ready(&mut self, sink: &mut dyn FnMut(ReadySample)) {
        self.reporter.drain_ready(sink);
    }

    fn is_dead(&self) -> bool {
        self.worker.is_dead()
    }

    fn cost(&self) -> SourceCost {
        SourceCost {
            thread_cpu_ns: self.worker.cpu_ns(),
            ..self.own.cost()
        }
    }

    fn details(&self) -> BTreeMap<String, u64> {
        self.own.details()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn dropping_wakes_and_joins_the_thread() {
        let rounds = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&rounds);
        let worker = Worker::spawn("test", move |pace| {
            while pace.sleep(Duration::from_secs(3600)) {}
            assert!(pace.is_ending());
            counted.fetch_add(1, Ordering::Relaxed);
        });
        drop(worker.unwrap());
        assert_eq!(rounds.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_sleep_ends_by_itself() {
        let pace = Pace::default();
        assert!(pace.sleep(Duration::from_millis(1)));
    }
}
