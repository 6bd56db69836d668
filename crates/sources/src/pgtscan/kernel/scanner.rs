//! The thread: which process is due, and what is to be done with it.
//!
//! A process is looked at (where does it have pages in the lower tier?), and if it has any, scanned
//! again and again: clear, flush, wait, read. While one waits, others are worked on, one step at a
//! time; a process has one scan in flight at most.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use pghot_engine::Turns;
use pghot_linux::host::monotonic;
use pghot_linux::keeper::Keeper;
use pghot_linux::thread_cpu;
use tracing::debug;

use super::counters::Counters;
use super::process::{ADDRESS_END, LOOK_MAX, Process, Step, next_due};
use super::processes;
use crate::Config;
use crate::budget::Budget;
use crate::bulk::BulkReporter;
use crate::kernel::page_tables::clear::{self, ClearCost, FLUSH_DELAY, Method, PidFd};
use crate::kernel::page_tables::procs::{Procs, Stat};
use crate::kernel::page_tables::walk::{Leave, Request, Walked, Walker};
use crate::kernel::worker::Pace;
use crate::pgtscan::adapt::{SIZE_MAX_BYTES, Window, is_useful};
use crate::pgtscan::{SCAN_CPU_MAX_PERCENT, SCAN_STALL_MAX_MS};
use crate::young::Young;

/// How often new processes are looked for: doubled each time that there is none, because the look
/// itself goes through all of `/proc`.
const DISCOVER_MIN: Duration = Duration::from_millis(1000);
const DISCOVER_MAX: Duration = Duration::from_millis(4000);
/// From the first sight of a process to the first look, as the kernel's `scan_delay_ms`: many are
/// gone by then.
const FIRST_LOOK_DELAY: Duration = Duration::from_millis(1000);
/// The longest sleep, so that counters stay fresh.
const SLEEP_MAX: Duration = Duration::from_millis(500);
/// Addresses that one lowest page table maps.
const TABLE_BYTES: u64 = 2 << 20;
/// A piece may have grown since it was looked at; twice what a look takes at most.
const PIECE_MAX_BYTES: u64 = 2 * SIZE_MAX_BYTES;

/// What a walk over a piece met.
#[derive(Default)]
struct Survey {
    entries: u64,
    lower_pages: u64,
    lower: Vec<Range<u64>>,
    young_pages: u64,
    /// Where it stopped; None at the end of the address space.
    end: Option<u64>,
    /// It did not get the mmap lock, and gave up there.
    is_busy: bool,
}

/// How far a walk over a piece shall go.
struct Extent<'a> {
    pid: i32,
    piece: &'a Range<u64>,
    /// Stop after so much memory with page tables.
    size_bytes: u64,
    nid: u32,
    leave: Leave,
}

/// The process is gone; forget it.
struct Gone;

/// What the thread works with.
pub(super) struct Scanner {
    pub procs: Procs,
    pub walker: Walker,
    pub reporter: Arc<BulkReporter>,
    pub counters: Arc<Counters>,
    pub config: Arc<RwLock<Config>>,
    /// What clearing took last, of any process.
    pub clear_cost: ClearCost,
    /// Opens `/proc/PID/clear_refs`.
    pub keeper: Arc<Keeper>,
    /// Whose turn it is to clear accessed bits.
    pub turns: Turns,
    /// Where accesses come from if the process runs in no top-tier node.
    pub fallback_nid: u32,
}

impl Scanner {
    /// Runs until the source is dropped.
    pub fn run(mut self, pace: &Pace) {
        let mut processes: HashMap<i32, Process> = HashMap::new();
        let (mut discover_due, mut discover_after) = (monotonic(), DISCOVER_MIN);
        let mut budget = Budget::new(discover_due, self.cpu_max_percent());
        let mut cpu = thread_cpu();
        let mut leave_hinted = self.config().leave_hinted;
        loop {
            let now = monotonic();
            let before = std::mem::replace(&mut leave_hinted, self.config().leave_hinted);
            if before != leave_hinted {
                // Whoever had nothing to report may have now.
                for process in processes.values_mut() {
                    let cpu_ticks = process.cpu_ticks;
                    *process = Process::new(process.start_time, now);
                    process.used(cpu_ticks);
                }
            }
            let cpu_before = std::mem::replace(&mut cpu, thread_cpu());
            budget.spend(cpu - cpu_before);
            budget.earn(now, self.cpu_max_percent());
            let wait = budget.wait();
            if wait.is_zero() && discover_due <= now {
                let began = thread_cpu();
                discover_after = if self.discover(&mut processes, now) {
                    DISCOVER_MIN
                } else {
                    (2 * discover_after).min(DISCOVER_MAX)
                };
                let rest = budget.time_for(processes::SHARE * (thread_cpu() - began));
                discover_due = now + discover_after.max(rest);
            }
            let next = next_due(&processes, now, wait, self.window());
            let due = next.map_or(discover_due, |(due, _)| {
                due.min(discover_due.max(now + wait))
            });
            if due > now {
                self.counters.note_cost(self.walker.cost());
                if !pace.sleep((due - now).min(SLEEP_MAX)) {
                    return;
                }
                continue;
            }
            if pace.is_ending() {
                return;
            }
            if let Some((due, pid)) = next
                && due <= now
                && let Some(process) = processes.get_mut(&pid)
                && self.step(pid, process, pace).is_err()
            {
                processes.remove(&pid);
                self.counters.gone.add(1);
            }
        }
    }

