//! The kernel settings that pghot changes: these seven, and no others.

use std::path::{Path, PathBuf};

use crate::root::SysRoot;

/// Their files. Whatever is not among them is never written, whoever asks and whatever a state
/// file says: who writes is root.
pub(crate) struct Settings {
    /// `kernel.numa_balancing`
    pub balancing: PathBuf,
    /// `kernel.numa_balancing_promote_rate_limit_MBps`
    pub rate_limit: PathBuf,
    /// How soon after its mark a fault must come, for the kernel to promote.
    pub hot_threshold: PathBuf,
    /// Until the scanner's first visit of a thread; a new thread's period, too.
    pub scan_delay: PathBuf,
    /// Limits of the period, with which the kernel reckons it anew.
    pub scan_period_min: PathBuf,
    pub scan_period_max: PathBuf,
    /// How much it marks at a visit.
    pub scan_size: PathBuf,
}

impl Settings {
    /// Where they are below these trees.
    pub fn new(root: &SysRoot) -> Self {
        let debugfs = root.sys.join("kernel/debug/sched/numa_balancing");
        Self {
            balancing: root.sysctl("kernel.numa_balancing"),
            rate_limit: root.sysctl("kernel.numa_balancing_promote_rate_limit_MBps"),
            hot_threshold: debugfs.join("hot_threshold_ms"),
            scan_delay: debugfs.join("scan_delay_ms"),
            scan_period_min: debugfs.join("scan_period_min_ms"),
            scan_period_max: debugfs.join("scan_period_max_ms"),
            scan_size: debugfs.join("scan_size_mb"),
        }
    }

    /// Whether the path is one of them, letter by letter.
    pub fn has(&self, path: &Path) -> bool {
        let all = [
            &self.balancing,
            &self.rate_limit,
            &self.hot_threshold,
            &self.scan_delay,
            &self.scan_period_min,
            &self.scan_period_max,
            &self.scan_size,
        ];
        // Of the text: paths are also equal that are spelt in other ways.
        all.iter()
            .any(|known| known.as_os_str() == path.as_os_str())
    }
}
