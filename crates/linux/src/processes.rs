//! Which process has memory on which node: from `/proc/PID/numa_maps`, for the largest few.
//!
//! The kernel walks the page tables of the process for it, and keeps it from mapping memory
//! meanwhile. That takes milliseconds for each GiB of small pages, so neither many processes are
//! walked nor huge ones, and how often is for the caller to bound. It is readable for the process's
//! own user and for root.

use std::cmp::Reverse;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};

use crate::SysRoot;
use crate::groups::Bytes;

/// Processes whose page tables are walked at once.
const WALKED_MAX: usize = 8;

/// And no larger ones, in bytes.
pub const WALKED_BYTES_MAX: u64 = 8 << 30;

/// Processes that are listed.
const LISTED_MAX: usize = 200;

/// A process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its name, at most 15 letters.
    pub name: String,
    /// Its resident memory.
    pub rss_bytes: u64,
    /// The same by node, shared memory included, if its page tables were walked.
    pub bytes: Option<Bytes>,
}

/// The largest processes, of all or of these, the largest first.
pub fn read(root: &SysRoot, among: Option<&[u32]>) -> Vec<Process> {
    let mut processes: Vec<Process> = match among {
        Some(pids) => pids.iter().filter_map(|pid| one(root, *pid)).collect(),
        None => {
            let entries = fs::read_dir(&root.proc).into_iter().flatten().flatten();
            let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
            pids.filter_map(|pid| one(root, pid)).collect()
        }
    };
    processes.sort_by_key(|process| (Reverse(process.rss_bytes), process.pid));
    processes.truncate(LISTED_MAX);
    let may_be_walked = |process: &&mut Process| process.rss_bytes <= WALKED_BYTES_MAX;
    for process in processes.iter_mut().filter(may_be_walked).take(WALKED_MAX) {
        process.bytes = walk(root, process.pid);
    }
    processes
}

/// `None` if it is gone, or has no memory of its own, as kernel threads.
fn one(root: &SysRoot, pid: u32) -> Option<Process> {
    let folder = root.proc.join(pid.to_string());
    let statm = fs::read_to_string(folder.join("statm")).ok()?;
    let resident: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    let name = fs::read_to_string(folder.join("comm")).ok()?;
    (resident > 0).then(|| Process {
        pid,
        name: printable(name.trim_end_matches('\n')),
        rss_bytes: resident << 12,
        bytes: None,
    })
}

/// A process chooses its name, and a terminal obeys what is not printable.
pub fn printable(text: &str) -> String {
    let shown = |letter: char| if letter.is_control() { '?' } else { letter };
    text.chars().map(shown).collect()
}

fn walk(root: &SysRoot, pid: u32) -> Option<Bytes> {
    let file = File::open(root.proc.join(pid.to_string()).join("numa_maps")).ok()?;
    let mut bytes = Bytes::new();
    for line in BufReader::new(file).lines() {
        add_mapping(&mut bytes, &line.ok()?);
    }
    Some(bytes)
}

/// A line such as `7f5e1c200000 default anon=5 dirty=5 N0=3 N2=2 kernelpagesize_kB=4`.
fn add_mapping(bytes: &mut Bytes, line: &str) {
    let number = |text: &str| text.parse::<u64>().ok();
    let pairs = || {
        line.split_whitespace()
            .filter_map(|word| word.split_once('='))
    };
    let page_kib = pairs().find(|(name, _)| *name == "kernelpagesize_kB");
    let page_kib = page_kib.and_then(|(_, kib)| number(kib)).unwrap_or(4);
    for (name, pages) in pairs() {
        let nid = name.strip_prefix('N').and_then(|nid| nid.parse().ok());
        if let Some((nid, pages)) = nid.zip(number(pages)) {
            let sum: &mut u64 = bytes.entry(nid).or_default();
            *sum = sum.saturating_add(pages.saturating_mul(page_kib << 10));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(root: &SysRoot, pid: u32, name: &str, pages: u64, maps: Option<&str>) {
        let folder = root.proc.join(pid.to_string());
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("comm"), format!("{name}\n")).unwrap();
        fs::write(folder.join("statm"), format!("9999 {pages} 1 1 0 1 0\n")).unwrap();
        if let Some(maps) = maps {
            fs::write(folder.join("numa_maps"), maps).unwrap();
        }
    }

    #[test]
    fn the_largest_come_first_and_kernel_threads_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let root = SysRoot::under(dir.path());
        assert_eq!(read(&root, None), []);
        let maps = "55 default file=/bin/x mapped=2 N0=2 kernelpagesize_kB=4\n\
                    7f default anon=9 N0=1 N2=8 kernelpagesize_kB=4\n\
                    7e default file=/anon_hugepage huge dirty=1 N2=1 kernelpagesize_kB=2048\n\
                    7d default Nx=1 N1= =\n";
        process(&root, 7, "small", 11, Some(maps));
        process(&root, 8, "evil\x1b[2J", 500, None);
        process(&root, 9, "kthreadd", 0, None);
        process(&root, 10, "huge", WALKED_BYTES_MAX, Some(maps));
        let processes = read(&root, None);
        let names: Vec<_> = processes
            .iter()
            .map(|process| process.name.as_str())
            .collect();
        assert_eq!(names, ["huge", "evil?[2J", "small"]);
        let bytes = [(0, 3 << 12), (2, (8 << 12) + (2 << 20))].into();
        assert_eq!(processes[2].bytes, Some(bytes));
        assert_eq!((&processes[0].bytes, &processes[1].bytes), (&None, &None));
        assert_eq!(read(&root, Some(&[8, 999])).len(), 1);
    }
}
