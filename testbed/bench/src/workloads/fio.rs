//! fio: reads a file on ext4 whose page cache lies in the lower tier, by `pread`, never mapped.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use pghot_testbed::Vm;
use serde_json::{Value, json};

use super::{Job, Prepared, Ran, mount, unmount};
use crate::guest::node_kib;

const DIR: &str = "/tmp/fio";

/// What both runs have in common. Every block holds its offset, and each read is checked against
/// that; nobody drops the cache before a run.
const COMMON: [&str; 9] = [
    "--name=cached",
    "--filename=/tmp/fio/file",
    "--bs=4k",
    "--ioengine=psync",
    "--thread",
    "--invalidate=0",
    "--verify=pattern",
    "--verify_pattern=%o",
    "--output-format=json",
];

/// Share of the reads by rank of the block: the skew that benchmarks of caches use.
const ZIPF: &str = "--random_distribution=zipf:0.99";

/// Pages of 4 KiB by node.
type NodePages = BTreeMap<usize, u64>;
/// See [`growth`].
type Growth = BTreeMap<usize, i64>;

struct Cached {
    vm: Vm,
    size_mib: u64,
    reads: u64,
    seed: u64,
    /// The file's pages, as the growth of the page cache by node.
    nodes: Growth,
}

/// Makes a file system and writes the file.
pub fn prepare(job: &Job<'_>) -> Result<Box<dyn Prepared>> {
    let vm = job.vm;
    mount(vm, DIR)?;
    let before = cached_pages(vm)?;
    let length = format!("--size={}m", job.size_mib);
    let node = format!("--numa_mem_policy=bind:{}", job.home);
    // Checked when it is read, in the run.
    let write = ["--rw=write", "--do_verify=0", "--end_fsync=1"];
    fio(vm, &["fio"], &[&write[..], &[&length, &node]].concat())?;
    let nodes = growth(&before, &cached_pages(vm)?);
    Ok(Box::new(Cached {
        vm: vm.clone(),
        size_mib: job.size_mib,
        reads: job.setting.accesses,
        seed: job.setting.seed,
        nodes,
    }))
}

impl Prepared for Cached {
    fn run(self: Box<Self>, _: &mut dyn FnMut(&Value)) -> Result<Ran> {
        let flags = [
            format!("--size={}m", self.size_mib),
            format!("--io_size={}k", self.reads * 4),
            format!("--randseed={}", self.seed),
        ];
        let flags = flags.iter().map(String::as_str);
        let flags: Vec<&str> = ["--rw=randread", ZIPF].into_iter().chain(flags).collect();
        let before = cached_pages(&self.vm)?;
        let report = fio(&self.vm, &["mark", "--cpus", "0-1", "fio"], &flags)?;
        let change = growth(&before, &cached_pages(&self.vm)?);
        unmount(&self.vm, DIR)?;
        let read = &report["read"];
        let us = |percentile: &str| {
            let nanoseconds = &read["clat_ns"]["percentile"][percentile];
            Some(nanoseconds.as_f64()? / 1000.0)
        };
        Ok(Ran {
            ready: json!({ "nodes": self.nodes }),
            done: json!({
                "operations": read["total_ios"],
                "elapsed_s": read["runtime"].as_f64().map(|ms| ms / 1000.0),
                "operations_per_s": read["iops"],
                "p50_us": us("50.000000"),
                "p99_us": us("99.000000"),
                "errors": report["error"],
                "cache_growth": change,
            }),
            ..Ran::default()
        })
    }
}

/// Pages that the page cache has gained, by node.
fn growth(before: &NodePages, after: &NodePages) -> Growth {
    let gained = |(nid, &now): (&usize, &u64)| {
        let then = before.get(nid).copied().unwrap_or(0);
        (*nid, now.cast_signed() - then.cast_signed())
    };
    after.iter().map(gained).collect()
}

/// Page cache of the whole guest.
fn cached_pages(vm: &Vm) -> Result<NodePages> {
    let of_node = |nid: usize| Ok((nid, node_kib(vm, nid, "FilePages")? / 4));
    (0..2).map(of_node).collect()
}

/// Runs it, and returns what it says of its only job. It fails if a block is not what was written.
fn fio(vm: &Vm, command: &[&str], flags: &[&str]) -> Result<Value> {
    let argv = [command, &COMMON, flags].concat();
    let output = vm.exec(&argv)?.success()?;
    // It may say something before the JSON begins.
    let start = output.stdout.find('{').context("fio printed no JSON")?;
    let report: Value = serde_json::from_str(&output.stdout[start..])?;
    Ok(report["jobs"][0].clone())
}
