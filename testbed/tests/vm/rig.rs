//! A guest with the daemon and a workload in it: what the product's tests are written with.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
pub use pghot_testbed::Daemon;
use pghot_testbed::{Output, Process, Status, Vm};
use serde_json::Value;

/// Making all of its pages takes a workload some seconds, and a busy host many times that.
pub const START_LIMIT: Duration = Duration::from_secs(90);
/// Whether the suite runs in its long form, `make test-long`.
pub fn is_long() -> bool {
    std::env::var_os("PGHOT_LONG").is_some()
}

/// How often, or for how long: `PGHOT_LONG=200` makes it 200.
pub fn rounds(usual: u64, long: u64) -> u64 {
    let told = std::env::var("PGHOT_LONG").ok();
    let told = told.and_then(|count| count.parse().ok());
    match told.filter(|&count| count > 1) {
        Some(count) => count,
        None if is_long() => long,
        None => usual,
    }
}

/// Has `hotset` end as soon as the run is good, but not in the long form.
pub fn until_good() -> &'static [&'static str] {
    match is_long() {
        true => &[],
        false => &["--until-good"],
    }
}

/// The same where hint faults report, which take a cold page that is touched right after its mark
/// for hot: only so many percent of the promoted pages need to be.
pub fn until_precise(percent: &'static str) -> Vec<&'static str> {
    let mut flags = until_good().to_vec();
    if !flags.is_empty() {
        flags.push(percent);
    }
    flags
}

/// Has a workload sleep most of the time, so that the guests beside this one get to work. Not for
/// hint faults: the kernel's scan goes by the CPU time of a process.
pub const UNHURRIED: &[&str] = &["--busy-percent", "25"];

/// The file that [`go`] makes.
const GO: &str = "/tmp/go";

/// A number in a status or another JSON value, by its JSON pointer.
pub fn number(value: &Value, pointer: &str) -> Result<f64> {
    Ok(pghot_testbed::number(value, pointer)?)
}

/// What a status says of one source.
pub fn source<'a>(status: &'a Value, name: &str) -> Result<&'a Value> {
    let mut sources = status["sources"].as_array().into_iter().flatten();
    let found = sources.find(|source| source["name"] == name);
    found.with_context(|| format!("no source {name}: {status:#}"))
}

/// Base pages of an outcome, over the only lower-tier node.
pub fn outcome(status: &Value, name: &str) -> Result<f64> {
    number(status, &format!("/lower_tier/0/totals/outcomes/{name}"))
}

/// Starts `hotset` on node 2 with more flags, waits until its pages are there, and returns it with
/// what it says of them.
pub fn start_hotset(vm: &Vm, flags: &[&str]) -> Result<(Process, Value)> {
    let base = ["--home", "2", "--fast", "0,1", "--cpus", "0"];
    let flags: Vec<&str> = base.iter().chain(flags).copied().collect();
    start_hotset_anywhere(vm, &flags)
}

/// The same without any flags of its own.
pub fn start_hotset_anywhere(vm: &Vm, flags: &[&str]) -> Result<(Process, Value)> {
    start_workload(vm, "hotset", flags)
}

/// Starts `hotset` on node 2, which makes its pages and then waits for [`go`]. Whoever comes to
/// look in between sees accesses alone, and not how the pages were made.
pub fn hold_hotset(vm: &Vm, flags: &[&str]) -> Result<Process> {
    Ok(start_hotset(vm, &[&["--hold", GO], flags].concat())?.0)
}

/// The same in a cgroup.
pub fn hold_hotset_in(vm: &Vm, cgroup: &str, flags: &[&str]) -> Result<Process> {
    let enter = format!("echo $$ > {cgroup}/cgroup.procs && exec hotset \"$@\"");
    let base = [
        "-c", &enter, "sh", "--home", "2", "--fast", "0,1", "--cpus", "0", "--hold", GO,
    ];
    Ok(start_workload(vm, "sh", &[&base[..], flags].concat())?.0)
}

/// What was held begins.
pub fn go(vm: &Vm) -> Result<()> {
    Ok(vm.write(GO, "")?)
}

