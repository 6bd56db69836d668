//! Redis: filled while its memory is bound to the lower tier, then asked by `kv`.
//!
//! The bond is a cpuset, not a memory policy, since NUMA balancing leaves memory alone that has
//! one. Widening the cpuset moves nothing by itself: the kernel skips nodes that stay allowed.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pghot_testbed::{Process, Vm};
use serde_json::{Value, json};

use super::{Job, Prepared, Ran};

const SOCKET: &str = "/run/redis.sock";
const CGROUPS: &str = "/sys/fs/cgroup";
const START_LIMIT: Duration = Duration::from_secs(60);

/// Of a value, which fills a good part of a page: with small ones, every page would have a popular
/// key.
const VALUE_BYTES: u64 = 1024;
/// What Redis takes for a key and such a value.
const ENTRY_BYTES: u64 = 1392;

/// Pages of 4 KiB by node.
type NodePages = BTreeMap<usize, u64>;

struct Filled {
    vm: Vm,
    server: Process,
    data: Vec<String>,
    operations: u64,
    fill: Value,
    /// Where its pages are before anything else is allowed, and after.
    nodes: [NodePages; 2],
}

/// Starts the server and fills it.
pub fn prepare(job: &Job<'_>) -> Result<Box<dyn Prepared>> {
    let vm = job.vm;
    let cgroup = format!("{CGROUPS}/redis");
    vm.write(&format!("{CGROUPS}/cgroup.subtree_control"), "+cpuset")?;
    vm.mkdir(&cgroup)?;
    let mems = format!("{cgroup}/cpuset.mems");
    vm.write(&mems, job.home.to_string())?;
    // The client runs elsewhere.
    vm.write(&format!("{cgroup}/cpuset.cpus"), "0-1")?;

    // Neither port nor files: what is measured is memory.
    let mut argv = vec!["redis-server", "--port", "0", "--unixsocket", SOCKET];
    argv.extend(["--save", "", "--appendonly", "no", "--dir", "/tmp"]);
    let mut server = vm.spawn(&argv)?;
    // What it has by now goes along: a cpuset of cgroup v2 takes the memory with the process.
    vm.write(&format!("{cgroup}/cgroup.procs"), server.pid().to_string())?;
    let mut ended = false;
    vm.wait_until("redis-server listens", START_LIMIT, || {
        ended = server.try_wait()?.is_some();
        Ok(ended || vm.exists(SOCKET)?)
    })?;
    if ended {
        let output = server.wait(START_LIMIT)?.success();
        output.context("redis-server ended at once")?;
    }

    let keys = (job.size_mib << 20) / ENTRY_BYTES;
    let numbers = [
        ("--keys", keys),
        ("--value-bytes", VALUE_BYTES),
        ("--seed", job.setting.seed),
    ];
    let numbers = numbers.map(|(name, number)| [name.to_owned(), number.to_string()]);
    let mut data = vec!["--socket".to_owned(), SOCKET.to_owned()];
    data.extend(numbers.into_iter().flatten());
    let fill = kv(vm, "fill", &data)?;

    let bound = anonymous_pages(vm, server.pid())?;
    vm.write(&mems, format!("0-{}", job.home))?;
    let free = anonymous_pages(vm, server.pid())?;
    Ok(Box::new(Filled {
        vm: vm.clone(),
        server,
        data,
        operations: job.setting.accesses,
        fill,
        nodes: [bound, free],
    }))
}

impl Prepared for Filled {
    fn run(mut self: Box<Self>, _: &mut dyn FnMut(&Value)) -> Result<Ran> {
        let mut flags = self.data.clone();
        flags.extend(["--operations".to_owned(), self.operations.to_string()]);
        let start = anonymous_pages(&self.vm, self.server.pid())?;
        let mut done = kv(&self.vm, "run", &flags)?;
        done["nodes_end"] = json!(anonymous_pages(&self.vm, self.server.pid())?);
        self.server.kill()?;
        let [bound, free] = &self.nodes;
        Ok(Ran {
            ready: json!({
                "nodes": start,
                "nodes_bound": bound,
                "nodes_free": free,
                "fill": self.fill,
            }),
            done,
            ..Ran::default()
        })
    }
}

/// Runs the client, which prints one line.
fn kv(vm: &Vm, command: &str, flags: &[String]) -> Result<Value> {
    // The fill is no part of what is measured.
    let argv = match command {
        "run" => vec!["mark", "--cpus", "2-3", "kv", command],
        _ => vec!["kv", command],
    };
    let argv = argv.into_iter();
    let argv: Vec<&str> = argv.chain(flags.iter().map(String::as_str)).collect();
    let output = vm.exec(&argv)?.success()?;
    let lines = output.stdout.lines().count();
    ensure!(lines == 1, "`kv {command}` printed {lines} lines, not one");
    Ok(serde_json::from_str(&output.stdout)?)
}

/// Anonymous pages of a process.
fn anonymous_pages(vm: &Vm, pid: i32) -> Result<NodePages> {
    let maps = vm.read(&format!("/proc/{pid}/numa_maps"))?;
    Ok(anonymous_of(&maps))
}

/// Sums the `N<node>=<pages>` of the mappings that are no files.
fn anonymous_of(numa_maps: &str) -> NodePages {
    let mut pages = NodePages::new();
    let mappings = numa_maps.lines().filter(|line| !line.contains(" file="));
    for field in mappings.flat_map(str::split_ascii_whitespace) {
        let Some((node, count)) = field.strip_prefix('N').and_then(|f| f.split_once('=')) else {
            continue;
        };
        if let (Ok(node), Ok(count)) = (node.parse::<usize>(), count.parse::<u64>()) {
            *pages.entry(node).or_default() += count;
        }
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_files_are_left_out() {
        let maps = "\
55d0c0a00000 default file=/bin/redis-server mapped=3 N0=3 kernelpagesize_kB=4
7f0000000000 default anon=100 dirty=100 N0=40 N1=60 kernelpagesize_kB=4
7f0000100000 default heap anon=5 dirty=5 N1=5 kernelpagesize_kB=4
7f0000300000 default
";
        assert_eq!(anonymous_of(maps), NodePages::from([(0, 40), (1, 65)]));
    }
}
