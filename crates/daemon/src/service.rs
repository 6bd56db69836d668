//! What systemd is told: when the daemon is ready, what it does, that it ends, and, for the
//! watchdog, that the threads that move pages make progress. Without systemd nothing happens.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pghot_engine::Outcome;
use pghot_events::event;
use sd_notify::NotifyState;
use tracing::debug;

use crate::error::RunError;
use crate::lock;
use crate::pulse::Pulses;
use crate::shared::Shared;

/// So many pings come within the time that systemd waits for one.
const PINGS: u32 = 3;

/// Sources run and pages are looked for.
pub fn ready(shared: &Shared) {
    tell(&[NotifyState::Ready, NotifyState::Status(&status(shared))]);
}

/// The config file is being read again; [`ready`] ends that.
pub fn reloading(shared: &Shared) {
    let line = status(shared);
    let mut states = vec![NotifyState::Reloading, NotifyState::Status(&line)];
    // Without it systemd takes the reload for one of the older kind.
    states.extend(NotifyState::monotonic_usec_now());
    tell(&states);
}

/// There is no lower tier yet. That is no failure, so the start is over; called once a second.
pub fn waiting() {
    let status = NotifyState::Status("waiting for a lower memory tier");
    tell(&[NotifyState::Ready, status, NotifyState::Watchdog]);
}

/// The daemon ends: the settings of the host go back, and threads are waited for.
pub fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("ending")]);
}

/// Pings systemd's watchdog while all `pulses` beat, if the unit has one. When a thread has made no
/// progress for the watchdog's time, a stop is requested, which puts the settings back at once.
pub fn start_watchdog(
    shared: &Arc<Shared>,
    pulses: Pulses,
) -> Result<Option<JoinHandle<Result<(), RunError>>>, RunError> {
    let Some(limit) = sd_notify::watchdog_enabled() else {
        return Ok(None);
    };
    let shared = Arc::clone(shared);
    let ping = |shared: &Shared| {
        tell(&[NotifyState::Watchdog, NotifyState::Status(&status(shared))]);
    };
    let watch = move || watch(&shared, &pulses, limit, ping);
    let thread = thread::Builder::new().name("watchdog".into()).spawn(watch);
    thread.map(Some).map_err(RunError::Thread)
}

/// Pings until a stop is requested, or until a thread is stuck for `limit`.
fn watch(
    shared: &Shared,
    pulses: &Pulses,
    limit: Duration,
    ping: impl Fn(&Shared),
) -> Result<(), RunError> {
    while !shared.stop.is_requested() {
        if let Some(thread) = pulses.stuck_for(limit) {
            let hung = RunError::Hung { thread, limit };
            event!(thread_hung, "{hung}");
            shared.stop.request();
            return Err(hung);
        }
        ping(shared);
        shared.stop.sleep(limit / PINGS);
    }
    Ok(())
}

/// One line for `systemctl status`.
fn status(shared: &Shared) -> String {
    let promoted = shared.migrators.iter().map(|migrator| {
        let published = lock(&migrator.published);
        let moved = published.totals.outcomes.get(Outcome::Moved);
        format!("{moved} pages promoted from node {}", migrator.nid)
    });
    let dry_run = if shared.dry_run { "dry run; " } else { "" };
    let reload = shared.config_file.last().and_then(|reload| reload.error);
    let refused = reload.map_or("", |_| "the config file was not taken over; ");
    format!(
        "{dry_run}{refused}{}",
        promoted.collect::<Vec<_>>().join(", ")
    )
}

/// A service manager that does not listen loses a line; the daemon's work goes on.
fn tell(states: &[NotifyState]) {
    if let Err(error) = sd_notify::notify(states) {
        debug!("cannot tell systemd: {error}");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::testing::daemon;

    #[test]
    fn a_stuck_thread_ends_the_pings_and_the_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, _) = daemon(dir.path());
        let (pulses, pings) = (Pulses::default(), AtomicU32::new(0));
        pulses.add("migrator2");
        let count = |_: &Shared| {
            pings.fetch_add(1, Ordering::Relaxed);
        };
        let limit = Duration::from_millis(100);
        let error = watch(&shared, &pulses, limit, count).unwrap_err();
        assert!(error.to_string().contains("migrator2"), "{error}");
        assert!(shared.stop.is_requested());
        assert!(pings.load(Ordering::Relaxed) > 0, "it was well at first");
    }

    #[test]
    fn the_status_is_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, _) = daemon(dir.path());
        assert_eq!(status(&shared), "0 pages promoted from node 2");
    }
}