/// Starts `pagecache` on a file whose page cache is on node 2, as above.
pub fn start_pagecache(vm: &Vm, flags: &[&str]) -> Result<(Process, Value)> {
    let base = ["--home", "2", "--fast", "0,1", "--cpus", "0"];
    let flags: Vec<&str> = base.iter().chain(flags).copied().collect();
    start_workload(vm, "pagecache", &flags)
}

/// Starts a workload, and returns what it says when it has its pages.
pub fn start_workload(vm: &Vm, name: &str, flags: &[&str]) -> Result<(Process, Value)> {
    let argv: Vec<&str> = [name].iter().chain(flags).copied().collect();
    let mut process = vm.spawn(&argv)?;
    let mut ready = None;
    vm.wait_until("the workload has its pages", START_LIMIT, || {
        ready = process
            .lines()?
            .into_iter()
            .find(|l| l.contains("\"ready\""));
        Ok(ready.is_some() || process.try_wait()?.is_some())
    })?;
    match ready {
        Some(ready) => Ok((process, serde_json::from_str(&ready)?)),
        None => bail!("{} failed: {}", argv.join(" "), process.stderr()?),
    }
}

/// Waits for a workload's end and returns what it says of itself; no page may be damaged.
pub fn finish(mut process: Process) -> Result<Value> {
    let output = process.wait(Duration::from_secs(100))?.success()?;
    let done = output
        .stdout
        .lines()
        .rev()
        .find(|line| line.contains("\"done\""));
    let done: Value = serde_json::from_str(done.context("the workload did not say `done`")?)?;
    ensure!(done["errors"] == 0, "pages lost their content: {done}");
    Ok(done)
}

/// Runs `hotset` to its end.
pub fn hotset(vm: &Vm, flags: &[&str]) -> Result<Value> {
    finish(start_hotset(vm, flags)?.0)
}

/// 32 MiB are all hot, and all of them arrive in the top tier.
pub fn promotes_all(vm: &Vm, daemon: &Daemon) -> Result<()> {
    let flags = ["--size-mib", "32", "--until-promoted", "--seconds", "60"];
    let done = hotset(vm, &flags)?;
    ensure!(done["hot_left"] == 0, "{done}\n{:#}", daemon.status()?);
    Ok(())
}

/// A command was refused, and why has a word in it.
pub fn refused(output: Output, word: &str) -> Result<()> {
    let refused = matches!(output.status, Status::Code(1..=4)) && output.stderr.contains(word);
    ensure!(refused, "no word of {word}: {output:?}");
    Ok(())
}

/// What a process has open that has no path, by kind: BPF objects, perf events, sockets. Files of
/// nodes are opened at the first move, and stay open.
pub fn open_objects(vm: &Vm, pid: i32) -> Result<Vec<String>> {
    let script = format!("stat -c %N /proc/{pid}/fd/*");
    // One may be closed before it is looked at, which is an error of stat, and only for that one.
    let output = vm.exec(&["sh", "-c", &script])?;
    let links = output.stdout.lines();
    let links = links.filter_map(|line| line.split_once(" -> '")?.1.strip_suffix('\''));
    let objects = links.filter(|link| !link.starts_with('/'));
    let kind = |link: &str| match link.split_once(':') {
        // The number of a socket says nothing.
        Some(("socket", _)) => "socket".to_owned(),
        _ => link.to_owned(),
    };
    let mut kinds: Vec<String> = objects.map(kind).collect();
    kinds.sort();
    Ok(kinds)
}

/// Takes so much memory of a node, of a kind, and does nothing with it, until it is killed.
pub fn hog(vm: &Vm, nid: usize, mib: f64, backing: &str) -> Result<Process> {
    let size = format!("{mib:.0}");
    let nid = nid.to_string();
    let memory = ["--home", &nid, "--size-mib", &size, "--backing", backing];
    // Nobody makes that file.
    let hold = ["--fast", "0", "--hold", "/tmp/never"];
    Ok(start_workload(vm, "hotset", &[&memory[..], &hold].concat())?.0)
}

