//! The CPU at which pages change places between two full tiers.
//!
//! A page that is freed goes to a list of the CPU that freed it, and is handed out again at that
//! CPU. Since 6.7 the kernel lets such a list grow to a share of the low watermark, for each node;
//! only kswapd keeps the lists short while it works. So where one thread demotes at one CPU and
//! another promotes at another, each page that goes leaves a free one that the other does not find:
//! in a guest with four CPUs a fifth of what was demoted, until both nodes were at their watermarks
//! and nothing moved. At the same CPU one thread takes what the other has freed.
//!
//! A thread is kept there for one call, which moves some thousand pages at most.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// How long one CPU is kept, in ms: it may have become a busy one.
const KEPT_MS: u64 = 60_000;

/// Shared by the threads that promote and the one that demotes.
#[derive(Debug, Clone, Default)]
pub struct ExchangeCpu(Arc<AtomicU64>);

impl ExchangeCpu {
    /// Which CPU it is, if pages change places at all.
    pub fn get(&self) -> Option<u32> {
        unpack(self.0.load(Ordering::Relaxed)).map(|(cpu, _)| cpu)
    }

    /// Keeps this thread there until the guard is dropped; the first one chooses where he is. Who
    /// may not go stays.
    #[must_use]
    pub fn stay(&self, now_ms: u64) -> Stay {
        if let Some(cpu) = self.get_at(now_ms)
            && let Some(stay) = Stay::at(cpu as usize)
        {
            return stay;
        }
        let here = sched_getcpu();
        self.0.store(pack(here as u32, now_ms), Ordering::Relaxed);
        Stay::at(here).unwrap_or_default()
    }

    /// The same, if somebody has chosen.
    #[must_use]
    pub fn follow(&self, now_ms: u64) -> Stay {
        match self.get_at(now_ms) {
            Some(_) => self.stay(now_ms),
            None => Stay::default(),
        }
    }

    fn get_at(&self, now_ms: u64) -> Option<u32> {
        let (cpu, since_ms) = unpack(self.0.load(Ordering::Relaxed))?;
        (now_ms.saturating_sub(since_ms) < KEPT_MS).then_some(cpu)
    }
}

/// CPU plus one in the upper 16 bits, so that zero is none, and the ms below.
fn pack(cpu: u32, now_ms: u64) -> u64 {
    (u64::from(cpu) + 1) << 48 | now_ms & ((1 << 48) - 1)
}

fn unpack(packed: u64) -> Option<(u32, u64)> {
    let cpu = (packed >> 48).checked_sub(1)?;
    Some((cpu as u32, packed & ((1 << 48) - 1)))
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
        let exchange = ExchangeCpu::default();
        drop(exchange.follow(1000));
        assert_eq!(exchange.get(), None, "nobody has chosen");
        let before = sched_getaffinity(None).unwrap();
        drop(exchange.stay(1000));
        assert_eq!(sched_getaffinity(None).unwrap(), before);
        let cpu = exchange.get().unwrap() as usize;
        let other = exchange.clone();
        let at = std::thread::spawn(move || {
            let elsewhere = (0..CpuSet::MAX_CPU).rev().find(|cpu| before.is_set(*cpu));
            drop(Stay::at(elsewhere.unwrap()));
            let _stay = other.follow(2000);
            (sched_getcpu(), sched_getaffinity(None).unwrap().count())
        });
        assert_eq!(at.join().unwrap(), (cpu, 1));
    }

    #[test]
    fn a_cpu_is_left_that_is_gone_or_old() {
        let exchange = ExchangeCpu::default();
        exchange.0.store(pack(1023, 1000), Ordering::Relaxed);
        drop(exchange.stay(2000));
        assert_ne!(exchange.get(), Some(1023), "there is none");
        exchange.0.store(pack(0, 1000), Ordering::Relaxed);
        drop(exchange.stay(1000 + KEPT_MS));
        let (_, since_ms) = unpack(exchange.0.load(Ordering::Relaxed)).unwrap();
        assert_eq!(since_ms, 1000 + KEPT_MS);
    }
}
