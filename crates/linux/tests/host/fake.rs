//! A fake `/proc` and `/sys` in a temporary directory.

use std::fs;
use std::path::{Path, PathBuf};

use pghot_linux::SysRoot;
use tempfile::TempDir;

/// 128 MiB, as on most x86 machines.
pub const BLOCK_PAGES: u64 = 0x8000;

pub struct FakeTree {
    dir: TempDir,
    pub root: SysRoot,
}

impl FakeTree {
    pub fn new() -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let root = SysRoot::under(dir.path());
        Self { dir, root }
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn proc(&self, path: &str, text: &str) -> PathBuf {
        write(self.root.proc.join(path), text)
    }

    pub fn sys(&self, path: &str, text: &str) -> PathBuf {
        write(self.root.sys.join(path), text)
    }

    /// The testbed's machine: nodes 0 and 1 with CPUs, node 2 slower and without.
    pub fn three_nodes() -> Self {
        let tree = Self::new();
        tree.sys("devices/system/memory/block_size_bytes", "8000000\n");
        tree.sys("devices/system/node/online", "0-2\n");
        tree.node(0, "0-1", 1 << 20, "10 20 17", 0..8);
        tree.node(1, "2-3", 1 << 20, "20 10 28", 8..16);
        tree.node(2, "", 2 << 20, "17 28 10", 32..48);
        tree.tier(4, "0-1");
        tree.tier(22, "2");
        tree
    }

    pub fn tier(&self, id: u32, nodelist: &str) {
        let path = format!("devices/virtual/memory_tiering/memory_tier{id}/nodelist");
        self.sys(&path, &format!("{nodelist}\n"));
    }

    pub fn node(
        &self,
        nid: u32,
        cpulist: &str,
        memory_kib: u64,
        distance: &str,
        blocks: std::ops::Range<u64>,
    ) {
        let dir = format!("devices/system/node/node{nid}");
        self.sys(&format!("{dir}/cpulist"), &format!("{cpulist}\n"));
        self.sys(&format!("{dir}/distance"), &format!("{distance}\n"));
        let meminfo =
            format!("Node {nid} MemTotal:       {memory_kib} kB\nNode {nid} MemFree: 1 kB\n");
        self.sys(&format!("{dir}/meminfo"), &meminfo);
        for block in blocks {
            self.block(nid, block, "online");
        }
    }

    pub fn block(&self, nid: u32, block: u64, state: &str) {
        let path = format!("devices/system/node/node{nid}/memory{block}/state");
        self.sys(&path, &format!("{state}\n"));
    }
}

fn write(path: PathBuf, text: &str) -> PathBuf {
    fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
    fs::write(&path, text).expect("a written file");
    path
}

/// The trimmed content of a file.
pub fn content(path: &Path) -> String {
    fs::read_to_string(path)
        .expect("a readable file")
        .trim()
        .to_owned()
}
