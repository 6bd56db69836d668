//! Who processes are: their names and control groups, from `/proc`.

use std::collections::HashMap;
use std::path::PathBuf;

use pghot_engine::{Pid, Program};

use crate::{SysRoot, cgroup};

/// For so long an answer is good, in ms: a process that changes its name or its group is known
/// anew after that.
const KNOWN_MS: u64 = 1000;

/// Processes that are remembered.
const KNOWN_MAX: usize = 4096;

/// See the head of this file. Remembers for a second: a pass may come every few ms.
pub struct Programs {
    proc: PathBuf,
    known: HashMap<Pid, (u64, Option<Program>)>,
}

impl Programs {
    /// Nothing is read yet.
    pub fn new(root: &SysRoot) -> Programs {
        Programs {
            proc: root.proc.clone(),
            known: HashMap::new(),
        }
    }

    /// Who it is; `None` if it is gone.
    pub fn get(&mut self, pid: Pid, now_ms: u64) -> Option<Program> {
        let is_good = |read_ms: u64| now_ms.saturating_sub(read_ms) < KNOWN_MS;
        if let Some((_, program)) = self.known.get(&pid).filter(|(at_ms, _)| is_good(*at_ms)) {
            return program.clone();
        }
        if self.known.len() >= KNOWN_MAX {
            self.known.retain(|_, (at_ms, _)| is_good(*at_ms));
        }
        let program = self.read(pid);
        if self.known.len() < KNOWN_MAX {
            self.known.insert(pid, (now_ms, program.clone()));
        }
        program
    }

    fn read(&self, pid: Pid) -> Option<Program> {
        let name = std::fs::read(self.proc.join(format!("{pid}/comm"))).ok()?;
        let cgroup = cgroup::of(&self.proc, pid);
        Some(Program {
            pid,
            name: String::from_utf8_lossy(name.trim_ascii_end()).into_owned(),
            cgroup: cgroup.map_or_else(String::new, |path| format!("/{path}")),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn who_it_is_is_read_once_a_second() {
        let dir = tempfile::tempdir().unwrap();
        let root = SysRoot::under(dir.path());
        let mut programs = Programs::new(&root);
        assert_eq!(programs.get(7, 0), None);
        let folder = root.proc.join("7");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("comm"), "a b\n").unwrap();
        assert_eq!(programs.get(7, KNOWN_MS - 1), None, "it was not there");
        let cgroup = |text: &str| fs::write(folder.join("cgroup"), text).unwrap();
        cgroup("0::/x/y.service\n");
        let expected = |path: &str| {
            Some(Program {
                pid: 7,
                name: "a b".into(),
                cgroup: path.into(),
            })
        };
        assert_eq!(programs.get(7, KNOWN_MS), expected("/x/y.service"));
        cgroup("0::/\n");
        assert_eq!(programs.get(7, 2 * KNOWN_MS - 1), expected("/x/y.service"));
        assert_eq!(programs.get(7, 2 * KNOWN_MS), expected("/"));
        cgroup("4:memory:/x\n");
        assert_eq!(programs.get(7, 9 * KNOWN_MS), expected(""));
    }

    #[test]
    fn memory_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let mut programs = Programs::new(&SysRoot::under(dir.path()));
        (0..2 * KNOWN_MAX as u32).for_each(|pid| _ = programs.get(pid, 0));
        assert_eq!(programs.known.len(), KNOWN_MAX);
    }
}
