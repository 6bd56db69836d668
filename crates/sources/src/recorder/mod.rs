//! Records an access profile: what the source pgtscan's walk sees, of all memory instead of the
//! lower tier, in intervals of equal length, and reported to nobody.
//!
//! It needs no lower tier, so it also runs on the machine that is to get one.

mod order;
mod watched;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use pghot_engine::Turns;
use pghot_hotness::{PfnRange, SECTION_PAGES, Span};
use pghot_linux::SysRoot;
use pghot_linux::cgroup;
use pghot_linux::host::monotonic;
use pghot_linux::thread_cpu;
use pghot_linux::topology::Topology;
use pghot_profile::{CGROUP_BYTES_MAX, Interval, PROCESSES_MAX, Process, Profile, Touched};

use crate::kernel::Error;
use crate::kernel::page_tables::clear::{self, ClearCost, FLUSH_DELAY, Method, PidFd};
use crate::kernel::page_tables::procs::{Procs, RESIDENT_MIN_PAGES};
use crate::kernel::page_tables::walk::{Leave, Request, Walked, Walker};
use watched::{LowerTier, Seen, Watched};

use order::Debt;
pub use order::{Open, Order, Progress, Stop, bytes_per_s, opened_by_root};

/// Page frames that a page table entry can name, as whole sections.
const FRAMES_END: u64 = 1 << 40;
const _: () = assert!(FRAMES_END.is_multiple_of(SECTION_PAGES));

/// Between two looks whether its turn has begun.
const TURN_POLL: Duration = Duration::from_millis(10);

/// What records. It is loaded once for all profiles: to load its program costs more than many
/// intervals.
pub struct Recorder {
    open: Open,
    /// Kept by all that clear accessed bits in this process.
    turns: Turns,
    walker: Walker,
    clear_cost: ClearCost,
    /// CPU time of this thread, of what was also done between intervals.
    used: Duration,
    /// What has yet to be paid for: CPU time, and bytes in a file.
    debts: [Debt; 2],
}

impl Recorder {
    /// Loads it. While it looks, nobody else begins a turn of `turns`.
    pub fn load(open: Open, turns: Turns) -> Result<Recorder, Error> {
        let span = Span::new(&[PfnRange {
            start: 0,
            end: FRAMES_END,
            nid: 0,
        }])?;
        Ok(Recorder {
            used: thread_cpu(),
            walker: Walker::load(&span)?,
            clear_cost: ClearCost::measure(open(std::process::id() as i32)),
            open,
            turns,
            debts: [Debt::default(); 2],
        })
    }

    /// Records until the order is done, `stop` says so, or no process is left of those that were
    /// named. `progress` hears of each interval, and may ask for what is recorded so far.
    pub fn record(
        &mut self,
        root: &SysRoot,
        order: &Order,
        stop: &dyn Stop,
        progress: &mut dyn FnMut(Progress, &dyn Fn() -> Profile),
    ) -> Result<Profile, Error> {
        let begin = monotonic();
        let topology = Topology::read(root).map_err(|error| Error::Setup(error.to_string()))?;
        let mut recording = Recording {
            root,
            procs: Procs::new(root, &topology),
            recorder: self,
            lower_tier: LowerTier::of(&topology),
            order,
            watched: BTreeMap::new(),
            ended: Vec::new(),
            out_of_reach: HashMap::new(),
            looked: Duration::ZERO,
        };
        for pid in &order.pids {
            if recording.procs.start_time(*pid).is_none() {
                return Err(Error::Setup(format!("there is no process {pid}")));
            }
        }
        let release = std::fs::read_to_string(root.sysctl("kernel.osrelease")).unwrap_or_default();
        let so_far = |recording: &Recording<'_>, done: u32| {
            let profile = Profile {
                kernel: release.trim().to_owned(),
                interval_ms: (recording.looked.as_millis() as u32 / done.max(1)).max(1),
                intervals: done.max(1),
                elapsed_ms: (monotonic() - begin).as_millis() as u64,
                // Known to who asks for the recording.
                disturbed_by: Vec::new(),
                processes: recording.processes(),
            };
            match order.with_names {
                true => profile,
                false => profile.without_names(),
            }
        };
        let end = begin + order.interval * order.intervals;
        let mut done = 0;
        while done < order.intervals && recording.rest(done, end, stop) {
            let touched_pages = recording.interval(done, stop);
            let processes = recording.watched.len();
            if processes == 0 && !order.pids.is_empty() {
                break;
            }
            done += 1;
            let at = Progress {
                intervals: done,
                processes,
                touched_pages,
            };
            progress(at, &|| so_far(&recording, done));
        }
        let profile = so_far(&recording, done);
        profile.check().map_err(|invalid| {
            let none = profile.processes.is_empty();
            let why = match none {
                true => "no process of 8 MiB or more could be watched for an interval".to_owned(),
                false => invalid.to_string(),
            };
            Error::Setup(format!("nothing was recorded: {why}"))
        })?;
        Ok(profile)
    }
}

