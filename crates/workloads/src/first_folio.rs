//! How long the first folio of a `move_pages` call is away: from the start of the move until it is
//! mapped again, by the kernel's tracepoints.
//!
//! A page cannot be used from the moment its mapping is taken away. A larger batch is moved faster
//! as a whole, and its first folio waits longer for it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context, Result, ensure};

/// Where tracefs may be mounted; the second place is the one of old.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Our instances are called this and our process id.
const PREFIX: &str = "pghot-migrate.";

/// `migrate_pages()` begins: once in a call that moves to one node.
const START: &str = "mm_migrate_pages_start";

/// It ends.
const END: &str = "mm_migrate_pages";

/// Why a call of ours moves pages. A hint fault moves pages too, and so does compaction, which
/// makes room for huge pages in the middle of our move.
const OUR_REASON: &str = "reason=syscall_or_cpuset";

/// A folio is mapped again: by base pages, or by a huge page as a whole.
const MAPPED_AGAIN: [&str; 2] = ["remove_migration_pte", "remove_migration_pmd"];

/// The events, below `events/`.
const EVENTS: [&str; 4] = [
    "migrate/mm_migrate_pages_start",
    "migrate/mm_migrate_pages",
    "migrate/remove_migration_pte",
    "thp/remove_migration_pmd",
];

/// Buffer of each CPU. It takes the first events of a call and drops the rest, which nobody needs.
const BUFFER_KIB: &str = "256";

/// A trace of our own, that disturbs no other user of tracing. Removed when dropped.
pub struct Tracing {
    dir: PathBuf,
}

impl Tracing {
    /// Makes the instance. It sees threads that this one starts from now on, and nobody else.
    pub fn start() -> Result<Tracing> {
        let mounted = |root: &&Path| root.join("instances").is_dir();
        let root = TRACEFS
            .iter()
            .map(Path::new)
            .find(mounted)
            .context("tracefs is not mounted, or not readable")?;
        for event in EVENTS {
            let is_there = root.join("events").join(event).is_dir();
            ensure!(is_there, "this kernel has no tracepoint {event}");
        }
        remove_abandoned(root);
        let dir = root.join(format!("instances/{PREFIX}{}", process::id()));
        fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let tracing = Tracing { dir };
        tracing.set("tracing_on", "0")?;
        tracing.set("trace_clock", "mono")?;
        tracing.set("buffer_size_kb", BUFFER_KIB)?;
        tracing.set("options/overwrite", "0")?;
        tracing.set("options/event-fork", "1")?;
        tracing.set("set_event_pid", &process::id().to_string())?;
        for event in EVENTS {
            tracing.set(&format!("events/{event}/enable"), "1")?;
        }
        Ok(tracing)
    }

    /// How many µs passed until the first folio was mapped again, of each thread that `moves`
    /// starts and that makes one call.
    pub fn measure_us<R>(&self, moves: impl FnOnce() -> Result<R>) -> Result<(R, Vec<f64>)> {
        // Opening the trace for writing empties it.
        self.set("trace", "")?;
        self.set("tracing_on", "1")?;
        let result = moves();
        self.set("tracing_on", "0")?;
        let trace = File::open(self.dir.join("trace")).context("cannot read the trace")?;
        let lines = BufReader::new(trace).lines().map_while(Result::ok);
        Ok((result?, first_folio_us(lines)))
    }

    fn set(&self, file: &str, value: &str) -> Result<()> {
        let path = self.dir.join(file);
        fs::write(&path, value).with_context(|| format!("cannot write to {}", path.display()))
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        // tracefs removes the files of an instance with its folder.
        if let Err(error) = fs::remove_dir(&self.dir) {
            eprintln!("migrate: cannot remove {}: {error}", self.dir.display());
        }
    }
}

