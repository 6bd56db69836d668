//! Which processes there are to scan.

use std::collections::HashMap;
use std::time::Duration;

use super::process::Process;
use crate::kernel::page_tables::procs::{Procs, RESIDENT_MIN_PAGES};

/// The choice of the next step goes through all of them. With as many as kscand takes, 4096, those
/// of a large server with the highest numbers would never be seen.
const PROCESSES_MAX: usize = 16_384;

/// To learn of them may take one part in so many of the source's CPU time: with thousands, it would
/// be most of it.
pub(super) const SHARE: u32 = 4;

/// Learns of new processes, which may be looked at from `due` on, and forgets those that are gone
/// or have become small. Returns whether there are new ones.
pub(super) fn discover(
    procs: &Procs,
    processes: &mut HashMap<i32, Process>,
    due: Duration,
) -> bool {
    let own = std::process::id() as i32;
    let mut has_new = false;
    let mut known = std::mem::take(processes);
    for pid in procs.large(RESIDENT_MIN_PAGES) {
        if pid == own || processes.len() == PROCESSES_MAX {
            continue;
        }
        let Some(stat) = procs.stat(pid) else {
            continue;
        };
        let start_time = stat.start_time;
        let kept = known.remove(&pid).filter(|p| p.start_time == start_time);
        has_new |= kept.is_none();
        let mut process = kept.unwrap_or_else(|| Process::new(start_time, due));
        process.used(stat.cpu_ticks);
        processes.insert(pid, process);
    }
    has_new
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use pghot_linux::SysRoot;
    use pghot_linux::topology::Topology;

    use super::*;

    /// A process of so many pages, that began when and has used CPU time.
    fn make(proc: &Path, pid: i32, resident_pages: u64, start_time: u64) {
        let dir = proc.join(pid.to_string());
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("statm"), format!("9999 {resident_pages} 0\n")).unwrap();
        let (before, after) = ("0 ".repeat(10), "0 ".repeat(16));
        let stat = format!("{pid} (a) R {before}7 0 0 0 0 0 0 0 {start_time} {after}1 \n");
        fs::write(dir.join("stat"), stat).unwrap();
    }

    #[test]
    fn all_of_a_large_server_are_known() {
        const ALL: i32 = 5000;
        let dir = tempfile::tempdir().unwrap();
        let root = SysRoot::under(dir.path());
        let nowhere = Topology {
            nodes: Vec::new(),
            tiers: Vec::new(),
            memory_block_bytes: None,
        };
        let procs = Procs::new(&root, &nowhere);
        // The numbers of other processes than this one.
        let first = std::process::id() as i32 + 1;
        for pid in first..first + ALL {
            make(&root.proc, pid, RESIDENT_MIN_PAGES, 1);
        }
        make(&root.proc, first + ALL, RESIDENT_MIN_PAGES - 1, 1);
        let (mut processes, due) = (HashMap::new(), Duration::from_secs(3));
        assert!(discover(&procs, &mut processes, due));
        assert_eq!(processes.len(), ALL as usize);
        assert!(!discover(&procs, &mut processes, due), "they are known");

        let (gone, other, small) = (first + 1, first + 2, first + 3);
        fs::remove_dir_all(root.proc.join(gone.to_string())).unwrap();
        make(&root.proc, other, RESIDENT_MIN_PAGES, 2);
        make(&root.proc, small, RESIDENT_MIN_PAGES - 1, 1);
        assert!(
            discover(&procs, &mut processes, due),
            "another of the number"
        );
        assert_eq!(processes[&other].start_time, 2);
        assert_eq!(processes.len(), ALL as usize - 2);
    }
}
