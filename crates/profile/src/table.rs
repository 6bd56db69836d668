//! Profiles of many hosts as one table, in Parquet: a row for each run of pages of one tier that a
//! process touched in an interval. For who asks a fleet by SQL; and the profiles can be read back.
//!
//! What belongs to an interval is in its first row, so that sums are right: CPU time is 0 in the
//! others. An interval in which nothing was touched has one row of 0 pages. Rows are in the order
//! of hosts, processes, intervals and pages; a process that was never looked at has none.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use crate::columns::{ByteArrayType, Damage, Group, Int32Type, Int64Type, Reader, Writer, text};
use crate::{BLOCK_PAGES, Interval, Invalid, NAME_BYTES_MAX, Process, Profile, Touched};

/// Of the columns, and of what they mean.
const VERSION: &str = "2";

/// It had neither `cgroup` nor `elapsed_ms`. It is read, and no more written.
const OLD_VERSION: &str = "1";

/// The key of the version in the file's metadata.
const KEY: &str = "pghot_profiles";

/// In the order in which they are written and read.
const SCHEMA: &str = "message profiles {
    required binary host (UTF8);
    required binary kernel (UTF8);
    required int32 interval_ms;
    required int32 intervals;
    required int64 elapsed_ms;
    required binary disturbed_by (UTF8);
    required int32 process;
    required binary cgroup (UTF8);
    required binary command (UTF8);
    required int64 memory_pages;
    required int64 huge_pages;
    required int32 interval;
    required int64 start_ms;
    required int64 cpu_us;
    required int64 first_page;
    required int64 pages;
    required binary tier (UTF8);
}";

/// Rows of a group: some megabytes in memory.
const GROUP_ROWS: usize = 1 << 16;

const TOP: &str = "top";
const LOWER: &str = "lower";

/// A table that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The file cannot be opened.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The system's answer.
        source: io::Error,
    },
    /// It is none.
    #[error("{path} is not a table of profiles: {why}; `pghot profile export` writes them")]
    Damaged {
        /// The file.
        path: String,
        /// Why not.
        why: Damage,
    },
    /// It cannot be written.
    #[error("cannot write {path}: {why}")]
    Write {
        /// The file.
        path: String,
        /// Why not.
        why: Damage,
    },
    /// A field has an impossible value.
    #[error("{path}: host {host}: {invalid}")]
    Field {
        /// The file.
        path: String,
        /// Whose profile.
        host: String,
        /// The field.
        invalid: Invalid,
    },
}

/// A row.
#[derive(Debug, Clone)]
struct Row {
    host: String,
    kernel: String,
    interval_ms: u32,
    intervals: u32,
    elapsed_ms: u64,
    /// Names, with commas.
    disturbed_by: String,
    process: u32,
    cgroup: String,
    command: String,
    blocks: u32,
    huge_blocks: u32,
    interval: u32,
    cpu_us: u64,
    run: Range<u32>,
    is_lower: bool,
}

/// A table that is being written. In memory are the rows of one group.
pub struct TableWriter {
    path: String,
    writer: Writer<File>,
    rows: Vec<Row>,
}