    /// Returns whether there are new ones.
    fn discover(&self, processes: &mut HashMap<i32, Process>, now: Duration) -> bool {
        let has_new = processes::discover(&self.procs, processes, now + FIRST_LOOK_DELAY);
        self.counters.processes.set(processes.len() as u64);
        let in_lower = processes.values().filter(|p| !p.lower.is_empty()).count();
        self.counters.processes_in_lower_tier.set(in_lower as u64);
        has_new
    }

    fn step(&mut self, pid: i32, process: &mut Process, pace: &Pace) -> Result<(), Gone> {
        if matches!(process.step, Step::Look | Step::Clear) {
            let is_same = |stat: &Stat| stat.start_time == process.start_time;
            let stat = self.procs.stat(pid).filter(is_same).ok_or(Gone)?;
            process.used(stat.cpu_ticks);
            if !process.is_in_series(monotonic(), self.window()) && process.rests() {
                self.counters.skipped_idle.add(1);
                return Ok(());
            }
        }
        match process.step {
            Step::Look => self.look(pid, process, pace),
            Step::Clear => self.clear(pid, process),
            Step::Flush { cleared_at } => self.flush(pid, process, cleared_at, pace),
            Step::Read { cleared_at } => self.read(pid, process, cleared_at, pace),
        }
    }

    /// Finds out where the next piece of a process ends and what of it lies in the lower tier.
    fn look(&mut self, pid: i32, process: &mut Process, pace: &Pace) -> Result<(), Gone> {
        if self.procs.is_opted_out(pid) {
            self.counters.skipped_opted_out.add(1);
            process.lower.clear();
            process.then(Step::Look, monotonic() + LOOK_MAX);
            return Ok(());
        }
        let extent = Extent {
            pid,
            piece: &process.piece,
            size_bytes: process.adapt.size_bytes(),
            nid: self.fallback_nid,
            leave: self.leave(false),
        };
        let survey = self.survey(&extent, pace, |_, _| true)?;
        let now = monotonic();
        self.counters.looks.add(1);
        if survey.is_busy {
            process.then(Step::Look, now + process.adapt.period());
            return Ok(());
        }
        process.piece.end = survey.end.unwrap_or(ADDRESS_END);
        process.entries = survey.entries;
        process.lower = survey.lower;
        process.lower_pages += survey.lower_pages;
        process.is_useful |= is_useful(0, survey.lower_pages);
        process.scans = 0;
        if survey.lower_pages == 0 {
            process.advance(now);
        } else {
            process.then(Step::Clear, now);
        }
        Ok(())
    }

