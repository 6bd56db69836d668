//! What the guest's kernel counts, before and after a run.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use pghot_testbed::Vm;

/// Clock ticks of `/proc/PID/stat` in a second (`USER_HZ`).
const TICKS: f64 = 100.0;

/// Counters of `/proc/vmstat` that matter here, by prefix.
const COUNTERS: [&str; 5] = [
    "pgpromote",
    "pgdemote",
    "pgmigrate",
    "numa_",
    "thp_migration",
];

/// Threads whose time is a system's cost, by the beginning of their names.
const THREADS: [&str; 6] = [
    "pghot",
    "memtierd",
    "kswapd",
    "kdamond",
    "kcompactd",
    "migration",
];

/// What is kept of `/proc/pressure/memory` under this name: µs in which some thread waited for
/// memory.
pub const STALL_US: &str = "memory_stall_us";

/// Counters and CPU times at a moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    counters: BTreeMap<String, u64>,
    cpu_s: BTreeMap<String, f64>,
    threads_s: BTreeMap<String, f64>,
}

/// What came about between two snapshots.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Growth {
    /// Of `/proc/vmstat`.
    pub counters: BTreeMap<String, u64>,
    /// CPU seconds of processes and kernel threads, by the beginning of their names.
    pub cpu_s: BTreeMap<String, f64>,
    /// Of that, the threads of pghot by their names. Those that ended meanwhile are not in it.
    #[serde(default)]
    pub threads_s: BTreeMap<String, f64>,
}

/// Those whose CPU time is a system's cost. Each process is asked for its name once: asking for
/// each of a guest's hundred takes longer than some workloads.
#[derive(Debug, Clone, Default)]
pub struct Watchers {
    seen: BTreeSet<String>,
    paths: Vec<String>,
}

impl Watchers {
    /// Takes note of those that are new.
    pub fn look(&mut self, vm: &Vm) -> Result<()> {
        for pid in vm.list("/proc")? {
            let is_process = pid.bytes().all(|byte| byte.is_ascii_digit());
            if !is_process || !self.seen.insert(pid.clone()) {
                continue;
            }
            let path = format!("/proc/{pid}/stat");
            // Who has ended meanwhile costs no more.
            let Ok(stat) = vm.read(&path) else { continue };
            let (name, _) = cpu_time(&stat).context("/proc/PID/stat is unreadable")?;
            if watcher(name).is_some() {
                self.paths.push(path);
            }
        }
        Ok(())
    }
}

impl Watchers {
    /// Of all that were found.
    pub fn pids(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().filter_map(|path| path.split('/').nth(2))
    }
}

/// What a thread of that name counts as.
fn watcher(name: &str) -> Option<&'static str> {
    let mut threads = THREADS.iter().copied();
    threads.find(|thread| name.starts_with(thread))
}

impl Snapshot {
    /// How things are now.
    pub fn take(vm: &Vm, watchers: &Watchers) -> Result<Snapshot> {
        let mut counters = counters(&vm.read("/proc/vmstat")?);
        // Kernels may be built or booted without it.
        if let Ok(pressure) = vm.read("/proc/pressure/memory") {
            counters.extend(stall_us(&pressure).map(|us| (STALL_US.to_owned(), us)));
        }
        let mut cpu_s = BTreeMap::new();
        let mut threads_s = BTreeMap::new();
        for path in &watchers.paths {
            let Ok(stat) = vm.read(path) else { continue };
            let (name, seconds) = cpu_time(&stat).context("/proc/PID/stat is unreadable")?;
            if let Some(watcher) = watcher(name) {
                *cpu_s.entry(watcher.to_owned()).or_insert(0.0) += seconds;
            }
            if watcher(name) == Some("pghot") {
                add_threads(vm, path, &mut threads_s);
            }
        }
        Ok(Snapshot {
            counters,
            cpu_s,
            threads_s,
        })
    }

    /// What has come about since `earlier`.
    pub fn since(&self, earlier: &Snapshot) -> Growth {
        let counters = self.counters.iter().map(|(name, now)| {
            let then = earlier.counters.get(name).copied().unwrap_or(0);
            (name.clone(), now.saturating_sub(then))
        });
        Growth {
            counters: counters.collect(),
            cpu_s: times_since(&self.cpu_s, &earlier.cpu_s),
            threads_s: times_since(&self.threads_s, &earlier.threads_s),
        }
    }
}

