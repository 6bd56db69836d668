//! The CPUs at which pages change places between two full tiers.
//!
//! A freed page goes to a list of the CPU that freed it, and only that CPU allocates from the list.
//! A list may hold its CPU's share of the low watermark (since 5.14), and more while many pages are
//! freed (since 6.7); only kswapd keeps the lists short while it works. If one thread demotes at
//! one CPU and another promotes at another, neither finds what the other has freed, and two tiers
//! that are both at their watermarks stand still. So both work at the same CPU.
//!
//! A thread is kept there for one call, which moves some thousand pages at most. Afterwards it may
//! run where it might before; a CPU that came online in between is not among those.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pghot_hotness::Nid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// How long one CPU is kept, in ms: it may have become a busy one.
const KEPT_MS: u64 = 60_000;

/// Shared by the threads that promote and the one that demotes: by top-tier node, the CPU and since
/// when, in ms. Each node has its own, or one CPU would move the pages of all sockets.
#[derive(Debug, Clone, Default)]
pub struct ExchangeCpus(Arc<Mutex<BTreeMap<Nid, (u32, u64)>>>);

impl ExchangeCpus {
    /// The CPU, if pages of this node change places.
    pub fn get(&self, nid: Nid, now_ms: u64) -> Option<u32> {
        let (cpu, since_ms) = *self.lock().get(&nid)?;
        (now_ms.saturating_sub(since_ms) < KEPT_MS).then_some(cpu)
    }

    /// Keeps this thread there until the guard is dropped. If there is none, or this thread may not
    /// run there, it becomes the CPU where this thread runs.
    #[must_use]
    pub fn stay(&self, nid: Nid, now_ms: u64) -> Stay {
        self.try_follow(nid, now_ms).unwrap_or_else(|| {
            let here = sched_getcpu();
            self.lock().insert(nid, (here as u32, now_ms));
            Stay::at(here).unwrap_or_default()
        })
    }

    /// Keeps this thread there until the guard is dropped, if there is one.
    #[must_use]
    pub fn follow(&self, nid: Nid, now_ms: u64) -> Stay {
        self.try_follow(nid, now_ms).unwrap_or_default()
    }

    fn try_follow(&self, nid: Nid, now_ms: u64) -> Option<Stay> {
        Stay::at(self.get(nid, now_ms)? as usize)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Nid, (u32, u64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a thread at a CPU.
#[derive(Default)]
pub struct Stay {
    /// Where it may run afterwards; `None` if it does now.
    allowed: Option<CpuSet>,
}

impl Stay {
    /// `None` where the thread may not run there.
    fn at(cpu: usize) -> Option<Stay> {
        let allowed = sched_getaffinity(None).ok()?;
        if cpu >= CpuSet::MAX_CPU || !allowed.is_set(cpu) {
            return None;
        }
        let mut there = CpuSet::new();
        there.set(cpu);
        sched_setaffinity(None, &there).ok()?;
        Some(Stay {
            allowed: Some(allowed),
        })
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        if let Some(allowed) = &self.allowed {
            // Refused only if all of them are offline: then the kernel has chosen others.
            let _ = sched_setaffinity(None, allowed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_threads_are_at_the_cpu_of_the_first() {
        let exchange = ExchangeCpus::default();
        drop(exchange.follow(0, 1000));
        assert_eq!(exchange.get(0, 1000), None, "nobody has chosen");
        let before = sched_getaffinity(None).unwrap();
        drop(exchange.stay(0, 1000));
        assert_eq!(sched_getaffinity(None).unwrap(), before);
        assert_eq!(exchange.get(1, 1000), None, "of another node");
        let cpu = exchange.get(0, 2000).unwrap() as usize;
        let other = exchange.clone();
        let at = std::thread::spawn(move || {
            let elsewhere = (0..CpuSet::MAX_CPU).rev().find(|cpu| before.is_set(*cpu));
            drop(Stay::at(elsewhere.unwrap()));
            let _stay = other.follow(0, 2000);
            (sched_getcpu(), sched_getaffinity(None).unwrap().count())
        });
        assert_eq!(at.join().unwrap(), (cpu, 1));
    }

    #[test]
    fn a_cpu_is_left_that_is_gone_or_old() {
        let exchange = ExchangeCpus::default();
        exchange.lock().insert(0, (1023, 1000));
        drop(exchange.stay(0, 2000));
        assert_ne!(exchange.get(0, 2000), Some(1023), "there is none");
        exchange.lock().insert(0, (0, 1000));
        assert_eq!(exchange.get(0, 1000 + KEPT_MS), None);
        drop(exchange.stay(0, 1000 + KEPT_MS));
        assert!(exchange.get(0, 1000 + KEPT_MS).is_some());
    }
}