    fn clear(&mut self, pid: i32, process: &mut Process) -> Result<(), Gone> {
        if self.procs.is_opted_out(pid) {
            process.then(Step::Look, monotonic());
            return Ok(());
        }
        if !process.take_turn(&self.turns, monotonic()) {
            return Ok(());
        }
        process.seen();
        let config = self.config();
        // All of the process is cleared that way, also what was not walked.
        let entries = if process.is_whole() && !config.leave_hinted {
            process.entries
        } else {
            self.procs.resident_pages(pid).unwrap_or(0)
        };
        let stall_max = Duration::from_millis(config.get(&SCAN_STALL_MAX_MS));
        let is_short = self.clear_cost.is_short(entries, stall_max);
        if !is_short {
            self.clear_cost.forget();
        }
        // Where /proc hides it (hidepid), there is the other way.
        let file = match is_short && !process.must_flush {
            true => self.keeper.open_clear_refs(pid).ok(),
            false => None,
        };
        process.method = match file {
            Some(_) => Method::ClearRefs,
            None => Method::Cold,
        };
        // A page that was read too long ago does not count any more: the series starts again.
        let is_past = |last| self.window().is_past(monotonic().saturating_sub(last));
        if process.last_read.is_none_or(is_past) {
            process.scans = 0;
        }
        let (before, cpu_before) = (monotonic(), thread_cpu());
        let done = match file {
            Some(file) => clear::clear_refs(file),
            None => PidFd::open(pid)
                .and_then(|fd| process.lower.iter().try_for_each(|range| fd.cold(range))),
        };
        let now = monotonic();
        if let Err(error) = done {
            debug!("cannot clear accessed bits of process {pid}: {error}");
            return Err(Gone);
        }
        let micros = (now - before).as_micros() as u64;
        match process.method {
            Method::ClearRefs => {
                self.clear_cost.learn(entries, thread_cpu() - cpu_before);
                self.counters.clear_refs.add(1);
                self.counters.clear_refs_us_max.raise(micros);
                process.then(Step::Flush { cleared_at: now }, now + FLUSH_DELAY);
            }
            Method::Cold => {
                self.counters.madvise_cold.add(1);
                self.counters.madvise_cold_us_max.raise(micros);
                process.must_flush = false;
                let due = now + process.adapt.observe();
                process.then(Step::Read { cleared_at: now }, due);
            }
        }
        Ok(())
    }

    /// Has the process's TLB flushed. An entry that stays in there is never marked again: without a
    /// flush the hottest pages are missed.
    fn flush(
        &mut self,
        pid: i32,
        process: &mut Process,
        cleared_at: Duration,
        pace: &Pace,
    ) -> Result<(), Gone> {
        let extent = Extent {
            pid,
            piece: &process.piece,
            size_bytes: PIECE_MAX_BYTES,
            nid: self.fallback_nid,
            leave: self.leave(true),
        };
        let (mut flushing, mut shared) = (None, 0);
        self.survey(&extent, pace, |walker, start| {
            flushing = clear::flush_range(start, walker.young(), walker.folios());
            shared += walker.shared();
            flushing.is_none()
        })?;
        let is_flushed = flushing.is_some_and(|range| {
            let advised = PidFd::open(pid).and_then(|fd| fd.cold(&range));
            advised.is_ok()
        });
        if is_flushed {
            self.counters.flushes.add(1);
        } else if shared > 0 && self.flush_by_promotion(pid, process, pace)? {
            self.counters.flushes_by_promotion.add(1);
        } else {
            self.counters.unflushed.add(1);
            // All that is in use lies in the TLB, or nothing is. What several processes map cannot
            // be cleared by the other method, so there it is no help.
            process.must_flush = shared == 0;
        }
        let due = cleared_at + process.adapt.observe();
        process.then(Step::Read { cleared_at }, due);
        Ok(())
    }

