//! Turns signals into an orderly stop, and SIGHUP into a look at the config file.

use std::fs::File;
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
    /// SIGINT and SIGTERM end the daemon in good order. SIGHUP has the config file read again; if
    /// it comes because the terminal of the daemon is gone, it ends the daemon too. Under nohup(1)
    /// it stays ignored.
    pub fn start(ending: &Arc<Ending>) -> Result<SignalWatch, RunError> {
        let mut wanted = vec![SIGINT, SIGTERM];
        if !is_ignored(SIGHUP) {
            wanted.push(SIGHUP);
        }
        let mut signals = Signals::new(wanted).map_err(RunError::Signals)?;
        let watch = SignalWatch(signals.handle());
        let ending = Arc::clone(ending);
        let had_terminal = has_terminal();
        let wait = move || {
            for signal in signals.forever() {
                if signal == SIGHUP && (!had_terminal || has_terminal()) {
                    ending.request_reload();
                    continue;
                }
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

/// Whether this process has a terminal; of one that hung up it is none any more.
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// Whether a signal does nothing to this process.
pub fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: all-zero bytes are a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: without a new action the call only fills the struct behind the reference.
    let result = unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) };
    result == 0 && action.sa_sigaction == libc::SIG_IGN
}
