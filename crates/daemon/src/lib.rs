//! The pghot daemon: wiring only. It reads the configuration, starts the sources and one migrator
//! thread per lower-tier node, answers on a control socket, and puts the host back as it was.
//!
//! What a page's hotness is, which pages move and how they move is decided elsewhere. Status and
//! explanations are composed on request; a daemon that is not asked and has nothing to promote
//! only looks at the section marks, once in four times `kmigrated_sleep_ms`.

pub mod config;
pub mod control;
pub mod doctor;
pub mod error;
pub mod explain;
pub mod log;
pub mod metrics;
pub mod owners;
pub mod protocol;
pub mod run;
pub mod status;

mod compose;
mod compose_owners;
mod config_file;
mod demoter;
mod durations;
mod free_space;
mod heap;
mod latency;
mod launcher;
mod listeners;
mod migrator;
mod outbox;
mod page;
mod policy;
mod pulse;
#[cfg(test)]
mod python_tests;
pub mod recording;
mod reload;
mod restorer;
mod sentences;
mod service;
mod shared;
mod signals;
mod socket;
mod sources;
mod stop;
#[cfg(test)]
mod testing;
mod tier_watch;
mod tiers;
mod timed;
mod traces;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, even after another thread panicked while it held the lock: that panic ends the daemon
/// by itself, and putting the host back must not fail because of it.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
