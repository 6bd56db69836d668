//! One flag that ends everything, sleeps that it cuts short, and the end of threads. Beside it the
//! request to read the config file again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::lock;

/// Between two looks at who has ended.
const ENDING_POLL: Duration = Duration::from_millis(5);

/// Whether the daemon should end. Once requested, it stays so.
#[derive(Debug, Default)]
pub struct Stop {
    /// Read by hosts within a pass, where a lock would be too much.
    flag: Arc<AtomicBool>,
    /// Pairs the flag with both conditions, so that no wake-up is lost.
    mutex: Mutex<()>,
    requested: Condvar,
    /// Wakes those who may be called, too.
    nudged: Condvar,
    /// Wakes migrators. A host has many, and each nudges after a pass, which must not wake all the
    /// others.
    has_room: Condvar,
    /// The config file shall be read again.
    reload: Arc<AtomicBool>,
}

impl Stop {
    /// Ends everything.
    pub fn request(&self) {
        let _guard = lock(&self.mutex);
        self.flag.store(true, Ordering::Release);
        self.requested.notify_all();
        self.nudged.notify_all();
        self.has_room.notify_all();
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
        drop(self.requested.wait_timeout_while(guard, time, waiting));
    }

    /// The same, or until somebody nudges and `is_called`.
    pub fn sleep_unless(&self, time: Duration, is_called: impl Fn() -> bool) {
        self.sleep_on(&self.nudged, time, is_called);
    }

    /// The same, or until somebody tells of room and `is_called`.
    pub fn sleep_without_room(&self, time: Duration, is_called: impl Fn() -> bool) {
        self.sleep_on(&self.has_room, time, is_called);
    }

    fn sleep_on(&self, condition: &Condvar, time: Duration, is_called: impl Fn() -> bool) {
        let waiting = |_: &mut ()| !self.is_requested() && !is_called();
        let guard = lock(&self.mutex);
        drop(condition.wait_timeout_while(guard, time, waiting));
    }

    /// Has such sleepers look whether they are called.
    pub fn nudge(&self) {
        let _guard = lock(&self.mutex);
        self.nudged.notify_all();
    }

    /// Has migrators look whether they wait for room.
    pub fn tell_of_room(&self) {
        let _guard = lock(&self.mutex);
        self.has_room.notify_all();
    }

    /// Whether the config file shall be read again.
    pub fn is_reload_due(&self) -> bool {
        self.reload.load(Ordering::Acquire)
    }

    /// The same, and whoever asks does it.
    pub fn take_reload(&self) -> bool {
        self.reload.swap(false, Ordering::AcqRel)
    }

    /// Sleeps until a stop is requested.
    pub fn wait(&self) {
        let mut guard = lock(&self.mutex);
        while !self.is_requested() {
            guard = self
                .requested
                .wait(guard)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Ends the daemon for good. It runs in sessions, one after the other: when memory comes or goes, a
/// session ends and another one begins.
#[derive(Debug, Default)]
pub struct Ending {
    is_requested: AtomicBool,
    session: Mutex<Arc<Stop>>,
    reload: Arc<AtomicBool>,
}

impl Ending {
    /// Ends the session that runs, and lets no other begin.
    pub fn request(&self) {
        self.is_requested.store(true, Ordering::SeqCst);
        lock(&self.session).request();
    }

    /// Has the config file read again, by this session or, if none runs, by the next one.
    pub fn request_reload(&self) {
        self.reload.store(true, Ordering::SeqCst);
        lock(&self.session).nudge();
    }

    /// The stop of a new session; requested already, if the end is.
    pub fn new_session(&self) -> Arc<Stop> {
        let stop = Arc::new(Stop {
            reload: Arc::clone(&self.reload),
            ..Stop::default()
        });
        *lock(&self.session) = Arc::clone(&stop);
        // Only now: a request that comes later finds this session.
        if self.is_requested.load(Ordering::SeqCst) {
            stop.request();
        }
        stop
    }
}

/// What a thread returned, or how it panicked; `None` if it still runs at the deadline.
pub fn joined_by<T>(thread: JoinHandle<T>, deadline: Instant) -> Option<thread::Result<T>> {
    while !thread.is_finished() {
        if Instant::now() >= deadline {
            return None;
        }
        thread::sleep(ENDING_POLL);
    }
    Some(thread.join())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_ends_every_session() {
        let ending = Ending::default();
        let first = ending.new_session();
        first.request();
        let second = ending.new_session();
        assert!(!second.is_requested());
        ending.request();
        assert!(second.is_requested());
        assert!(ending.new_session().is_requested());
    }

    #[test]
    fn a_reload_reaches_one_session() {
        let ending = Ending::default();
        let first = ending.new_session();
        ending.request_reload();
        ending.request_reload();
        assert!(first.is_reload_due() && first.take_reload() && !first.take_reload());
        ending.request_reload();
        assert!(ending.new_session().take_reload() && !first.is_requested());
    }

    #[test]
    fn a_thread_that_does_not_end_is_given_up() {
        let (release, released) = std::sync::mpsc::channel::<()>();
        let thread = thread::spawn(move || released.recv().unwrap());
        let soon = Instant::now() + Duration::from_millis(20);
        assert!(joined_by(thread, soon).is_none());
        drop(release);
        let thread = thread::spawn(|| 7);
        let later = Instant::now() + Duration::from_secs(20);
        assert_eq!(joined_by(thread, later).unwrap().unwrap(), 7);
    }

    #[test]
    fn a_sleeper_wakes_when_it_is_called_and_at_no_other_nudge() {
        let (stop, called) = (Stop::default(), AtomicBool::new(false));
        let started = Instant::now();
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                stop.sleep_unless(Duration::from_secs(60), || called.load(Ordering::Relaxed));
            });
            let migrator = scope.spawn(|| {
                let is_called = || called.load(Ordering::Relaxed);
                stop.sleep_without_room(Duration::from_secs(60), is_called);
            });
            stop.nudge();
            stop.tell_of_room();
            thread::sleep(Duration::from_millis(20));
            assert!(!sleeper.is_finished() && !migrator.is_finished());
            called.store(true, Ordering::Relaxed);
            stop.nudge();
            thread::sleep(Duration::from_millis(20));
            assert!(!migrator.is_finished(), "a nudge is not for it");
            stop.tell_of_room();
        });
        assert!(started.elapsed() < Duration::from_secs(30));
    }
}
