//! What moving pages costs the daemon, in CPU time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// CPU time that the calls which move pages took, up or down; of all threads that share it.
#[derive(Debug, Clone, Default)]
pub struct MovingTime(Arc<AtomicU64>);

impl MovingTime {
    /// Does it, and adds what it took.
    pub fn count<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = thread_cpu();
        let result = work();
        let took_ns = (thread_cpu() - before).as_nanos() as u64;
        self.0.fetch_add(took_ns, Ordering::Relaxed);
        result
    }

    /// So far.
    pub fn spent(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// CPU time of the calling thread.
pub fn thread_cpu() -> Duration {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// User and kernel time of all threads of this process.
pub fn process_cpu() -> Duration {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn clock(id: libc::clockid_t) -> Duration {
    let mut used = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `used` is a valid place for the result.
    unsafe { libc::clock_gettime(id, &mut used) };
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_counted_is() {
        let moving = MovingTime::default();
        let work = || (0..1_000_000u64).fold(0, |sum, n| std::hint::black_box(sum ^ n));
        work();
        assert_eq!(moving.spent(), Duration::ZERO);
        moving.clone().count(work);
        assert!(moving.spent() > Duration::ZERO);
    }
}
