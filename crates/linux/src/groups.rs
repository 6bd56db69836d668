//! Which control group has memory on which node: from cgroup v2's `memory.numa_stat`, readable by
//! everyone. Each of them counts what is below it once more, so a group of groups is told with what
//! it has beyond that: sums over all groups are what the kernel says of the root.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::SysRoot;

/// More groups than this are not looked at.
const GROUPS_MAX: usize = 20_000;

/// Bytes by node.
pub type Bytes = BTreeMap<u32, u64>;

/// A group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Group {
    /// Its path below the mount point, with a slash in front.
    pub path: String,
    /// Anonymous memory and page cache by node, without that of groups below.
    pub bytes: Bytes,
    /// `memory.max`, if it is limited.
    pub limit_bytes: Option<u64>,
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
    let mut groups: Vec<Group> = Vec::new();
    // With the group above.
    let mut folders = vec![(mount.clone(), None)];
    while let Some((folder, above)) = folders.pop().filter(|_| groups.len() < GROUPS_MAX) {
        // One that vanished meanwhile is no error, nor one without the controller.
        let bytes = total(&kinds(&folder).unwrap_or_default());
        if let Some(above) = above.and_then(|index: usize| groups.get_mut(index)) {
            for (nid, bytes) in &bytes {
                let of_above = above.bytes.entry(*nid).or_default();
                *of_above = of_above.saturating_sub(*bytes);
            }
        }
        let here = Some(groups.len());
        folders.extend(folders_in(&folder).into_iter().map(|below| (below, here)));
        groups.push(Group {
            path: format!("/{}", below_mount(&mount, &folder)),
            bytes,
            limit_bytes: limit_bytes(&folder),
        });
    }
    groups.retain(|group| group.bytes.values().any(|bytes| *bytes > 0));
    match groups.is_empty() {
        true => Err("no cgroup has the memory controller".to_owned()),
        false => Ok(groups),
    }
}

fn limit_bytes(folder: &Path) -> Option<u64> {
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
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::thread;
    use std::time::{Duration, Instant};

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
        group(&root, "slice", "anon N0=5097 N2=8194\n", "");
        group(
            &root,
            "slice/db",
            "anon N0=4096 N2=8192\nfile N0=1 N2=2\nslab N0=7\n",
            "5\n6\n",
        );
        fs::write(mount.join("slice/db/memory.max"), "1048576\n").unwrap();
        fs::write(mount.join("slice/memory.max"), "max\n").unwrap();
        group(&root, "slice/idle", "anon N0=0 N2=0\n", "");
        group(&root, "broken", "anon N0=x Nx=1 =\n\n\0\n", "x\n");
        fs::create_dir_all(mount.join("slice/db/threads")).unwrap();
        let groups = read(&root).unwrap();
        let told = |path: &str, bytes: [(u32, u64); 2], limit_bytes| Group {
            path: path.into(),
            bytes: bytes.into(),
            limit_bytes,
        };
        let expected = [
            told("/slice", [(0, 1000), (2, 0)], None),
            told("/slice/db", [(0, 4097), (2, 8194)], Some(1 << 20)),
        ];
        assert_eq!(groups, expected);
        let detail = detail(&root, "/slice/db").unwrap();
        assert_eq!(detail.pids, [5, 6]);
        assert_eq!(detail.kinds[2], ("slab".into(), [(0, 7)].into()));
        assert_eq!(super::detail(&root, "/slice/gone"), None);
    }

    /// Groups come and go all the time, and while they are read, too.
    #[test]
    fn a_group_that_vanishes_under_the_reader_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let root = SysRoot::under(dir.path());
        let mount = root.sys.join("fs/cgroup");
        fs::create_dir_all(&mount).unwrap();
        fs::write(mount.join("cgroup.controllers"), "memory\n").unwrap();
        group(&root, "stays", "anon N0=4096\n", "1\n");
        let is_over = AtomicBool::new(false);
        let (mut with, mut without) = (0, 0);
        let end = Instant::now() + Duration::from_secs(60);
        let is_early = || Instant::now() < end;
        thread::scope(|scope| {
            let (root, is_over) = (&root, &is_over);
            scope.spawn(move || {
                while !is_over.load(Relaxed) && is_early() {
                    for name in ["slice/a/deep", "slice/b"] {
                        group(root, name, "anon N0=8192\n", "2\n");
                    }
                    fs::remove_dir_all(root.sys.join("fs/cgroup/slice")).unwrap();
                }
            });
            while (with < 20 || without < 20) && is_early() {
                let groups = read(root).unwrap();
                assert!(groups.iter().any(|group| group.path == "/stays"));
                match groups.len() {
                    1 => without += 1,
                    _ => with += 1,
                }
                if let Some(detail) = super::detail(root, "/slice/a") {
                    assert!(detail.pids.len() <= 1, "{detail:?}");
                }
                super::detail(root, "/slice");
            }
            is_over.store(true, Relaxed);
        });
        assert!(with >= 20 && without >= 20, "{with} {without}");
    }
}