impl TableWriter {
    /// An empty one.
    pub fn create(path: &Path) -> Result<TableWriter, TableError> {
        let name = path.display().to_string();
        // The checksum is put in at the end, after all was read once more.
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path);
        let file = file.map_err(|source| TableError::Io {
            path: name.clone(),
            source,
        })?;
        let writer =
            Writer::new(file, SCHEMA, &["first_page"]).map_err(|why| TableError::Write {
                path: name.clone(),
                why,
            })?;
        Ok(TableWriter {
            path: name,
            writer,
            rows: Vec::new(),
        })
    }

    /// Adds the profile of a host.
    pub fn add(&mut self, host: &str, profile: &Profile) -> Result<(), TableError> {
        for (process, number) in profile.processes.iter().zip(0u32..) {
            for interval in &process.intervals {
                let mut cpu_us = interval.cpu_us;
                for (run, is_lower) in pieces(interval) {
                    self.rows.push(Row {
                        host: host.to_owned(),
                        kernel: profile.kernel.clone(),
                        interval_ms: profile.interval_ms,
                        intervals: profile.intervals,
                        elapsed_ms: profile.elapsed_ms,
                        disturbed_by: profile.disturbed_by.join(","),
                        process: number,
                        cgroup: process.cgroup.clone(),
                        command: process.name.clone(),
                        blocks: process.blocks,
                        huge_blocks: process.huge_blocks,
                        interval: interval.number,
                        cpu_us,
                        run,
                        is_lower,
                    });
                    cpu_us = 0;
                    if self.rows.len() == GROUP_ROWS {
                        self.flush()?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends the file.
    pub fn finish(mut self) -> Result<(), TableError> {
        self.flush()?;
        let TableWriter { path, writer, .. } = self;
        let finished = writer.finish(&[(KEY, VERSION.to_owned())]);
        let synced = finished.and_then(|file| {
            file.sync_all()
                .map_err(|error| Damage::Write(error.to_string()))
        });
        synced.map_err(|why| TableError::Write { path, why })
    }

    fn flush(&mut self) -> Result<(), TableError> {
        let rows = std::mem::take(&mut self.rows);
        if rows.is_empty() {
            return Ok(());
        }
        let pages = |blocks: u32| i64::from(blocks) * i64::from(BLOCK_PAGES);
        let tier = |row: &Row| if row.is_lower { LOWER } else { TOP };
        let start_ms = |row: &Row| i64::from(row.interval) * i64::from(row.interval_ms);
        // In the order of the schema.
        let written = self.writer.group(|group| {
            group.column::<ByteArrayType, _>(&rows, |row| text(&row.host))?;
            group.column::<ByteArrayType, _>(&rows, |row| text(&row.kernel))?;
            group.column::<Int32Type, _>(&rows, |row| row.interval_ms as i32)?;
            group.column::<Int32Type, _>(&rows, |row| row.intervals as i32)?;
            group.column::<Int64Type, _>(&rows, |row| row.elapsed_ms as i64)?;
            group.column::<ByteArrayType, _>(&rows, |row| text(&row.disturbed_by))?;
            group.column::<Int32Type, _>(&rows, |row| row.process as i32)?;
            group.column::<ByteArrayType, _>(&rows, |row| text(&row.cgroup))?;
            group.column::<ByteArrayType, _>(&rows, |row| text(&row.command))?;
            group.column::<Int64Type, _>(&rows, |row| pages(row.blocks))?;
            group.column::<Int64Type, _>(&rows, |row| pages(row.huge_blocks))?;
            group.column::<Int32Type, _>(&rows, |row| row.interval as i32)?;
            group.column::<Int64Type, _>(&rows, start_ms)?;
            group.column::<Int64Type, _>(&rows, |row| row.cpu_us as i64)?;
            group.column::<Int64Type, _>(&rows, |row| row.run.start.into())?;
            group.column::<Int64Type, _>(&rows, |row| row.run.len() as i64)?;
            group.column::<ByteArrayType, _>(&rows, |row| text(tier(row)))
        });
        written.map_err(|why| TableError::Write {
            path: self.path.clone(),
            why,
        })
    }
}

/// The runs of an interval, each in one tier; an empty one if nothing was touched.
fn pieces(interval: &Interval) -> Vec<(Range<u32>, bool)> {
    let mut pieces = Vec::new();
    let mut lower = interval.lower.runs().peekable();
    for run in interval.touched.runs() {
        let mut at = run.start;
        while let Some(part) = lower.next_if(|part| part.start < run.end) {
            if at < part.start {
                pieces.push((at..part.start, false));
            }
            at = part.end;
            pieces.push((part, true));
        }
        if at < run.end {
            pieces.push((at..run.end, false));
        }
    }
    if pieces.is_empty() {
        pieces.push((0..0, false));
    }
    pieces
}

/// Reads a table; `each` gets the profile of one host after the other. In memory are the rows of
/// one group, and one profile.
pub fn read(path: &Path, each: &mut dyn FnMut(&str, Profile)) -> Result<(), TableError> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|source| TableError::Io {
        path: name.clone(),
        source,
    })?;
    let damaged = |why| TableError::Damaged {
        path: name.clone(),
        why,
    };
    let reader = Reader::of_file(file).map_err(damaged)?;
    let version = reader.metadata(KEY).map_err(damaged)?;
    let is_old = version == OLD_VERSION;
    if version != VERSION && !is_old {
        return Err(damaged(Damage::Metadata("version that this pghot reads")));
    }
    let schema = match is_old {
        true => old_schema(),
        false => SCHEMA.to_owned(),
    };
    reader.check(&schema).map_err(damaged)?;
    let mut hosts = Hosts {
        path: &name,
        now: None,
        each,
    };
    for group in reader.groups() {
        for row in rows_of(&mut group.map_err(damaged)?, is_old).map_err(damaged)? {
            hosts.add(row)?;
        }
    }
    hosts.end()
}

/// Of version 1.
fn old_schema() -> String {
    let lines = SCHEMA.split_inclusive('\n');
    let is_new = |line: &str| line.contains(" elapsed_ms;") || line.contains(" cgroup ");
    lines.filter(|line| !is_new(line)).collect()
}

fn rows_of(group: &mut Group<'_>, is_old: bool) -> Result<Vec<Row>, Damage> {
    // A value that does not fit becomes one that the check of the profile refuses, as 0 is no
    // length of an interval.
    let narrow = |values: Vec<i64>, unit: i64| -> Vec<u32> {
        values
            .into_iter()
            .map(|it| u32::try_from(it / unit).unwrap_or(u32::MAX))
            .collect()
    };
    let pages = i64::from(BLOCK_PAGES);
    let (hosts, kernels) = (group.texts()?, group.texts()?);
    let (interval_ms, intervals) = (group.column::<Int32Type>()?, group.column::<Int32Type>()?);
    let elapsed_ms = match is_old {
        true => {
            // Nobody rested. What does not fit is refused as a length of an interval.
            let both = interval_ms.iter().zip(&intervals);
            both.map(|(ms, n)| i64::from(*ms).saturating_mul(i64::from(*n)))
                .collect()
        }
        false => group.column::<Int64Type>()?,
    };
    let disturbed = group.texts()?;
    let processes = group.column::<Int32Type>()?;
    let cgroups = match is_old {
        true => vec![String::new(); group.rows()],
        false => group.texts()?,
    };
    let commands = group.texts()?;
    let blocks = narrow(group.column::<Int64Type>()?, pages);
    let huge_blocks = narrow(group.column::<Int64Type>()?, pages);
    let numbers = group.column::<Int32Type>()?;
    let _start_ms = group.column::<Int64Type>()?;
    let cpu_us = group.column::<Int64Type>()?;
    let first = narrow(group.column::<Int64Type>()?, 1);
    let lengths = narrow(group.column::<Int64Type>()?, 1);
    let tiers = group.texts()?;
    let whose = hosts.into_iter().zip(kernels).zip(disturbed);
    let mut names = whose.zip(cgroups).zip(commands);
    let row = |n: usize| {
        let ((((host, kernel), disturbed_by), cgroup), command) = names.next().unwrap_or_default();
        Row {
            host,
            kernel,
            interval_ms: interval_ms[n] as u32,
            intervals: intervals[n] as u32,
            elapsed_ms: elapsed_ms[n] as u64,
            disturbed_by,
            process: processes[n] as u32,
            cgroup,
            command,
            blocks: blocks[n],
            huge_blocks: huge_blocks[n],
            interval: numbers[n] as u32,
            cpu_us: cpu_us[n].max(0) as u64,
            run: first[n]..first[n].saturating_add(lengths[n]),
            is_lower: tiers[n] == LOWER,
        }
    };
    Ok((0..group.rows()).map(row).collect())
}

fn names_of(text: &str) -> Vec<String> {
    let names = text.split(',').filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

/// Makes profiles of rows.
struct Hosts<'a> {
    path: &'a str,
    now: Option<Host>,
    each: &'a mut dyn FnMut(&str, Profile),
}

struct Host {
    name: String,
    profile: Profile,
    /// The number of its last process, and the runs of that one's last interval.
    process: u32,
    touched: Vec<Range<u32>>,
    lower: Vec<Range<u32>>,
}

impl Hosts<'_> {
    fn add(&mut self, row: Row) -> Result<(), TableError> {
        if self.now.as_ref().is_some_and(|now| now.name != row.host) {
            self.end()?;
        }
        let now = self.now.get_or_insert_with(|| Host {
            name: row.host.clone(),
            profile: Profile {
                kernel: row.kernel.clone(),
                interval_ms: row.interval_ms,
                intervals: row.intervals,
                elapsed_ms: row.elapsed_ms,
                disturbed_by: names_of(&row.disturbed_by),
                processes: Vec::new(),
            },
            process: u32::MAX,
            touched: Vec::new(),
            lower: Vec::new(),
        });
        now.add(row);
        Ok(())
    }

    /// Hands over what is there.
    fn end(&mut self) -> Result<(), TableError> {
        let Some(mut now) = self.now.take() else {
            return Ok(());
        };
        now.end_interval();
        let Host { name, profile, .. } = now;
        profile.check().map_err(|invalid| TableError::Field {
            path: self.path.to_owned(),
            host: name.chars().take(NAME_BYTES_MAX).collect(),
            invalid,
        })?;
        (self.each)(&name, profile);
        Ok(())
    }
}

impl Host {
    fn add(&mut self, row: Row) {
        let is_new_process = self.profile.processes.is_empty() || self.process != row.process;
        if is_new_process {
            self.end_interval();
            self.process = row.process;
            self.profile.processes.push(Process {
                name: row.command,
                cgroup: row.cgroup,
                blocks: row.blocks,
                huge_blocks: row.huge_blocks,
                intervals: Vec::new(),
            });
        }
        let last = |host: &Host| {
            let process = host.profile.processes.last()?;
            Some(process.intervals.last()?.number)
        };
        if last(self) != Some(row.interval) {
            self.end_interval();
            if let Some(process) = self.profile.processes.last_mut() {
                process.intervals.push(Interval {
                    number: row.interval,
                    cpu_us: 0,
                    touched: Touched::default(),
                    lower: Touched::default(),
                });
            }
        }
        if let Some(interval) = self.last_interval() {
            interval.cpu_us = interval.cpu_us.saturating_add(row.cpu_us);
        }
        if row.is_lower {
            self.lower.push(row.run.clone());
        }
        self.touched.push(row.run);
    }

    fn last_interval(&mut self) -> Option<&mut Interval> {
        self.profile.processes.last_mut()?.intervals.last_mut()
    }

    /// Puts the runs that were collected into their interval.
    fn end_interval(&mut self) {
        let touched = Touched::of(std::mem::take(&mut self.touched));
        let lower = Touched::of(std::mem::take(&mut self.lower));
        if let Some(interval) = self.last_interval()
            && interval.touched == Touched::default()
        {
            interval.touched = touched;
            interval.lower = lower;
        }
    }
}

#[cfg(test)]
mod tests;
