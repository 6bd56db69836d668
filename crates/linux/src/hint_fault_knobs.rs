//! Makes the kernel take hint faults on the lower tier without promoting anything itself.
//!
//! The tiering bit of `kernel.numa_balancing` makes the scanner mark lower-tier pages. A promotion
//! rate limit of 0 makes `numa_promotion_rate_limit()` refuse every candidate, and a hot threshold
//! of 0 ms makes `should_numa_migrate_memory()` find none. Neither stops the kernel's shortcut
//! while the target node has plenty of free memory: see
//! [`Watermarks::free_space_shortcut`](crate::watermarks::Watermarks::free_space_shortcut).

use std::path::{Path, PathBuf};

use crate::knobs::{Knobs, KnobsError};
use crate::root::{ReadError, SysRoot, read_number, read_text};

/// NUMA_BALANCING_NORMAL: balance between nodes of one tier.
const NORMAL: u32 = 1;
/// NUMA_BALANCING_MEMORY_TIERING: mark lower-tier pages and promote.
const TIERING: u32 = 2;

/// One setting and the values it is taken through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The setting.
    pub path: PathBuf,
    /// Values in the order they are written.
    pub values: Vec<String>,
}

/// The settings' files.
struct Paths {
    balancing: PathBuf,
    rate_limit: PathBuf,
    hot_threshold: PathBuf,
}

impl Paths {
    fn new(root: &SysRoot) -> Self {
        Self {
            balancing: root.sysctl("kernel.numa_balancing"),
            rate_limit: root.sysctl("kernel.numa_balancing_promote_rate_limit_MBps"),
            hot_threshold: root
                .sys
                .join("kernel/debug/sched/numa_balancing/hot_threshold_ms"),
        }
    }
}

/// Values of `kernel.numa_balancing` to write in turn, given the present one.
///
/// Ends with the tiering bit on and the normal bit as found. Only *switching* the tiering bit on
/// runs `reset_memory_tiering()`, which clears a hot threshold left over from before
/// (`pgdat->nbp_threshold`, otherwise good for up to a minute); so a bit that is on is first
/// switched off.
pub fn balancing_values(present: u32) -> Vec<u32> {
    let without_tiering = present & NORMAL;
    let with_tiering = without_tiering | TIERING;
    if present & TIERING == 0 {
        vec![with_tiering]
    } else {
        vec![without_tiering, with_tiering]
    }
}

/// Whether the kernel takes hint faults on the lower tier now, and so promotes by itself.
pub fn tiering_is_on(root: &SysRoot) -> Result<bool, KnobsError> {
    let balancing = Paths::new(root).balancing;
    let present = read_number::<u32>(&balancing)
        .map_err(|error| missing_or(error, &balancing, "needs CONFIG_NUMA_BALANCING"))?;
    Ok(present & TIERING != 0)
}

/// What [`tiering_without_kernel_promotion`] would write here, in order; changes nothing.
pub fn plan(root: &SysRoot) -> Result<Vec<Step>, KnobsError> {
    let paths = Paths::new(root);
    let present = read_number::<u32>(&paths.balancing)
        .map_err(|error| missing_or(error, &paths.balancing, "needs CONFIG_NUMA_BALANCING"))?;
    read_text(&paths.rate_limit)
        .map_err(|error| missing_or(error, &paths.rate_limit, "needs Linux 6.1 or later"))?;

    let zero = |path| Step {
        path,
        values: vec!["0".to_owned()],
    };
    let mut steps = vec![zero(paths.rate_limit)];
    // The rate limit alone suffices, so debugfs unmounted, or closed by lockdown, is no error.
    match read_text(&paths.hot_threshold) {
        Ok(_) => steps.push(zero(paths.hot_threshold)),
        Err(error) if error.is_not_found() || error.is_denied() => {}
        Err(error) => return Err(error.into()),
    }
    // Last, so that not one page is promoted between two writes.
    let values = balancing_values(present)
        .iter()
        .map(u32::to_string)
        .collect();
    steps.push(Step {
        path: paths.balancing,
        values,
    });
    Ok(steps)
}

/// Turns hint faults on and the kernel's own promotion off; returns what was written.
///
/// If a write fails, those before it are put back and the failed one is named. Should even that
/// fail, the originals are still in the state file for [`Knobs::restore`].
pub fn tiering_without_kernel_promotion(knobs: &mut Knobs) -> Result<Vec<Step>, KnobsError> {
    let steps = plan(knobs.root())?;
    let mark = knobs.mark();
    for step in &steps {
        let values: Vec<&str> = step.values.iter().map(String::as_str).collect();
        if let Err(error) = knobs.set_through(&step.path, &values) {
            // The first failure is the cause; a second one adds nothing the user can act on.
            let _ = knobs.roll_back(mark);
            return Err(error);
        }
    }
    Ok(steps)
}

/// Turns hint faults on the lower tier off again, so that the kernel promotes nothing in them.
/// Normal balancing stays as it is, and the other settings stay changed.
pub fn tiering_off(knobs: &mut Knobs) -> Result<(), KnobsError> {
    let path = Paths::new(knobs.root()).balancing;
    let present = read_number::<u32>(&path)
        .map_err(|error| missing_or(error, &path, "needs CONFIG_NUMA_BALANCING"))?;
    knobs.set(&path, &(present & NORMAL).to_string())
}

fn missing_or(error: ReadError, path: &Path, why: &'static str) -> KnobsError {
    if error.is_not_found() {
        return KnobsError::Missing {
            path: path.to_path_buf(),
            why,
        };
    }
    error.into()
}
