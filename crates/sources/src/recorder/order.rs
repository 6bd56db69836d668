//! What a recorder is told, and what it is given.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pghot_engine::Pattern;
use pghot_linux::host::monotonic;

/// How long a flag may be up unseen.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Ends a recording before its time.
pub trait Stop {
    /// Whether it shall end.
    fn is_requested(&self) -> bool;

    /// Sleeps so long, or until it shall end.
    fn sleep(&self, time: Duration);
}

/// A flag that a signal sets.
impl Stop for AtomicBool {
    fn is_requested(&self) -> bool {
        self.load(Ordering::Relaxed)
    }

    fn sleep(&self, time: Duration) {
        let due = monotonic().saturating_add(time);
        while !self.is_requested() {
            let left = due.saturating_sub(monotonic());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(SLEEP_MAX));
        }
    }
}

/// Opens the file that clears the accessed bits of a process, `/proc/PID/clear_refs`, which its
/// owner alone may write.
pub type Open = Box<dyn Fn(i32) -> io::Result<File> + Send>;

/// For root, who needs nobody to open it.
pub fn opened_by_root() -> Open {
    Box::new(|pid| {
        let path = format!("/proc/{pid}/clear_refs");
        File::options().write(true).open(path)
    })
}

/// What to record.
#[derive(Debug, Clone)]
pub struct Order {
    /// The processes; none for all with 8 MiB or more.
    pub pids: Vec<i32>,
    /// Those of these control groups alone; none for all.
    pub cgroups: Vec<Pattern>,
    /// Length of an interval. If looking takes longer than that, intervals do, too.
    pub interval: Duration,
    /// How many.
    pub intervals: u32,
    /// Nothing is looked at for so long after each, so that others have their turns.
    pub rest: Duration,
    /// At most so much of one CPU is used, and after an interval that took more nothing is looked
    /// at for a while. Then it ends after the time that the intervals alone would take, or after
    /// the first.
    pub cpus_max: Option<f64>,
    /// So many bytes a second are recorded at most, likewise: what an interval takes in a file.
    pub bytes_per_s_max: Option<f64>,
    /// How long clearing may keep a process from changing its mappings; see Clearing in the README
    /// of `pgtscan`.
    pub stall_max: Duration,
    /// Keep the names of programs and control groups.
    pub with_names: bool,
}

/// So many MB a day.
pub fn bytes_per_s(mb_per_day: u32) -> f64 {
    f64::from(mb_per_day) * 1e6 / (24.0 * 3600.0)
}

impl Order {
    /// Whether it may have to rest longer than `rest`.
    pub(super) fn is_bounded(&self) -> bool {
        self.cpus_max.is_some() || self.bytes_per_s_max.is_some()
    }
}

/// A budget by time: until when what was spent is paid for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Debt(Duration);

impl Debt {
    /// Something was spent since `begin`, with a budget of so much a second.
    pub(super) fn owe(&mut self, begin: Duration, spent: f64, per_s_max: f64) {
        let time = Duration::try_from_secs_f64(spent / per_s_max).unwrap_or(Duration::MAX);
        self.0 = self.0.max(begin).saturating_add(time);
    }

    /// When it is paid for.
    pub(super) fn paid(self) -> Duration {
        self.0
    }
}

/// How a recording goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Intervals done.
    pub intervals: u32,
    /// Processes looked at in the last one.
    pub processes: usize,
    /// Base pages that they touched.
    pub touched_pages: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_spent_is_paid_for_by_time() {
        let at = Duration::from_secs;
        let mut debt = Debt::default();
        debt.owe(at(100), 20.0, 10.0);
        assert_eq!(debt.paid(), at(102));
        debt.owe(at(101), 20.0, 10.0);
        assert_eq!(debt.paid(), at(104), "one after the other");
        debt.owe(at(200), 0.0, 10.0);
        assert_eq!(debt.paid(), at(200), "nothing is saved up");
        debt.owe(at(200), f64::INFINITY, 10.0);
        assert_eq!(debt.paid(), Duration::MAX);
        // 50 MB a day are 35 kB a minute.
        assert_eq!((60.0 * bytes_per_s(50)).round(), 34_722.0);
    }
}
