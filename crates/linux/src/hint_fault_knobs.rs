//! Makes the kernel take hint faults on the lower tier without promoting anything itself.
//!
//! The tiering bit of `kernel.numa_balancing` makes the scanner mark lower-tier pages. A promotion
//! rate limit of 0 makes `numa_promotion_rate_limit()` refuse every candidate, and a hot threshold
//! of 0 ms makes `should_numa_migrate_memory()` find none. Neither stops the kernel's shortcut
//! while the target node has plenty of free memory: see
//! [`Watermarks::free_space_shortcut`](crate::watermarks::Watermarks::free_space_shortcut).
//!
//! The scanner visits a process once a period, which is a second for a thread that is new, and then
//! marks 256 MB at once: hot pages are found late, and their faults hold up each other, so that
//! they look less hot than they are. And from its third pass on it spends a visit on each mapping
//! that is not accessed, and marks nothing else meanwhile. So visits become forty times as frequent
//! and smaller (`pghot_engine::Marking` says by how much); for threads that are older, by pulses,
//! in which the kernel promotes a little (`pghot_engine::pulse`). To mark nothing for a while there
//! is no setting but the tiering bit: a size of 0 would make the kernel divide by it.
//! Normal balancing uses the same settings: where it has work to do they are left alone, and where
//! it has none it is switched off meanwhile (`marking::is_for_normal_balancing`).

use std::path::{Path, PathBuf};

use pghot_engine::marking::{self, Visits};
use pghot_engine::pulse;
use pghot_events::event;

use crate::knobs::{Knobs, KnobsError, Settings};
use crate::root::{ReadError, SysRoot, read_number, read_text};
use crate::topology::read_list;

/// NUMA_BALANCING_NORMAL: balance between nodes of one tier.
const NORMAL: u32 = 1;
/// NUMA_BALANCING_MEMORY_TIERING: mark lower-tier pages and promote.
const TIERING: u32 = 2;

/// In a pulse. While more candidates come than the rate limit allows, the kernel
/// (`numa_promotion_adjust_threshold()`) lowers the threshold to an eighth of this, within a fifth
/// of a second in a pulse. So pages that are touched a second after their marks still count, as by
/// the kernel's default before it is lowered. With the default itself it would become 125 ms,
/// within which a program that passes over its memory every few seconds may have no page.
const PULSE_THRESHOLD_MS: u64 = 8000;

/// One setting and the values it is taken through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The setting.
    pub path: PathBuf,
    /// Values in the order they are written.
    pub values: Vec<String>,
}

/// Values of `kernel.numa_balancing` to write in turn, given the present one and the normal bit to
/// keep.
///
/// Ends with the tiering bit on and the normal bit as it is to be. Only *switching* the tiering bit
/// on runs `reset_memory_tiering()`, which clears a hot threshold left over from before
/// (`pgdat->nbp_threshold`, otherwise good for up to a minute); so a bit that is on is first
/// switched off.
pub fn balancing_values(present: u32, without_tiering: u32) -> Vec<u32> {
    let with_tiering = without_tiering | TIERING;
    if present & TIERING == 0 {
        vec![with_tiering]
    } else {
        vec![without_tiering, with_tiering]
    }
}

/// Whether the kernel takes hint faults on the lower tier now, and so promotes by itself.
pub fn tiering_is_on(root: &SysRoot) -> Result<bool, KnobsError> {
    let balancing = Settings::new(root).balancing;
    let present = read_number::<u32>(&balancing)
        .map_err(|error| missing_or(error, &balancing, "needs CONFIG_NUMA_BALANCING"))?;
    Ok(present & TIERING != 0)
}

/// Of the present value the bits that are kept: [`NORMAL`], if it has work to do.
fn kept(root: &SysRoot, present: u32) -> u32 {
    match marking::is_for_normal_balancing(present & NORMAL != 0, nodes_with_cpus(root)) {
        true => NORMAL,
        false => 0,
    }
}

/// How many nodes have CPUs. What cannot be read may be several.
pub(crate) fn nodes_with_cpus(root: &SysRoot) -> usize {
    let with_cpus = read_list(&root.sys.join("devices/system/node/has_cpu"));
    with_cpus.map_or(usize::MAX, |nodes| nodes.len())
}

