//! fio: reads a file on ext4 whose page cache lies in the lower tier, by `pread`, never mapped.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use pghot_testbed::Vm;
use serde_json::{Value, json};

use super::{LOWER, NodePages, Prepared, Size, cached_pages, unmount};

const DISK: &str = "/dev/nvme0n1";
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

/// See [`growth`].
type Growth = BTreeMap<u32, i64>;

struct Cached {
    vm: Vm,
    size: Size,
    seed: u64,
    /// The file's pages, as the growth of the page cache by node.
    nodes: Growth,
}

/// Makes a file system and writes the file.
pub fn prepare(vm: &Vm, size: &Size, seed: u64) -> Result<Box<dyn Prepared>> {
    ensure!(
        vm.exists(DISK)?,
        "the guest has no {DISK}: give its machine a disk (`disk_mib`)"
    );
    vm.mkdir(DIR)?;
    vm.exec(&["mkfs.ext4", "-q", "-F", DISK])?.success()?;
    vm.exec(&["mount", "-t", "ext4", DISK, DIR])?.success()?;
    let before = cached_pages(vm)?;
    let length = format!("--size={}m", size.mib);
    let node = format!("--numa_mem_policy=bind:{LOWER}");
    // Checked when it is read, in the run.
    let write = ["--rw=write", "--do_verify=0", "--end_fsync=1"];
    fio(vm, &["fio"], &[&write[..], &[&length, &node]].concat())?;
    let nodes = growth(&before, &cached_pages(vm)?);
    Ok(Box::new(Cached {
        vm: vm.clone(),
        size: *size,
        seed,
        nodes,
    }))
}

impl Prepared for Cached {
    fn run(self: Box<Self>) -> Result<Value> {
        let flags = [
            format!("--size={}m", self.size.mib),
            format!("--io_size={}k", self.size.operations * 4),
            format!("--randseed={}", self.seed),
        ];
        let flags = flags.iter().map(String::as_str);
        let flags: Vec<&str> = ["--rw=randread", ZIPF].into_iter().chain(flags).collect();
        let before = cached_pages(&self.vm)?;
        let report = fio(&self.vm, &["mark", "fio"], &flags)?;
        let change = growth(&before, &cached_pages(&self.vm)?);
        unmount(&self.vm, DIR)?;
        let read = &report["read"];
        let us = |percentile: &str| {
            let nanoseconds = &read["clat_ns"]["percentile"][percentile];
            Some(nanoseconds.as_f64()? / 1000.0)
        };
        Ok(json!({
            "nodes_start": self.nodes,
            "cache_growth": change,
            "run": {
                "operations": read["total_ios"],
                "elapsed_s": read["runtime"].as_f64().map(|ms| ms / 1000.0),
                "operations_per_s": read["iops"],
                "p50_us": us("50.000000"),
                "p99_us": us("99.000000"),
                "errors": report["error"],
            },
        }))
    }
}

/// Pages that the page cache has gained, by node.
fn growth(before: &NodePages, after: &NodePages) -> Growth {
    let gained = |(nid, &now): (&u32, &u64)| {
        let then = before.get(nid).copied().unwrap_or(0);
        (*nid, now.cast_signed() - then.cast_signed())
    };
    after.iter().map(gained).collect()
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
