//! The CPUs at which pages change places between two full tiers.
//!
//! A page that is freed goes to a list of the CPU that freed it, and is handed out again at that
//! CPU. Since 6.7 the kernel lets such a list grow to a share of the low watermark, for each node;
//! only kswapd keeps the lists short while it works. So where one thread demotes at one CPU and
//! another promotes at another, each page that goes leaves a free one that the other does not find:
//! some 9,000 of them on a node of 1 GiB with four CPUs, until both tiers were at their watermarks
//! and nothing moved. At the same CPU one thread takes what the other has freed.
//!
//! A thread is kept there for one call, which moves some thousand pages at most.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use pghot_hotness::Nid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// How long one CPU is kept, in ms: it may have become a busy one.
const KEPT_MS: u64 = 60_000;

/// Shared by the threads that promote and the one that demotes: by top-tier node, the CPU and since
/// when, in ms. Several nodes have several, or one CPU would move the pages of all sockets.
#[derive(Debug, Clone, Default)]
pub struct ExchangeCpus(Arc<Mutex<BTreeMap<Nid, (u32, u64)>>>);

impl ExchangeCpus {
    /// Which CPU it is, if pages change places at all.
    pub fn get(&self, nid: Nid) -> Option<u32> {
        let chosen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        chosen.get(&nid).map(|(cpu, _)| *cpu)
    }

    /// Keeps this thread there until the guard is dropped; the first one chooses where he is. Who
    /// may not go stays.
    #[must_use]
    pub fn stay(&self, nid: Nid, now_ms: u64) -> Stay {
        if let Some(cpu) = self.get_at(nid, now_ms)
            && let Some(stay) = Stay::at(cpu as usize)
        {
            return stay;
        }
        let here = sched_getcpu();
        let mut chosen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        chosen.insert(nid, (here as u32, now_ms));
        Stay::at(here).unwrap_or_default()
    }

    /// The same, if somebody has chosen.
    #[must_use]
    pub fn follow(&self, nid: Nid, now_ms: u64) -> Stay {
        match self.get_at(nid, now_ms) {
            Some(_) => self.stay(nid, now_ms),
            None => Stay::default(),
        }
    }

    fn get_at(&self, nid: Nid, now_ms: u64) -> Option<u32> {
        let chosen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (cpu, since_ms) = chosen.get(&nid)?;
        (now_ms.saturating_sub(*since_ms) < KEPT_MS).then_some(*cpu)
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
        assert_eq!(exchange.get(0), None, "nobody has chosen");
        let before = sched_getaffinity(None).unwrap();
        drop(exchange.stay(0, 1000));
        assert_eq!(sched_getaffinity(None).unwrap(), before);
        assert_eq!(exchange.get(1), None, "of another node");
        let cpu = exchange.get(0).unwrap() as usize;
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
        let chosen = || exchange.0.lock().unwrap();
        chosen().insert(0, (1023, 1000));
        drop(exchange.stay(0, 2000));
        assert_ne!(exchange.get(0), Some(1023), "there is none");
        chosen().insert(0, (0, 1000));
        drop(exchange.stay(0, 1000 + KEPT_MS));
        assert_eq!(chosen()[&0].1, 1000 + KEPT_MS);
    }
}