/// What [`tiering_without_kernel_promotion`] would write here, in order; changes nothing.
pub fn plan(root: &SysRoot) -> Result<Vec<Step>, KnobsError> {
    let paths = Settings::new(root);
    let present = read_number::<u32>(&paths.balancing)
        .map_err(|error| missing_or(error, &paths.balancing, "needs CONFIG_NUMA_BALANCING"))?;
    read_text(&paths.rate_limit)
        .map_err(|error| missing_or(error, &paths.rate_limit, "needs Linux 6.1 or later"))?;

    let step = |path, value: &str| Step {
        path,
        values: vec![value.to_owned()],
    };
    let mut steps = vec![step(paths.rate_limit, "0")];
    // The rate limit alone suffices, so debugfs unmounted, or closed by lockdown, is no error.
    if is_there(&paths.hot_threshold)? {
        steps.push(step(paths.hot_threshold, "0"));
    }
    let kept = kept(root, present);
    if kept == 0 && is_there(&paths.scan_delay)? && is_there(&paths.scan_size)? {
        let set = |path, value: u64| step(path, &value.to_string());
        steps.push(set(paths.scan_delay, marking::DELAY_MS));
        steps.push(set(paths.scan_period_min, pulse::PERIOD_MIN_MS));
        steps.push(set(paths.scan_size, marking::START_SIZE_MB));
    }
    // Last, so that not one page is promoted between two writes.
    let values = balancing_values(present, kept)
        .iter()
        .map(u32::to_string)
        .collect();
    steps.push(Step {
        path: paths.balancing,
        values,
    });
    Ok(steps)
}

/// What a run left that was killed and whose state file is lost, with the kernel's defaults to go
/// back to: nobody else has the tiering bit and a rate limit of 0, or a rate limit and a hot
/// threshold of 0, or those of a pulse. Which balancing the host had is lost; the one that does not
/// promote is safe.
fn left_over(root: &SysRoot) -> Vec<(PathBuf, String)> {
    let paths = Settings::new(root);
    let is_at = |path: &Path, value: &str| read_text(path).is_ok_and(|present| present == value);
    let balancing = read_number::<u32>(&paths.balancing).unwrap_or(0);
    let is_tiering = balancing & TIERING != 0;
    let is_pulse = is_at(&paths.rate_limit, &pulse::PULSE_MB_PER_S.to_string())
        && is_at(&paths.scan_period_max, &marking::DELAY_MS.to_string());
    let has_threshold = is_at(&paths.hot_threshold, "0")
        || is_pulse && is_at(&paths.hot_threshold, &PULSE_THRESHOLD_MS.to_string());
    let has_limit = is_at(&paths.rate_limit, "0") || is_pulse;
    if !has_limit || !is_tiering && !has_threshold {
        return Vec::new();
    }
    let mut left = vec![(paths.rate_limit, "65536".to_owned())];
    if has_threshold {
        left.push((paths.hot_threshold, "1000".to_owned()));
    }
    let delays_ms = [marking::DELAY_MS, marking::DELAY_ABOVE_MS];
    if (delays_ms.iter()).any(|delay_ms| is_at(&paths.scan_delay, &delay_ms.to_string())) {
        left.push((paths.scan_delay, "1000".to_owned()));
        left.push((paths.scan_period_min, "1000".to_owned()));
        left.push((paths.scan_size, "256".to_owned()));
    }
    if is_at(&paths.scan_period_max, &marking::DELAY_MS.to_string()) {
        left.push((paths.scan_period_max, "60000".to_owned()));
    }
    if is_tiering {
        left.push((paths.balancing, (balancing & !TIERING).to_string()));
    }
    left
}

/// Takes what is left over for what it is: no value to go back to. Only before the first change.
fn adopt_left_over(knobs: &mut Knobs) -> Result<(), KnobsError> {
    if knobs
        .changed()
        .contains(&Settings::new(knobs.root()).rate_limit)
    {
        return Ok(());
    }
    for (path, default) in left_over(knobs.root()) {
        event!(
            setting_adopted,
            "{} is as an earlier pghot left it, whose state file is lost: at the end it becomes \
             {default}, as kernels have it",
            path.display()
        );
        knobs.adopt(&path, &default)?;
    }
    Ok(())
}

