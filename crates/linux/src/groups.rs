//! Which control group has memory on which node: from cgroup v2's `memory.numa_stat`, readable by
//! everyone. Groups of groups are left out, since each of them counts what is below it once more.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::SysRoot;

/// More groups than this are not looked at.
const GROUPS_MAX: usize = 20_000;

/// Bytes by node.
pub type Bytes = BTreeMap<u32, u64>;

/// A group without groups below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its path below the mount point, with a slash in front.
    pub path: String,
    /// Anonymous memory and page cache by node.
    pub bytes: Bytes,
}

/// One group in all detail.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupDetail {
    /// By kind of memory, in the kernel's words and order.
    pub kinds: Vec<(String, Bytes)>,
    /// Processes of the group and of those below.
    pub pids: Vec<u32>,
}

/// Where cgroup v2 is mounted, if it is.
fn mount(root: &SysRoot) -> Option<PathBuf> {
    let all = root.sys.join("fs/cgroup");
    let mounts = [all.clone(), all.join("unified")];
    let is_v2 = |path: &PathBuf| path.join("cgroup.controllers").exists();
    mounts.into_iter().find(is_v2)
}

/// All groups that have memory; the sentence says why nothing is known.
pub fn read(root: &SysRoot) -> Result<Vec<Group>, String> {
    let mount = mount(root).ok_or("cgroup v2 is not mounted at /sys/fs/cgroup")?;
    let mut groups = Vec::new();
    let mut folders = vec![mount.clone()];
    let mut seen = 0;
    while let Some(folder) = folders.pop().filter(|_| seen < GROUPS_MAX) {
        seen += 1;
        let below = folders_in(&folder);
        let is_counted = |path: &PathBuf| path.join("memory.numa_stat").exists();
        if !below.iter().any(is_counted) {
            // One that vanished meanwhile is no error.
            let kinds = kinds(&folder).unwrap_or_default();
            let bytes = total(&kinds);
            if bytes.values().any(|bytes| *bytes > 0) {
                let path = format!("/{}", below_mount(&mount, &folder));
                groups.push(Group { path, bytes });
            }
        }
        folders.extend(below);
    }
    match groups.is_empty() {
        true => Err("no cgroup has the memory controller".to_owned()),
        false => Ok(groups),
    }
}

/// The most memory that a group may have, if it is limited, by its path as [`Group`] has it.
pub fn limit_bytes(root: &SysRoot, path: &str) -> Option<u64> {
    let folder = mount(root)?.join(path.trim_start_matches('/'));
    let text = fs::read_to_string(folder.join("memory.max")).ok()?;
    text.trim().parse().ok()
}

/// One group, by its path as [`Group`] has it; `None` if it is gone.
pub fn detail(root: &SysRoot, path: &str) -> Option<GroupDetail> {
    let folder = mount(root)?.join(path.trim_start_matches('/'));
    let mut pids = Vec::new();
    let mut folders = vec![folder.clone()];
    while let Some(folder) = folders.pop() {
        let listed = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        pids.extend(listed.lines().filter_map(|pid| pid.parse::<u32>().ok()));
        folders.extend(folders_in(&folder));
    }
    let kinds = kinds(&folder)?;
    Some(GroupDetail { kinds, pids })
}

fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

fn below_mount(mount: &Path, folder: &Path) -> String {
    let below = folder.strip_prefix(mount).unwrap_or(folder);
    below.display().to_string()
}

fn kinds(folder: &Path) -> Option<Vec<(String, Bytes)>> {
    let text = fs::read_to_string(folder.join("memory.numa_stat")).ok()?;
    Some(parse(&text))
}

/// Lines such as `anon N0=4096 N2=8192`. What cannot be understood is left out.
fn parse(text: &str) -> Vec<(String, Bytes)> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let kind = words.next()?.to_owned();
        let node = |word: &str| {
            let (nid, bytes) = word.strip_prefix('N')?.split_once('=')?;
            Some((nid.parse().ok()?, bytes.parse().ok()?))
        };
        Some((kind, words.filter_map(node).collect()))
    };
    text.lines().filter_map(line).collect()
}

/// Anonymous memory and page cache: what can be moved. The other lines count parts of these, or
/// the kernel's own memory.
fn total(kinds: &[(String, Bytes)]) -> Bytes {
    let mut total = Bytes::new();
    for (_, bytes) in kinds
        .iter()
        .filter(|(kind, _)| kind == "anon" || kind == "file")
    {
        for (nid, bytes) in bytes {
            *total.entry(*nid).or_default() += bytes;
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(root: &SysRoot, path: &str, stat: &str, pids: &str) {
        let folder = root.sys.join("fs/cgroup").join(path);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("memory.numa_stat"), stat).unwrap();
        fs::write(folder.join("cgroup.procs"), pids).unwrap();
    }

    #[test]
    fn memory_is_counted_once_and_rubbish_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let root = SysRoot::under(dir.path());
        assert!(read(&root).unwrap_err().contains("not mounted"));
        let mount = root.sys.join("fs/cgroup");
        fs::create_dir_all(&mount).unwrap();
        fs::write(mount.join("cgroup.controllers"), "memory\n").unwrap();
        assert!(read(&root).unwrap_err().contains("memory controller"));
        group(&root, "slice", "anon N0=9 N2=9\n", "");
        group(
            &root,
            "slice/db",
            "anon N0=4096 N2=8192\nfile N0=1 N2=2\nslab N0=7\n",
            "5\n6\n",
        );
        group(&root, "slice/idle", "anon N0=0 N2=0\n", "");
        group(&root, "broken", "anon N0=x Nx=1 =\n\n\0\n", "x\n");
        fs::create_dir_all(mount.join("slice/db/threads")).unwrap();
        let groups = read(&root).unwrap();
        let expected = Group {
            path: "/slice/db".into(),
            bytes: [(0, 4097), (2, 8194)].into(),
        };
        assert_eq!(groups, [expected]);
        let detail = detail(&root, "/slice/db").unwrap();
        assert_eq!(detail.pids, [5, 6]);
        assert_eq!(detail.kinds[2], ("slab".into(), [(0, 7)].into()));
        assert_eq!(super::detail(&root, "/slice/gone"), None);
    }
}