/// Removes instances of processes that were killed.
fn remove_abandoned(root: &Path) {
    let entries = fs::read_dir(root.join("instances"));
    for entry in entries.into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // If somebody uses it after all, the kernel refuses.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The move that a thread is in.
#[derive(Default)]
struct Move {
    /// When ours began, if it has.
    start_s: Option<f64>,
    /// Moves for other reasons that have begun and not ended.
    others: u32,
    first_us: Option<f64>,
}

/// What [`Tracing::measure_us`] returns, from the lines of the trace.
fn first_folio_us(lines: impl Iterator<Item = String>) -> Vec<f64> {
    let mut moves: BTreeMap<u32, Move> = BTreeMap::new();
    for line in lines {
        let Some((thread, at_s, event)) = parse(&line) else {
            continue;
        };
        let now = moves.entry(thread).or_default();
        match event {
            START if line.contains(OUR_REASON) => now.start_s = now.start_s.or(Some(at_s)),
            START => now.others += 1,
            END => now.others = now.others.saturating_sub(1),
            _ if MAPPED_AGAIN.contains(&event) && now.others == 0 => {
                // The trace tells whole µs.
                let us = now.start_s.map(|start_s| ((at_s - start_s) * 1e6).round());
                now.first_us = now.first_us.or(us);
            }
            _ => {}
        }
    }
    moves.into_values().filter_map(|now| now.first_us).collect()
}

/// Thread, time in seconds and event of a line such as
/// `  migrate-312     [001] .....    12.345678: mm_migrate_pages_start: mode=MIGRATE_SYNC`.
fn parse(line: &str) -> Option<(u32, f64, &str)> {
    let (task, rest) = line.split_once(" [")?;
    let thread = task.trim().rsplit_once('-')?.1.parse().ok()?;
    // CPU and flags come first; the flags can be switched off.
    let mut fields = rest
        .split_ascii_whitespace()
        .filter_map(|field| field.strip_suffix(':'));
    Some((thread, fields.next()?.parse().ok()?, fields.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(trace: &str) -> Vec<f64> {
        first_folio_us(trace.lines().map(str::to_owned))
    }

    #[test]
    fn each_thread_waits_for_its_own_first_folio() {
        let trace = "\
# tracer: nop
#              | |         |   |||||     |         |
  migrate-61  [000] ...1. 20.000100: mm_migrate_pages_start: mode=X reason=syscall_or_cpuset
  migrate-62  [001] ..... 20.000130: mm_migrate_pages_start: mode=X reason=syscall_or_cpuset
  migrate-63  [001] ..... 20.000131: remove_migration_pte: addr=7f00, pte=80 order=0
  migrate-61  [000] ..... 20.000350: remove_migration_pte: addr=7f00, pte=80 order=0
  migrate-61  [001] ..... 20.000400: remove_migration_pte: addr=8f00, pte=80 order=0
  my-prog-62  [001] 20.000530: remove_migration_pmd: addr=7f00, pmd=80
  migrate-64  [000] ..... 20.000900: mm_migrate_pages_start: mode=X reason=syscall_or_cpuset
";
        // Thread 63 has no start and 64 no end.
        assert_eq!(waits(trace), [250.0, 400.0]);
    }

    #[test]
    fn moves_for_other_reasons_do_not_count() {
        let trace = "\
  migrate-61  [000] ..... 20.000100: mm_migrate_pages_start: mode=X reason=numa_misplaced
  migrate-61  [000] ..... 20.000200: remove_migration_pte: addr=7f00, pte=80 order=0
  migrate-61  [000] ..... 20.000300: mm_migrate_pages: nr_succeeded=1 reason=numa_misplaced
  migrate-62  [000] ..... 20.001000: mm_migrate_pages_start: mode=X reason=syscall_or_cpuset
  migrate-62  [000] ..... 20.001100: mm_migrate_pages_start: mode=X reason=compaction
  migrate-62  [000] ..... 20.001200: remove_migration_pte: addr=1f00, pte=80 order=0
  migrate-62  [000] ..... 20.001300: mm_migrate_pages: nr_succeeded=1 reason=compaction
  migrate-62  [000] ..... 20.001700: remove_migration_pmd: addr=7f00, pmd=80
";
        assert_eq!(waits(trace), [700.0]);
    }

    #[test]
    fn what_is_no_event_is_passed_over() {
        for line in [
            "",
            "# x",
            "a-1 [0]",
            "a-x [000] . 1.0: b: c",
            "a-1 [000] . x: b:",
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
