//! One flag that ends everything, and sleeps that it cuts short.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::lock;

/// Whether the daemon should end. Once requested, it stays so.
#[derive(Debug, Default)]
pub struct Stop {
    /// Read by hosts within a pass, where a lock would be too much.
    flag: Arc<AtomicBool>,
    /// Pairs the flag with `changed`, so that no wake-up is lost.
    mutex: Mutex<()>,
    changed: Condvar,
}

impl Stop {
    /// Ends everything.
    pub fn request(&self) {
        let _guard = lock(&self.mutex);
        self.flag.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Whether it was requested.
    pub fn is_requested(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }

    /// The bare flag.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }

    /// Sleeps until the time is over or a stop is requested.
    pub fn sleep(&self, time: Duration) {
        let waiting = |_: &mut ()| !self.is_requested();
        let guard = lock(&self.mutex);
        drop(self.changed.wait_timeout_while(guard, time, waiting));
    }

    /// Sleeps until a stop is requested.
    pub fn wait(&self) {
        let mut guard = lock(&self.mutex);
        while !self.is_requested() {
            guard = self
                .changed
                .wait(guard)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}
