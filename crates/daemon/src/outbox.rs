//! Hands items to a thread of their own, and never waits for it: what finds no place is lost, and
//! counted.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::lock;
use crate::stop::joined_by;

/// How long the end waits for what is still to be delivered.
const ENDING_MAX: Duration = Duration::from_secs(1);

/// Where items are left. Clones are the same one.
#[derive(Debug)]
pub struct Outbox<T>(Arc<Inner<T>>);

impl<T> Clone for Outbox<T> {
    fn clone(&self) -> Outbox<T> {
        Outbox(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Inner<T> {
    places: usize,
    waiting: Mutex<Waiting<T>>,
    changed: Condvar,
    lost: AtomicU64,
}

#[derive(Debug)]
struct Waiting<T> {
    items: Vec<T>,
    is_ending: bool,
}

impl<T: Send + 'static> Outbox<T> {
    /// Places for so many items; as many more may be on their way.
    pub fn new(places: usize) -> Outbox<T> {
        let waiting = Waiting {
            items: Vec::new(),
            is_ending: false,
        };
        Outbox(Arc::new(Inner {
            places,
            waiting: Mutex::new(waiting),
            changed: Condvar::new(),
            lost: AtomicU64::new(0),
        }))
    }

    /// Leaves an item, if there is a place for it.
    pub fn offer(&self, item: T) {
        let mut waiting = lock(&self.0.waiting);
        if waiting.items.len() < self.0.places {
            waiting.items.push(item);
            self.0.changed.notify_one();
        } else {
            self.0.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Items that found no place or could not be delivered.
    pub fn lost(&self) -> u64 {
        self.0.lost.load(Ordering::Relaxed)
    }

    /// Has a thread deliver items, those of `linger` together. `deliver` returns how many it lost.
    pub fn start(
        &self,
        name: &str,
        linger: Duration,
        mut deliver: impl FnMut(Vec<T>) -> u64 + Send + 'static,
    ) -> io::Result<Delivery<T>> {
        let outbox = self.clone();
        let work = move || {
            while let Some(items) = outbox.next(linger) {
                let lost = deliver(items);
                outbox.0.lost.fetch_add(lost, Ordering::Relaxed);
            }
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(work)?;
        Ok(Delivery {
            outbox: self.clone(),
            thread: Some(thread),
        })
    }

    /// What has come, as soon as there is something; `None` at the end.
    fn next(&self, linger: Duration) -> Option<Vec<T>> {
        let inner = &self.0;
        let is_idle = |it: &mut Waiting<T>| it.items.is_empty() && !it.is_ending;
        let waiting = inner.changed.wait_while(lock(&inner.waiting), is_idle);
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        if !linger.is_zero() {
            let lingers = |it: &mut Waiting<T>| it.items.len() < inner.places / 2 && !it.is_ending;
            let more = inner.changed.wait_timeout_while(waiting, linger, lingers);
            waiting = more.unwrap_or_else(PoisonError::into_inner).0;
        }
        let items = std::mem::take(&mut waiting.items);
        (!items.is_empty()).then_some(items)
    }
}

/// The thread that delivers. Dropped, it delivers what waits, for a second at most.
#[derive(Debug)]
pub struct Delivery<T> {
    outbox: Outbox<T>,
    thread: Option<JoinHandle<()>>,
}

impl<T> Drop for Delivery<T> {
    fn drop(&mut self) {
        lock(&self.outbox.0.waiting).is_ending = true;
        self.outbox.0.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            joined_by(thread, Instant::now() + ENDING_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn all_is_delivered_in_order_and_the_end_waits_for_it() {
        let (outbox, (to, from)) = (Outbox::new(1000), mpsc::channel());
        let send = move |items: Vec<u32>| {
            items.into_iter().for_each(|item| to.send(item).unwrap());
            0
        };
        let delivery = outbox.start("test", Duration::ZERO, send).unwrap();
        (0..1000).for_each(|item| outbox.offer(item));
        drop(delivery);
        assert_eq!(from.iter().collect::<Vec<_>>(), Vec::from_iter(0..1000));
        assert_eq!(outbox.lost(), 0);
    }

    #[test]
    fn who_never_takes_delays_nobody() {
        let (outbox, (release, released)) = (Outbox::new(10), mpsc::channel::<()>());
        let hang = move |items: Vec<u32>| {
            let _ = released.recv();
            items.len() as u64
        };
        let delivery = outbox.start("test", Duration::ZERO, hang).unwrap();
        let before = Instant::now();
        (0..100_000).for_each(|item| outbox.offer(item));
        assert!(before.elapsed() < ENDING_MAX, "{:?}", before.elapsed());
        let lost = outbox.lost();
        assert!((100_000 - 20..=100_000 - 10).contains(&lost), "{lost}");
        drop(delivery);
        assert!(before.elapsed() < 5 * ENDING_MAX, "the end gives up");
        drop(release);
    }

    #[test]
    fn what_comes_together_goes_together() {
        let (outbox, (to, from)) = (Outbox::new(100), mpsc::channel());
        let send = move |items: Vec<u32>| {
            to.send(items.len()).unwrap();
            0
        };
        let delivery = outbox.start("test", ENDING_MAX * 60, send).unwrap();
        (0..50).for_each(|item| outbox.offer(item));
        assert_eq!(from.recv().unwrap(), 50, "half of the places are taken");
        outbox.offer(1);
        drop(delivery);
        assert_eq!(from.recv().unwrap(), 1, "at the end at once");
    }
}
