//! Redis: filled while its memory is bound to the lower tier, then asked by `kv`.
//!
//! The bond is a cpuset, not a memory policy, since NUMA balancing leaves memory alone that has
//! one. Widening the cpuset moves nothing by itself: the kernel skips nodes that stay allowed.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pghot_testbed::{Process, Vm};
use serde_json::{Value, json};

use super::{LOWER, NodePages, Prepared, Size, anonymous_pages};

const SOCKET: &str = "/run/redis.sock";
const CGROUPS: &str = "/sys/fs/cgroup";
const START_LIMIT: Duration = Duration::from_secs(60);

/// Of a value, which fills a good part of a page: with small ones, every page would have a popular
/// key.
const VALUE_BYTES: u64 = 1024;
/// What Redis takes for a key and such a value.
const ENTRY_BYTES: u64 = 1392;

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
pub fn prepare(vm: &Vm, size: &Size, seed: u64) -> Result<Box<dyn Prepared>> {
    let cgroup = format!("{CGROUPS}/redis");
    vm.write(&format!("{CGROUPS}/cgroup.subtree_control"), "+cpuset")?;
    vm.mkdir(&cgroup)?;
    let mems = format!("{cgroup}/cpuset.mems");
    vm.write(&mems, LOWER.to_string())?;

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

    let keys = (size.mib << 20) / ENTRY_BYTES;
    let numbers = [
        ("--keys", keys),
        ("--value-bytes", VALUE_BYTES),
        ("--seed", seed),
    ];
    let numbers = numbers.map(|(name, number)| [name.to_owned(), number.to_string()]);
    let mut data = vec!["--socket".to_owned(), SOCKET.to_owned()];
    data.extend(numbers.into_iter().flatten());
    let fill = kv(vm, "fill", &data)?;

    let bound = anonymous_pages(vm, server.pid())?;
    vm.write(&mems, format!("0-{LOWER}"))?;
    let free = anonymous_pages(vm, server.pid())?;
    Ok(Box::new(Filled {
        vm: vm.clone(),
        server,
        data,
        operations: size.operations,
        fill,
        nodes: [bound, free],
    }))
}

impl Prepared for Filled {
    fn run(mut self: Box<Self>) -> Result<Value> {
        let mut flags = self.data.clone();
        flags.extend(["--operations".to_owned(), self.operations.to_string()]);
        let start = anonymous_pages(&self.vm, self.server.pid())?;
        let done = kv(&self.vm, "run", &flags)?;
        let end = anonymous_pages(&self.vm, self.server.pid())?;
        self.server.kill()?;
        let [bound, free] = &self.nodes;
        Ok(json!({
            "fill": self.fill,
            "nodes_bound": bound,
            "nodes_free": free,
            "nodes_start": start,
            "nodes_end": end,
            "run": done,
        }))
    }
}

/// Runs the client, which prints one line.
fn kv(vm: &Vm, command: &str, flags: &[String]) -> Result<Value> {
    // The fill is no part of what is measured.
    let argv = match command {
        "run" => vec!["mark", "kv", command],
        _ => vec!["kv", command],
    };
    let argv = argv.into_iter();
    let argv: Vec<&str> = argv.chain(flags.iter().map(String::as_str)).collect();
    let output = vm.exec(&argv)?.success()?;
    let lines = output.stdout.lines().count();
    ensure!(lines == 1, "`kv {command}` printed {lines} lines, not one");
    Ok(serde_json::from_str(&output.stdout)?)
}
