//! Access profiles: which pages of which programs were touched in each interval of a recording.
//! `pghot record` writes them, the simulator replays them.
//!
//! A profile tells nothing of what is in the pages, nor where they are: a process's pages are
//! numbered in blocks of 2 MiB, in the order of their addresses and without the gaps. What is left
//! of an address is which of two pages comes first.
//!
//! | module | job |
//! |---|---|
//! | [`columns`] | tables on disk, in Parquet with a checksum |
//! | [`file`], `stored` | profiles on disk: a header, a checksum, and what changes, by `postcard` |
//! | [`part`], [`rotation`] | files that are written in one piece, and the newest of several |
//! | [`grid`] | a process's accesses by memory and time, as a heatmap draws them |
//! | [`table`] | profiles of many hosts as one table |
//! | [`touched`] | sets of pages, as runs |

pub mod columns;
pub mod file;
pub mod grid;
pub mod part;
pub mod rotation;
mod seal;
mod stored;
pub mod table;
pub mod touched;
mod v1;
mod v2;
mod v3;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use touched::Touched;

/// Base pages of a block: 2 MiB, what one lowest page table maps, or one huge page.
pub const BLOCK_PAGES: u32 = 512;

/// Base pages of a MiB.
const PAGES_PER_MIB: u64 = 256;

/// Blocks of one process: page numbers have 32 bits, which are 16 TiB.
pub const BLOCKS_MAX: u32 = (1 << 23) - 1;

/// Intervals of one recording: more than a week of seconds.
pub const INTERVALS_MAX: u32 = 1_000_000;

/// Processes of one recording.
pub const PROCESSES_MAX: usize = 4096;

/// Bytes of a program's name; the kernel's names have at most 15.
pub const NAME_BYTES_MAX: usize = 64;

/// Bytes of a control group's path; the kernel's are shorter than a page.
pub const CGROUP_BYTES_MAX: usize = 4096;

/// Others that clear accessed bits, by name: there are two kinds.
const DISTURBERS_MAX: u64 = 16;

/// The longest interval: an hour.
const INTERVAL_MS_MAX: u32 = 3_600_000;

/// A recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// The kernel's release.
    pub kernel: String,
    /// Length of an interval, in ms.
    pub interval_ms: u32,
    /// Intervals of the whole recording.
    pub intervals: u32,
    /// How long it took, with the rests between intervals, in ms.
    pub elapsed_ms: u64,
    /// Who else cleared accessed bits meanwhile, so that touched pages were missed.
    pub disturbed_by: Vec<String>,
    /// The processes.
    pub processes: Vec<Process>,
}

/// A process of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The program's name, as the kernel shows it, or a number in its place.
    pub name: String,
    /// Path of its control group below the mount, with a slash in front, or a number in its place;
    /// empty where it is not known.
    pub cgroup: String,
    /// Blocks in which it ever had a page; `blocks * BLOCK_PAGES` is one past its last page
    /// number.
    pub blocks: u32,
    /// Of those, mapped by one huge page when it was touched.
    pub huge_blocks: u32,
    /// The intervals in which it was looked at, in order.
    pub intervals: Vec<Interval>,
}

/// What a process did in one interval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// Which interval of the recording, from 0.
    pub number: u32,
    /// CPU time that it used, in µs.
    pub cpu_us: u64,
    /// The pages that it touched, once or a million times.
    pub touched: Touched,
    /// Of those, the pages that were in the lower tier.
    pub lower: Touched,
}

impl Interval {
    /// What it takes in a file behind another one of the same process, in bytes, but for a few.
    pub fn stored_bytes(&self, before: Option<&Interval>) -> u64 {
        stored::bytes(self, before)
    }
}

/// What is wrong with a profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {what}")]
pub struct Invalid {
    /// The field.
    pub field: String,
    /// What is wrong with it.
    pub what: String,
}

fn invalid(field: impl Into<String>, what: impl Into<String>) -> Invalid {
    Invalid {
        field: field.into(),
        what: what.into(),
    }
}

fn check_range(field: &str, value: u64, min: u64, max: u64) -> Result<(), Invalid> {
    match (min..=max).contains(&value) {
        true => Ok(()),
        false => Err(invalid(
            field,
            format!("{value} is not from {min} to {max}"),
        )),
    }
}

impl Profile {
    /// Names the first field that cannot be.
    pub fn check(&self) -> Result<(), Invalid> {
        check_range(
            "interval_ms",
            self.interval_ms.into(),
            1,
            INTERVAL_MS_MAX.into(),
        )?;
        check_range("intervals", self.intervals.into(), 1, INTERVALS_MAX.into())?;
        let longest_ms = u64::from(INTERVALS_MAX) * u64::from(INTERVAL_MS_MAX);
        check_range("elapsed_ms", self.elapsed_ms, 0, longest_ms)?;
        check_range(
            "processes",
            self.processes.len() as u64,
            1,
            PROCESSES_MAX as u64,
        )?;
        check_name("kernel", &self.kernel)?;
        let others = self.disturbed_by.len() as u64;
        check_range("disturbed_by", others, 0, DISTURBERS_MAX)?;
        for name in &self.disturbed_by {
            check_name("disturbed_by", name)?;
        }
        for (process, number) in self.processes.iter().zip(0..) {
            process.check(number, self.intervals)?;
        }
        Ok(())
    }

