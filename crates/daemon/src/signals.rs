//! Turns signals into an orderly stop.

use std::sync::Arc;
use std::thread;

use pghot_events::event;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use crate::error::RunError;
use crate::stop::Ending;

/// The thread that waits for signals, until dropped.
pub struct SignalWatch(Handle);

impl SignalWatch {
    /// SIGINT, SIGTERM and SIGHUP (a terminal that goes away) end the daemon in good order, but
    /// under nohup(1) SIGHUP stays ignored.
    pub fn start(ending: &Arc<Ending>) -> Result<SignalWatch, RunError> {
        let mut wanted = vec![SIGINT, SIGTERM];
        if !is_ignored(SIGHUP) {
            wanted.push(SIGHUP);
        }
        let mut signals = Signals::new(wanted).map_err(RunError::Signals)?;
        let watch = SignalWatch(signals.handle());
        let ending = Arc::clone(ending);
        let wait = move || {
            for signal in signals.forever() {
                event!(daemon_stopping, signal, "stopping on signal {signal}");
                ending.request();
            }
        };
        let thread = thread::Builder::new().name("signals".into()).spawn(wait);
        thread.map_err(RunError::Thread)?;
        Ok(watch)
    }
}

impl Drop for SignalWatch {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: all-zero bytes are a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: without a new action the call only fills the struct behind the reference.
    let result = unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) };
    result == 0 && action.sa_sigaction == libc::SIG_IGN
}