/// The same of anonymous memory, in a cgroup.
pub fn hog_in(vm: &Vm, cgroup: &str, nid: usize, mib: f64) -> Result<Process> {
    let hold = format!(
        "echo $$ > {cgroup}/cgroup.procs && exec hotset --home {nid} --fast {nid} \
         --size-mib {mib:.0} --hold /tmp/never"
    );
    Ok(vm.spawn(&["sh", "-c", &hold])?)
}

/// Ends it, and waits until its memory is free: giving back gigabytes takes it a while.
pub fn end_hog(vm: &Vm, mut hog: Process) -> Result<()> {
    let group = hog.pid().to_string();
    hog.kill()?;
    // After the name come state, parent and process group; see proc(5).
    vm.wait_until("the hog is gone", Duration::from_secs(30), || {
        let of_group = |pid: &String| {
            let stat = vm.read(&format!("/proc/{pid}/stat")).unwrap_or_default();
            let after_name = stat.rsplit(')').next().unwrap_or_default();
            after_name.split_ascii_whitespace().nth(2) == Some(&group)
        };
        let processes = vm.list("/proc")?;
        Ok(!processes.iter().any(of_group))
    })?;
    Ok(())
}

/// The memory blocks of node 2.
pub struct LowerTier {
    /// The files that say whether one is online.
    states: Vec<String>,
    block_bytes: u64,
}

impl LowerTier {
    /// All are online.
    pub fn of(vm: &Vm) -> Result<LowerTier> {
        let names = vm.list("/sys/devices/system/node/node2")?;
        let is_block = |name: &&String| name.starts_with("memory") && *name != "memory_failure";
        let state = |name: &String| format!("/sys/devices/system/memory/{name}/state");
        let states = names.iter().filter(is_block).map(state).collect();
        let block_bytes = vm.read("/sys/devices/system/memory/block_size_bytes")?;
        let block_bytes = u64::from_str_radix(block_bytes.trim(), 16)?;
        Ok(LowerTier {
            states,
            block_bytes,
        })
    }

    /// How many there are.
    pub fn blocks(&self) -> usize {
        self.states.len()
    }

    /// Base pages of so many.
    pub fn pages(&self, blocks: usize) -> f64 {
        (blocks as u64 * self.block_bytes / 4096) as f64
    }

    /// Takes offline what can be, and returns how many: a block may hold memory of the kernel,
    /// which cannot move.
    pub fn offline(&self, vm: &Vm) -> Result<usize> {
        let goes = |state: &&String| vm.write(state, "offline").is_ok();
        Ok(self.states.iter().filter(goes).count())
    }

    /// Takes one offline if it can be, another with each number; returns whether it went.
    pub fn offline_one(&self, vm: &Vm, number: usize) -> Result<bool> {
        let state = &self.states[number % self.blocks()];
        Ok(vm.write(state, "offline").is_ok())
    }

    /// Brings back what is offline.
    pub fn online(&self, vm: &Vm) -> Result<()> {
        for state in &self.states {
            if vm.read(state)?.trim() == "offline" {
                vm.write(state, "online")?;
            }
        }
        Ok(())
    }
}

/// The settings of the kernel that pghot changes.
pub const KERNEL_SETTINGS: [&str; 7] = [
    "/proc/sys/kernel/numa_balancing",
    "/proc/sys/kernel/numa_balancing_promote_rate_limit_MBps",
    "/sys/kernel/debug/sched/numa_balancing/hot_threshold_ms",
    "/sys/kernel/debug/sched/numa_balancing/scan_delay_ms",
    "/sys/kernel/debug/sched/numa_balancing/scan_size_mb",
    "/sys/kernel/debug/sched/numa_balancing/scan_period_min_ms",
    "/sys/kernel/debug/sched/numa_balancing/scan_period_max_ms",
];

/// As they are now.
pub fn kernel_settings(vm: &Vm) -> Result<[String; 7]> {
    let mut now = KERNEL_SETTINGS.map(str::to_owned);
    for setting in &mut now {
        *setting = vm.read(setting)?.trim().to_owned();
    }
    Ok(now)
}