/// A profile under way.
struct Recording<'a> {
    root: &'a SysRoot,
    procs: Procs,
    recorder: &'a mut Recorder,
    lower_tier: LowerTier,
    order: &'a Order,
    watched: BTreeMap<i32, Watched>,
    /// Those that are gone.
    ended: Vec<Watched>,
    /// Those that could not be cleared, with their start times: they are not tried again.
    out_of_reach: HashMap<i32, u64>,
    /// The time of all intervals, without the rests between them.
    looked: Duration,
}

impl Recording<'_> {
    /// Waits until the intervals before are paid for; returns whether there is time for another.
    /// The first may come late, so that there is one.
    fn rest(&self, done: u32, end: Duration, stop: &dyn Stop) -> bool {
        let is_bounded = self.order.is_bounded() && done > 0;
        let latest = if is_bounded { end } else { Duration::MAX };
        let rested = match done {
            0 => Duration::ZERO,
            _ => monotonic() + self.order.rest,
        };
        let paid = self.recorder.debts.map(Debt::paid);
        let due = paid.into_iter().fold(rested, Duration::max);
        sleep_until(due.min(latest), stop);
        !stop.is_requested() && monotonic() < latest
    }

    /// One interval of all processes; returns how many pages were touched.
    fn interval(&mut self, number: u32, stop: &dyn Stop) -> u64 {
        let turn = self.recorder.turns.ask();
        while !turn.has_begun() && !stop.is_requested() {
            stop.sleep(TURN_POLL);
        }
        let begin = monotonic();
        self.discover();
        let pids: Vec<i32> = self.watched.keys().copied().collect();
        for pid in &pids {
            if self.clear(*pid).is_none() {
                self.lose(*pid);
            }
        }
        let mut unflushed = pids.clone();
        let mut delay = FLUSH_DELAY;
        while !unflushed.is_empty() && 2 * delay <= self.order.interval {
            sleep_until(begin + delay, stop);
            unflushed.retain(|pid| !self.flush(*pid));
            delay *= 2;
        }
        sleep_until(begin + self.order.interval, stop);
        let (mut touched_pages, mut bytes) = (0, 0);
        for pid in pids {
            match self.read(pid, number) {
                Some((pages, stored)) => {
                    touched_pages += pages;
                    bytes += stored;
                }
                None => self.lose(pid),
            }
        }
        drop(turn);
        self.looked += monotonic() - begin;
        self.owe(begin, bytes);
        touched_pages
    }

    /// Notes what an interval took that began then.
    fn owe(&mut self, begin: Duration, bytes: u64) {
        let Recorder { used, debts, .. } = self.recorder;
        let [for_cpu_time, for_bytes] = debts;
        // Another thread may have loaded it, whose time does not count.
        let spent = thread_cpu().saturating_sub(*used);
        *used = thread_cpu();
        if let Some(cpus_max) = self.order.cpus_max {
            for_cpu_time.owe(begin, spent.as_secs_f64(), cpus_max);
        }
        if let Some(per_s_max) = self.order.bytes_per_s_max {
            for_bytes.owe(begin, bytes as f64, per_s_max);
        }
    }

    /// Finds processes that are new.
    fn discover(&mut self) {
        let pids: Vec<i32> = match self.order.pids.is_empty() {
            true => self.procs.large(RESIDENT_MIN_PAGES).collect(),
            false => self.order.pids.clone(),
        };
        let own = std::process::id() as i32;
        for pid in pids {
            let all = self.watched.len() + self.ended.len();
            let is_known = self.watched.contains_key(&pid);
            if pid == own || is_known || all == PROCESSES_MAX || self.procs.is_opted_out(pid) {
                continue;
            }
            let cgroup = self.cgroup(pid);
            let mut wanted = self.order.cgroups.iter();
            if !self.order.cgroups.is_empty() && !wanted.any(|of| of.fits_path(&cgroup)) {
                continue;
            }
            let named = self.procs.name_and_cpu_ticks(pid);
            let (Some(start_time), Some((name, cpu_ticks))) = (self.procs.start_time(pid), named)
            else {
                continue;
            };
            if self.out_of_reach.get(&pid) == Some(&start_time) {
                continue;
            }
            let name = name.replace(char::is_control, "?");
            let new = Watched::new(name, cgroup, start_time, cpu_ticks);
            self.watched.insert(pid, new);
            // Where it has memory; what it touched until now is of no interest.
            if self.walk(pid, false).is_none() {
                self.watched.remove(&pid);
            }
        }
    }

    /// As a profile has it: empty where it is not known.
    fn cgroup(&self, pid: i32) -> String {
        let path = cgroup::of(&self.root.proc, pid as u32);
        let path = path.filter(|path| path.len() < CGROUP_BYTES_MAX);
        let printed = path.map(|path| path.replace(char::is_control, "?"));
        printed.map_or_else(String::new, |path| format!("/{path}"))
    }

    /// A process is gone, or was never reached.
    fn lose(&mut self, pid: i32) {
        let Some(watched) = self.watched.remove(&pid) else {
            return;
        };
        if watched.intervals.is_empty() {
            self.out_of_reach.insert(pid, watched.start_time);
        } else {
            self.ended.push(watched);
        }
    }

    fn clear(&mut self, pid: i32) -> Option<()> {
        let watched = self.watched.get_mut(&pid)?;
        if self.procs.start_time(pid) != Some(watched.start_time) || self.procs.is_opted_out(pid) {
            return None;
        }
        watched.cpu_ticks = self.procs.name_and_cpu_ticks(pid)?.1;
        let is_short = self
            .recorder
            .clear_cost
            .is_short(watched.entries, self.order.stall_max);
        if is_short && !watched.is_mostly_huge {
            watched.method = Method::ClearRefs;
            // Entries that stay in the TLB are never marked again: the hottest pages would look
            // untouched. So it is flushed while there are still young pages to flush
            // with.
            if let (Some(range), Ok(fd)) = (watched.flushing.take(), PidFd::open(pid)) {
                let _ = fd.cold(&range);
            }
            let before = thread_cpu();
            let file = (self.recorder.open)(pid);
            file.and_then(clear::clear_refs).ok()?;
            let took = thread_cpu() - before;
            self.recorder.clear_cost.learn(watched.entries, took);
        } else {
            // It clears and flushes at once. A program comes back to a few huge pages sooner than
            // two calls follow each other, and they would all sit in the TLB again.
            watched.method = Method::Cold;
            self.recorder.clear_cost.forget();
            let fd = PidFd::open(pid).ok()?;
            watched
                .ranges
                .iter()
                .try_for_each(|range| fd.cold(range))
                .ok()?;
        }
        Some(())
    }

    /// Flushes the TLB again, of what came into it between the first flush and the clearing. False
    /// if nothing is there to flush with yet.
    fn flush(&mut self, pid: i32) -> bool {
        let method = self.watched.get(&pid).map(|watched| watched.method);
        if method != Some(Method::ClearRefs) {
            return true;
        }
        let mut flushing = None;
        self.each_piece(pid, true, &mut |recording, start| {
            let walker = &recording.recorder.walker;
            flushing = clear::flush_range(start, walker.young(), walker.folios());
            flushing.is_none()
        });
        let Some(range) = flushing else {
            return false;
        };
        // One that is gone has nothing to flush.
        PidFd::open(pid).is_ok_and(|fd| fd.cold(&range).is_ok())
    }

    /// Pages that a process touched, and what they take in a file.
    fn read(&mut self, pid: i32, number: u32) -> Option<(u64, u64)> {
        let leave_shared = self.watched.get(&pid)?.method == Method::Cold;
        let (_, cpu_ticks) = self.procs.name_and_cpu_ticks(pid)?;
        let seen = self.walk(pid, leave_shared)?;
        let watched = self.watched.get_mut(&pid)?;
        let cpu_us = cpu_ticks.saturating_sub(watched.cpu_ticks) * tick_us();
        let (touched, lower) = (Touched::of(seen.touched), Touched::of(seen.lower));
        let pages = touched.pages();
        let interval = Interval {
            number,
            cpu_us,
            touched,
            lower,
        };
        let bytes = interval.stored_bytes(watched.intervals.last());
        watched.intervals.push(interval);
        Some((pages, bytes))
    }

    /// Walks all of a process, learns where it has memory, and returns what it touched.
    fn walk(&mut self, pid: i32, leave_shared: bool) -> Option<Seen> {
        let mut watched = self.watched.remove(&pid)?;
        let mut seen = Seen::default();
        let went = self.each_piece(pid, leave_shared, &mut |recording, start| {
            let walker = &recording.recorder.walker;
            watched.note(walker, start, &recording.lower_tier, &mut seen);
            true
        });
        watched.entries = seen.entries;
        watched.is_mostly_huge |= 2 * seen.huge_pages > seen.young_pages;
        watched.ranges = std::mem::take(&mut seen.ranges);
        self.watched.insert(pid, watched);
        went.map(|()| seen)
    }

    /// Walks all of a process, call by call; `each` says whether to go on. None if it is gone.
    fn each_piece(
        &mut self,
        pid: i32,
        leave_shared: bool,
        each: &mut dyn FnMut(&Recording<'_>, u64) -> bool,
    ) -> Option<()> {
        for mapping in self.procs.ranges(pid)? {
            let mut start = mapping.start;
            while start < mapping.end {
                let walked = self.recorder.walker.walk(&Request {
                    pid,
                    range: start..mapping.end,
                    nid: 0,
                    leave: Leave {
                        shared: leave_shared,
                        hinted: false,
                    },
                });
                let next = match walked {
                    Walked::UpTo(next) => next,
                    Walked::Gone => return None,
                    // Somebody changes the mappings; the next interval sees them.
                    Walked::Busy | Walked::Unmapped => break,
                };
                if !each(self, start) {
                    return Some(());
                }
                if next <= start {
                    break;
                }
                start = next;
            }
        }
        Some(())
    }

    fn processes(&self) -> Vec<Process> {
        let all = self.ended.iter().chain(self.watched.values());
        all.filter_map(Watched::so_far).collect()
    }
}

/// Length of a tick of `/proc/PID/stat`, in µs.
fn tick_us() -> u64 {
    // SAFETY: takes a number and touches no memory.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    1_000_000 / u64::try_from(per_second).unwrap_or(100).max(1)
}

fn sleep_until(due: Duration, stop: &dyn Stop) {
    let left = due.saturating_sub(monotonic());
    if !left.is_zero() {
        stop.sleep(left);
    }
}
