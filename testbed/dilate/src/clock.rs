//! From the host's time to the slower one, and back.

use libc::timespec;

const NS: u64 = 1_000_000_000;

/// A clock that agrees with the host's when it starts, and runs slower from then on.
#[derive(Debug, Clone, Copy)]
pub struct SlowClock {
    start_ns: u64,
    by: u64,
}

impl SlowClock {
    /// Starts now, `by` times slower than the host's.
    pub fn new(now: timespec, by: u64) -> SlowClock {
        SlowClock {
            start_ns: to_ns(now),
            by,
        }
    }

    /// What it shows when the host's clock shows `host`.
    pub fn at(&self, host: timespec) -> timespec {
        let passed = to_ns(host).saturating_sub(self.start_ns);
        from_ns(self.start_ns + passed / self.by)
    }

    /// How long the host has to wait until so much has passed here.
    pub fn wait(&self, here: timespec) -> timespec {
        from_ns(to_ns(here).saturating_mul(self.by))
    }
}

fn to_ns(time: timespec) -> u64 {
    (time.tv_sec as u64)
        .saturating_mul(NS)
        .saturating_add(time.tv_nsec as u64)
}

fn from_ns(ns: u64) -> timespec {
    timespec {
        tv_sec: (ns / NS) as libc::time_t,
        tv_nsec: (ns % NS) as libc::c_long,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(tv_sec: i64, tv_nsec: i64) -> timespec {
        timespec { tv_sec, tv_nsec }
    }

    fn parts(time: timespec) -> (i64, i64) {
        (time.tv_sec, time.tv_nsec)
    }

    #[test]
    fn it_starts_with_the_host_and_falls_behind() {
        let clock = SlowClock::new(time(1000, 999_999_999), 10);
        assert_eq!(
            parts(clock.at(time(1000, 999_999_999))),
            (1000, 999_999_999)
        );
        assert_eq!(parts(clock.at(time(1001, 9))), (1001, 0));
        assert_eq!(parts(clock.at(time(1011, 999_999_999))), (1002, 99_999_999));
        // A reading that another thread took just before the first one.
        assert_eq!(parts(clock.at(time(999, 0))), (1000, 999_999_999));
    }

    #[test]
    fn it_never_goes_back() {
        let clock = SlowClock::new(time(0, 0), 7);
        let shown = |ns: i64| parts(clock.at(time(ns / 1000, ns % 1000 * 1_000_000)));
        assert!((0..5000).all(|ns| shown(ns) <= shown(ns + 1)));
    }

    #[test]
    fn a_wait_lasts_as_long_as_the_clock_says() {
        let clock = SlowClock::new(time(5, 0), 10);
        assert_eq!(parts(clock.wait(time(0, 250_000_000))), (2, 500_000_000));
        assert_eq!(parts(clock.wait(time(0, 0))), (0, 0));
        let forever = clock.wait(time(i64::MAX, 0));
        assert!(forever.tv_sec > i64::from(u32::MAX), "no overflow");
    }
}
