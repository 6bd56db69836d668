//! How many CPUs are busy, by `/proc/uptime`: the time since boot, and the idle time of all CPUs
//! together.
//!
//! `/proc/stat` tells the same, and adds up all interrupts of all CPUs before: milliseconds on a
//! large machine. Here the kernel adds up one number of each CPU. A CPU whose programs wait for a
//! disk counts as busy.

use std::fs;
use std::path::PathBuf;

use crate::root::SysRoot;

/// Measured over so long at least, in seconds: both times are told in hundredths.
const LEAST_S: f64 = 0.2;

/// See the head of this file.
pub struct BusyCpus {
    path: PathBuf,
    all: f64,
    /// Uptime and idle time when it was last measured, in seconds.
    last: Option<(f64, f64)>,
    busy: f64,
}

impl BusyCpus {
    /// Of a machine of so many CPUs. All count as busy until it is known.
    pub fn new(root: &SysRoot, all: u64) -> BusyCpus {
        BusyCpus {
            path: root.proc.join("uptime"),
            all: all as f64,
            last: None,
            busy: all as f64,
        }
    }

    /// How many were busy since the last call, on average.
    pub fn read(&mut self) -> f64 {
        let text = fs::read_to_string(&self.path);
        let Some((up_s, idle_s)) = text.ok().as_deref().and_then(parse) else {
            return self.busy;
        };
        let Some((last_up_s, last_idle_s)) = self.last else {
            self.last = Some((up_s, idle_s));
            return self.busy;
        };
        let spent_s = up_s - last_up_s;
        if spent_s >= LEAST_S {
            let idle = (idle_s - last_idle_s) / spent_s;
            self.busy = (self.all - idle).clamp(0.0, self.all);
            self.last = Some((up_s, idle_s));
        }
        self.busy
    }
}

/// Uptime and idle time, in seconds.
fn parse(text: &str) -> Option<(f64, f64)> {
    let mut seconds = text.split_whitespace().map(str::parse::<f64>);
    let (up_s, idle_s) = (seconds.next()?.ok()?, seconds.next()?.ok()?);
    (up_s.is_finite() && idle_s.is_finite()).then_some((up_s, idle_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_idle_is_busy() {
        let dir = tempfile::tempdir().unwrap();
        let root = SysRoot::under(dir.path());
        fs::create_dir_all(&root.proc).unwrap();
        let mut busy = BusyCpus::new(&root, 4);
        let mut after = |uptime: &str| {
            fs::write(root.proc.join("uptime"), uptime).unwrap();
            (busy.read() * 10.0).round() / 10.0
        };
        assert_eq!(after("100.00 300.00\n"), 4.0, "not known");
        assert_eq!(after("101.00 302.50\n"), 1.5);
        assert_eq!(after("101.10 302.90\n"), 1.5, "too soon");
        assert_eq!(after("102.00 306.60\n"), 0.0, "idle is told late");
        for damaged in ["", "102", "x y", "nan nan", "103 inf"] {
            assert_eq!(after(damaged), 0.0, "{damaged}");
        }
        assert_eq!(after("103.00 306.60\n"), 4.0);
    }

    #[test]
    fn this_machine_tells() {
        let uptime = fs::read_to_string("/proc/uptime").unwrap();
        assert!(parse(&uptime).is_some(), "{uptime}");
    }
}
