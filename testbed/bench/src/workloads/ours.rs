//! Our own programs: plans of `load`, whose accesses are known before they are made, and `bfs`.

use std::path::PathBuf;

use anyhow::Result;
use pghot_testbed::{Vm, guest_binary};

use super::{Job, Prepared, Ran, event};
use crate::programs::unmount;

/// The guest's disk, and where it is mounted.
const DISK: &str = "/dev/nvme0n1";
const FOLDER: &str = "/data";

/// A program that does all of it in one go, while the system is at work.
struct Ours {
    vm: Vm,
    argv: Vec<String>,
    /// What to unmount at the end.
    mounted: Option<&'static str>,
}

impl Prepared for Ours {
    fn run(self: Box<Self>) -> Result<Ran> {
        let argv: Vec<&str> = self.argv.iter().map(String::as_str).collect();
        let output = self.vm.exec(&argv)?.success()?;
        if let Some(folder) = self.mounted {
            unmount(&self.vm, folder)?;
        }
        Ok(Ran {
            ready: event(&output.stdout, "ready")?,
            done: event(&output.stdout, "done")?,
        })
    }
}

/// A plan of that name.
pub fn load(job: &Job<'_>) -> Result<Box<dyn Prepared>> {
    let flags = ["--backing", &job.setting.backing];
    Ok(Box::new(plan(job, &job.setting.workload, &flags)))
}

/// What the plan `promote` by preads needs.
pub fn pagecache_binaries() -> Result<Vec<PathBuf>> {
    let tools = ["/bin/mount", "/bin/umount", "/sbin/mkfs.ext4"].map(PathBuf::from);
    Ok([&[guest_binary("load")?][..], &tools].concat())
}

/// The plan `promote` by preads.
pub fn pagecache(job: &Job<'_>) -> Result<Box<dyn Prepared>> {
    // Sources find a file by its handle, for which it must lie in a real file system.
    job.vm.mkdir(FOLDER)?;
    job.vm.exec(&["mkfs.ext4", "-q", "-F", DISK])?.success()?;
    let mount = ["mount", "-t", "ext4", DISK, FOLDER];
    job.vm.exec(&mount)?.success()?;
    Ok(Box::new(Ours {
        mounted: Some(FOLDER),
        ..plan(job, "promote", &["--pread", "--dir", FOLDER])
    }))
}

fn plan(job: &Job<'_>, plan: &str, flags: &[&str]) -> Ours {
    let numbers = [
        ("--size-mib", job.size_mib),
        ("--near-mib", job.room_mib),
        ("--accesses", job.setting.accesses),
    ];
    ours(job, &["load", plan], &numbers, flags)
}

/// Searches of the largest graph that fits.
pub fn bfs(job: &Job<'_>) -> Result<Box<dyn Prepared>> {
    const DEGREE: u64 = 16;
    // Both directions of an edge, 4 bytes each; what vertices take is little beside it.
    const VERTEX_BYTES: u64 = DEGREE * 2 * 4 + 16;
    let scale = ((job.size_mib << 20) / VERTEX_BYTES).max(2).ilog2();
    let edges = (2 * DEGREE) << scale;
    let numbers = [
        ("--scale", scale.into()),
        ("--degree", DEGREE),
        // An operation is taken for an edge that a search looks at.
        ("--searches", (job.setting.accesses / edges).max(1)),
    ];
    let flags = ["--backing", &job.setting.backing];
    Ok(Box::new(ours(job, &["bfs"], &numbers, &flags)))
}

fn ours(job: &Job<'_>, program: &[&str], numbers: &[(&str, u64)], flags: &[&str]) -> Ours {
    let setting = job.setting;
    let common = [
        ("--home", job.home.into()),
        ("--threads", setting.threads.into()),
        ("--seed", setting.seed),
    ];
    let numbers = numbers.iter().chain(&common);
    let numbers = numbers.flat_map(|(name, number)| [(*name).to_owned(), number.to_string()]);
    let words = program.iter().chain(&["--witness", "--cpus", "0-1"]);
    let words = words.chain(flags).map(|word| (*word).to_owned());
    Ours {
        vm: job.vm.clone(),
        argv: words.chain(numbers).collect(),
        mounted: None,
    }
}