    /// The same with numbers in place of the names of programs and control groups.
    pub fn without_names(mut self) -> Profile {
        let mut cgroups = BTreeMap::new();
        for (process, number) in self.processes.iter_mut().zip(0..) {
            process.name = format!("process {number}");
            if !process.cgroup.is_empty() {
                let next = cgroups.len();
                let number = *cgroups.entry(process.cgroup.clone()).or_insert(next);
                process.cgroup = format!("/cgroup {number}");
            }
        }
        self
    }

    /// A profile of each control group, by its path.
    pub fn by_cgroup(self) -> BTreeMap<String, Profile> {
        let mut by_cgroup = BTreeMap::new();
        let mut whole = self;
        for process in std::mem::take(&mut whole.processes) {
            let of_cgroup = by_cgroup.entry(process.cgroup.clone());
            let profile: &mut Profile = of_cgroup.or_insert_with(|| whole.clone());
            profile.processes.push(process);
        }
        by_cgroup
    }
}

/// How much memory a process has and uses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorkingSet {
    /// Memory in which it ever had a page, in MiB.
    pub memory_mib: u64,
    /// Touched in a second, in MiB; in an interval each page counts once.
    pub touched_mib_per_s: f64,
    /// CPUs that it kept busy.
    pub cpus: f64,
}

impl Process {
    /// How much memory it has and uses, over all intervals in which it was looked at.
    pub fn working_set(&self, interval_ms: u32) -> WorkingSet {
        // Divided by no constant but a power of two: some programs that compute the same by SQL
        // multiply by the reciprocal, and would differ in the last bit.
        let interval_ms = f64::from(interval_ms);
        let seen = self.intervals.len().max(1) as f64;
        let touched: u64 = self.intervals.iter().map(|it| it.touched.pages()).sum();
        let cpu_us: u64 = self.intervals.iter().map(|it| it.cpu_us).sum();
        WorkingSet {
            memory_mib: u64::from(self.blocks) * u64::from(BLOCK_PAGES) / PAGES_PER_MIB,
            touched_mib_per_s: touched as f64 * 1000.0 / seen / interval_ms / PAGES_PER_MIB as f64,
            cpus: cpu_us as f64 * 1e-3 / seen / interval_ms,
        }
    }

    /// One past its last page number.
    pub fn pages(&self) -> u32 {
        self.blocks.min(BLOCKS_MAX) * BLOCK_PAGES
    }

    fn check(&self, number: usize, intervals: u32) -> Result<(), Invalid> {
        let field = |name: &str| format!("processes[{number}].{name}");
        check_name(&field("name"), &self.name)?;
        check_cgroup(&field("cgroup"), &self.cgroup)?;
        check_range(&field("blocks"), self.blocks.into(), 1, BLOCKS_MAX.into())?;
        check_range(
            &field("huge_blocks"),
            self.huge_blocks.into(),
            0,
            self.blocks.into(),
        )?;
        let mut next = 0;
        for interval in &self.intervals {
            if interval.number < next || interval.number >= intervals {
                let what = format!("{} does not rise, or is behind the end", interval.number);
                return Err(invalid(field("intervals"), what));
            }
            next = interval.number + 1;
            let touched = &interval.touched;
            let of = |set| field(&format!("intervals[{}].{set}", interval.number));
            let checked = touched.check(self.pages());
            checked.map_err(|what| invalid(of("touched"), what))?;
            let checked = interval.lower.check(self.pages());
            checked.map_err(|what| invalid(of("lower"), what))?;
            if !touched.contains(&interval.lower) {
                return Err(invalid(of("lower"), "it has pages that were not touched"));
            }
        }
        Ok(())
    }
}

fn check_name(field: &str, name: &str) -> Result<(), Invalid> {
    if name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        let what =
            format!("it is longer than {NAME_BYTES_MAX} bytes, or not of printed characters");
        return Err(invalid(field, what));
    }
    Ok(())
}

/// Files are named after it, so it must lead nowhere else.
fn check_cgroup(field: &str, path: &str) -> Result<(), Invalid> {
    let is_long = path.len() > CGROUP_BYTES_MAX || path.chars().any(char::is_control);
    let mut parts = path.split('/').skip(1);
    let is_path = matches!(path, "" | "/")
        || path.starts_with('/') && parts.all(|part| !matches!(part, "" | "." | ".."));
    match is_path && !is_long {
        true => Ok(()),
        false => Err(invalid(field, "it is not the path of a control group")),
    }
}
