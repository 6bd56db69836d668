//! Real programs in the guest, whose memory starts in the lower tier and is then free to move.
//!
//! A program is prepared first, with its memory in the lower tier. Then a system can be started,
//! and the program runs: a fixed number of operations, whose answers are checked.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use pghot_testbed::{Status, Vm, guest_binary, program};
use serde_json::Value;

mod fio;
mod redis;

/// Node of the lower tier, on the machine of all cells.
const LOWER: u32 = 1;

/// Pages of 4 KiB by node.
pub type NodePages = BTreeMap<u32, u64>;

/// A program that can be run.
pub struct Program {
    /// Its name, also of its package.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub doc: &'static str,
    /// Binaries of this build that it needs.
    own: &'static [&'static str],
    /// Binaries of the host that it needs.
    tools: &'static [&'static str],
    /// Makes its data, in the lower tier, in a guest that has its files.
    pub prepare: fn(&Vm, &Size, u64) -> Result<Box<dyn Prepared>>,
}

/// How much there is to do.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Of the data.
    pub mib: u64,
    /// Requests or reads.
    pub operations: u64,
}

/// A program whose data is in place.
pub trait Prepared {
    /// Does the operations, ends the program, and tells what was measured.
    fn run(self: Box<Self>) -> Result<Value>;
}

/// All of them.
pub static PROGRAMS: &[Program] = &[
    Program {
        name: "redis-server",
        doc: "Redis, asked for keys of which some are much more popular than others.",
        own: &["kv", "mark"],
        tools: &[],
        prepare: redis::prepare,
    },
    Program {
        name: "fio",
        doc: "fio, reading blocks of a cached file, some of them much more often than others.",
        own: &["mark"],
        tools: &["/sbin/mkfs.ext4", "/bin/mount", "/bin/umount"],
        prepare: fio::prepare,
    },
];

/// The program of that name.
pub fn find(name: &str) -> Option<&'static Program> {
    PROGRAMS.iter().find(|program| program.name == name)
}

impl Program {
    /// What has to be in a guest's `/bin`. Fails if `setup.sh --bench` did not bring the
    /// program.
    pub fn binaries(&self) -> Result<Vec<PathBuf>> {
        let mut binaries = Vec::new();
        binaries.extend(self.tools.iter().map(PathBuf::from));
        binaries.push(program(self.name)?);
        for name in self.own {
            binaries.push(guest_binary(name)?);
        }
        Ok(binaries)
    }
}

/// Unmounts as soon as nobody is in there: who promotes files has them open for a moment.
pub fn unmount(vm: &Vm, folder: &str) -> Result<()> {
    const LIMIT: Duration = Duration::from_secs(30);
    let done = || Ok(vm.exec(&["umount", folder])?.status == Status::Code(0));
    Ok(vm.wait_until("the file system can be unmounted", LIMIT, done)?)
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
        if let (Ok(node), Ok(count)) = (node.parse::<u32>(), count.parse::<u64>()) {
            *pages.entry(node).or_default() += count;
        }
    }
    pages
}

/// Page cache of the whole guest.
fn cached_pages(vm: &Vm) -> Result<NodePages> {
    let of_node = |nid: u32| {
        let meminfo = vm.read(&format!("/sys/devices/system/node/node{nid}/meminfo"))?;
        let line = meminfo.lines().find(|line| line.contains("FilePages:"));
        let number = line.and_then(|line| line.split_ascii_whitespace().nth(3));
        let kib: u64 = number.context("meminfo has no FilePages")?.parse()?;
        Ok((nid, kib / 4))
    };
    (0..=LOWER).map(of_node).collect()
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