impl Growth {
    /// A counter; 0 if this kernel has none of that name.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    /// Of all threads.
    pub fn cpu_total_s(&self) -> f64 {
        self.cpu_s.values().fold(0.0, |sum, seconds| sum + seconds)
    }
}

/// A field of a node's meminfo, in KiB.
pub fn node_kib(vm: &Vm, nid: usize, field: &str) -> Result<u64> {
    let meminfo = vm.read(&format!("/sys/devices/system/node/node{nid}/meminfo"))?;
    let is_it = |line: &&str| line.contains(&format!(" {field}:"));
    let number = meminfo
        .lines()
        .find(is_it)
        .and_then(|line| line.split_ascii_whitespace().nth(3));
    let number = number.with_context(|| format!("meminfo of node {nid} has no {field}"))?;
    Ok(number.parse()?)
}

/// Adds the CPU seconds of a process's threads, given the path of its `stat`.
fn add_threads(vm: &Vm, stat: &str, threads_s: &mut BTreeMap<String, f64>) {
    let tasks = stat.replace("/stat", "/task");
    // Who has ended meanwhile costs no more.
    for tid in vm.list(&tasks).unwrap_or_default() {
        let stat = vm.read(&format!("{tasks}/{tid}/stat"));
        if let Some((name, seconds)) = stat.ok().as_deref().and_then(cpu_time) {
            *threads_s.entry(name.to_owned()).or_insert(0.0) += seconds;
        }
    }
}

fn times_since(
    now: &BTreeMap<String, f64>,
    earlier: &BTreeMap<String, f64>,
) -> BTreeMap<String, f64> {
    let since = now.iter().map(|(name, now)| {
        let then = earlier.get(name).copied().unwrap_or(0.0);
        (name.clone(), (now - then).max(0.0))
    });
    since.collect()
}

fn counters(vmstat: &str) -> BTreeMap<String, u64> {
    let counter = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        let is_wanted = COUNTERS.iter().any(|prefix| name.starts_with(prefix));
        is_wanted.then_some((name.to_owned(), value.parse().ok()?))
    };
    vmstat.lines().filter_map(counter).collect()
}

/// Of the line "some avg10=0.00 avg60=0.00 avg300=0.00 total=12345".
fn stall_us(pressure: &str) -> Option<u64> {
    let some = pressure.lines().find(|line| line.starts_with("some "))?;
    some.rsplit_once("total=")?.1.trim().parse().ok()
}

/// Name and CPU seconds; see proc(5).
fn cpu_time(stat: &str) -> Option<(&str, f64)> {
    let (_, rest) = stat.split_once('(')?;
    let (name, fields) = rest.rsplit_once(')')?;
    let mut times = fields.split_ascii_whitespace().skip(11);
    let user: f64 = times.next()?.parse().ok()?;
    let kernel: f64 = times.next()?.parse().ok()?;
    Some((name, (user + kernel) / TICKS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_is_read_and_subtracted() {
        let at = |promoted: u64, ticks: f64| Snapshot {
            counters: counters(&format!("nr_free_pages 9\npgpromote_success {promoted}\n")),
            cpu_s: BTreeMap::from([("pghot".to_owned(), ticks)]),
            threads_s: BTreeMap::from([("demoter".to_owned(), ticks / 2.0)]),
        };
        let growth = at(30, 2.5).since(&at(10, 2.0));
        assert_eq!(growth.counter("pgpromote_success"), 20);
        assert_eq!(growth.counter("nr_free_pages"), 0, "not kept");
        assert_eq!(growth.cpu_total_s(), 0.5);
        assert_eq!(growth.threads_s["demoter"], 0.25);
        let new = at(30, 2.5).since(&Snapshot::default());
        assert_eq!(new.counter("pgpromote_success"), 30);
    }

    #[test]
    fn stalls_of_some_thread_are_read() {
        let text = "some avg10=0.00 avg60=0.10 avg300=0.00 total=81\nfull avg10=0.00 total=7\n";
        assert_eq!(stall_us(text), Some(81));
        assert_eq!(stall_us(""), None);
    }

    #[test]
    fn names_may_hold_anything() {
        let stat = "7 (a b) c) S 1 1 1 0 -1 69238880 0 0 0 0 150 50 0 0 20 0 1 0 2 0 0";
        assert_eq!(cpu_time(stat), Some(("a b) c", 2.0)));
        assert_eq!(cpu_time("7 (x"), None);
    }
}