    /// All of a process's piece, whose accesses count for the node that it runs on.
    fn extent<'a>(&self, pid: i32, process: &'a Process, leave: Leave) -> Extent<'a> {
        Extent {
            pid,
            piece: &process.piece,
            size_bytes: PIECE_MAX_BYTES,
            nid: self.procs.node(pid).unwrap_or(self.fallback_nid),
            leave,
        }
    }

    /// MADV_COLD leaves alone what several processes map, and so their TLB. Moving one page flushes
    /// all of it: so one that was touched within [`FLUSH_DELAY`] is taken for hot, and promoted in
    /// the next pass. Returns whether there is one.
    fn flush_by_promotion(
        &mut self,
        pid: i32,
        process: &Process,
        pace: &Pace,
    ) -> Result<bool, Gone> {
        let extent = self.extent(pid, process, self.leave(false));
        let nid = extent.nid;
        let mut touched = None;
        self.survey(&extent, pace, |walker, _| {
            let page = walker.accesses().first().map(|access| (access.pfn, 1));
            let folio = walker.folios().first();
            touched = page.or(folio.map(|folio| (folio.pfn, folio.pages)));
            touched.is_none()
        })?;
        let Some((pfn, pages)) = touched else {
            return Ok(false);
        };
        for _ in 0..self.config().rule.freq_threshold() {
            self.reporter
                .report_folio(pfn, nid, pages.into(), monotonic());
        }
        Ok(true)
    }

    fn read(
        &mut self,
        pid: i32,
        process: &mut Process,
        cleared_at: Duration,
        pace: &Pace,
    ) -> Result<(), Gone> {
        let reporter = Arc::clone(&self.reporter);
        let ready_before = reporter.stats().became_ready;
        // This method does not clear what is shared: it is young for ever.
        let leave = self.leave(process.method == Method::Cold);
        let extent = self.extent(pid, process, leave);
        let nid = extent.nid;
        let survey = self.survey(&extent, pace, |walker, _| {
            let when = monotonic();
            reporter.report(walker.accesses(), when);
            for folio in walker.folios() {
                reporter.report_folio(folio.pfn, nid, folio.pages.into(), when);
            }
            true
        })?;
        let now = monotonic();
        self.counters.scans.add(1);
        self.counters.young_pages.add(survey.young_pages);
        let ready = reporter.stats().became_ready - ready_before;
        if !survey.is_busy {
            let seen = Young {
                young_pages: survey.young_pages,
                ready,
            };
            let window = self.window();
            let since_last = process.last_read.map(|last| now - last);
            process.adapt.learn(seen, window, since_last);
            process.entries = survey.entries;
            process.lower = survey.lower;
            if process.is_whole() {
                process.lower_pages = survey.lower_pages;
            }
            process.note_use(survey.young_pages, survey.lower_pages);
        }
        process.turn = None;
        process.last_read = Some(now);
        process.scans += 1;
        // Nothing else of the process waits.
        let is_all = process.is_whole() && survey.end.is_none();
        let may_stay = is_all && process.is_useful && (!process.lower.is_empty() || ready > 0);
        if may_stay || self.window().stays(process.scans, ready) {
            process.then(Step::Clear, (cleared_at + process.adapt.period()).max(now));
        } else {
            process.advance(now);
        }
        Ok(())
    }

    fn config(&self) -> Config {
        let config = self.config.read();
        config.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn cpu_max_percent(&self) -> u32 {
        self.config().get(&SCAN_CPU_MAX_PERCENT) as u32
    }

    /// What to leave out: shared pages or not, and what hint faults report.
    fn leave(&self, shared: bool) -> Leave {
        Leave {
            shared,
            hinted: self.config().leave_hinted,
        }
    }

    fn window(&self) -> Window {
        Window::of(&self.config().rule)
    }

    /// Walks a piece, call by call. `each` sees each answer with the address where it begins, and
    /// says whether to go on.
    fn survey(
        &mut self,
        extent: &Extent<'_>,
        pace: &Pace,
        mut each: impl FnMut(&Walker, u64) -> bool,
    ) -> Result<Survey, Gone> {
        let mut survey = Survey::default();
        let mut tables = 0;
        for mapping in self.procs.ranges(extent.pid).ok_or(Gone)? {
            let mut start = mapping.start.max(extent.piece.start);
            let end = mapping.end.min(extent.piece.end);
            while start < end {
                if pace.is_ending() {
                    return Ok(survey);
                }
                if tables * TABLE_BYTES >= extent.size_bytes {
                    survey.end = Some(start);
                    return Ok(survey);
                }
                let request = Request {
                    pid: extent.pid,
                    range: start..end,
                    nid: extent.nid,
                    leave: extent.leave,
                };
                let before = monotonic();
                let walked = self.walker.walk(&request);
                let micros = (monotonic() - before).as_micros() as u64;
                self.counters.walk_us_max.raise(micros);
                let next = match walked {
                    Walked::UpTo(next) => next,
                    Walked::Gone => return Err(Gone),
                    Walked::Busy => {
                        self.counters.skipped_busy.add(1);
                        survey.is_busy = true;
                        return Ok(survey);
                    }
                    Walked::Unmapped => break,
                };
                tables += self.walker.tables().len() as u64;
                note(&mut survey, &self.walker);
                self.counters.entries_read.add(self.walker.entries());
                if !each(&self.walker, start) || next <= start {
                    return Ok(survey);
                }
                start = next;
            }
        }
        Ok(survey)
    }
}

/// Adds one answer to a survey.
fn note(survey: &mut Survey, walker: &Walker) {
    survey.entries += walker.entries();
    let of_folios: u64 = walker.folios().iter().map(|f| u64::from(f.pages)).sum();
    survey.young_pages += walker.young().len() as u64 + of_folios;
    for table in walker.tables().iter().filter(|t| t.lower_pages > 0) {
        survey.lower_pages += table.lower_pages;
        let start = table.address / TABLE_BYTES * TABLE_BYTES;
        match survey.lower.last_mut() {
            Some(last) if last.end >= start => last.end = start + TABLE_BYTES,
            _ => survey.lower.push(start..start + TABLE_BYTES),
        }
    }
}