/// Turns hint faults on and the kernel's own promotion off; returns what was written.
///
/// If a write fails, those before it are put back and the failed one is named. Should even that
/// fail, the originals are still in the state file for [`Knobs::restore`].
pub fn tiering_without_kernel_promotion(knobs: &mut Knobs) -> Result<Vec<Step>, KnobsError> {
    let steps = plan(knobs.root())?;
    adopt_left_over(knobs)?;
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

/// Tells the scanner how to mark. Returns false where [`plan`] leaves that alone; elsewhere normal
/// balancing is off, and the tiering bit is all there is of `kernel.numa_balancing`.
pub fn mark(knobs: &mut Knobs, visits: Visits) -> Result<bool, KnobsError> {
    let paths = Settings::new(knobs.root());
    if !knobs.changed().contains(&paths.scan_size) {
        return Ok(false);
    }
    let pulse_limit = pulse::PULSE_MB_PER_S.to_string();
    let was_pulse = knobs.ours(&paths.rate_limit) == Some(pulse_limit.as_str());
    if was_pulse && !visits.is_pulse {
        end_pulse(knobs, &paths)?;
    }
    let delay_ms = match visits.marks_above {
        true => marking::DELAY_ABOVE_MS,
        false => marking::DELAY_MS,
    };
    set_new(knobs, &paths.scan_delay, delay_ms)?;
    // Faults of the top tier count as local ones, for which the kernel makes the period longer.
    if visits.is_pulse || visits.marks_above {
        set_new(knobs, &paths.scan_period_max, marking::DELAY_MS)?;
    } else if knobs.changed().contains(&paths.scan_period_max) {
        knobs.put_back_one(&paths.scan_period_max)?;
    }
    knobs.set(&paths.scan_size, &visits.size_mb.to_string())?;
    if visits.is_pulse && !was_pulse {
        begin_pulse(knobs, &paths)?;
    }
    // Normal balancing marks the top tier too.
    let above = if visits.marks_above { NORMAL } else { 0 };
    let wanted = (TIERING | above).to_string();
    let ours = knobs.ours(&paths.balancing).unwrap_or_default().to_owned();
    match visits.rests {
        true if ours != "0" => tiering_off(knobs)?,
        false if ours != wanted => knobs.set(&paths.balancing, &wanted)?,
        _ => {}
    }
    Ok(true)
}

/// Sets what is not set yet.
fn set_new(knobs: &mut Knobs, path: &Path, value: u64) -> Result<(), KnobsError> {
    let value = value.to_string();
    match knobs.ours(path) == Some(value.as_str()) {
        true => Ok(()),
        false => knobs.set(path, &value),
    }
}

/// Lets the kernel promote a little, and so reckon periods anew. What fails is put back.
fn begin_pulse(knobs: &mut Knobs, paths: &Settings) -> Result<(), KnobsError> {
    let mut begin = || {
        if is_there(&paths.hot_threshold)? {
            knobs.set(&paths.hot_threshold, &PULSE_THRESHOLD_MS.to_string())?;
        }
        knobs.set(&paths.rate_limit, &pulse::PULSE_MB_PER_S.to_string())
    };
    let begun = begin();
    if begun.is_err() {
        // The first failure is the cause.
        let _ = end_pulse(knobs, paths);
    }
    begun
}

/// First of all that the kernel promotes nothing.
fn end_pulse(knobs: &mut Knobs, paths: &Settings) -> Result<(), KnobsError> {
    let limited = knobs.set(&paths.rate_limit, "0");
    let threshold = match is_there(&paths.hot_threshold)? {
        true => knobs.set(&paths.hot_threshold, "0"),
        false => Ok(()),
    };
    limited.and(threshold)
}

/// Turns hint faults on the lower tier off again, so that the kernel promotes nothing in them.
/// Normal balancing stays as it is meanwhile, and so do the other settings.
pub fn tiering_off(knobs: &mut Knobs) -> Result<(), KnobsError> {
    adopt_left_over(knobs)?;
    let path = Settings::new(knobs.root()).balancing;
    let present = read_number::<u32>(&path)
        .map_err(|error| missing_or(error, &path, "needs CONFIG_NUMA_BALANCING"))?;
    let kept = kept(knobs.root(), present);
    knobs.set(&path, &kept.to_string())
}

/// Whether a setting of debugfs can be read here.
fn is_there(path: &Path) -> Result<bool, ReadError> {
    match read_text(path) {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() || error.is_denied() => Ok(false),
        Err(error) => Err(error),
    }
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
