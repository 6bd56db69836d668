//! The free pages of a node, from its `meminfo`: a short text, however many CPUs there are. Its
//! `vmstat` says it as well, but the kernel adds up events of all CPUs for that.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::root::SysRoot;
use crate::topology::{PAGE_SHIFT, meminfo_kib};

/// Files of nodes, kept open.
#[derive(Debug)]
pub(crate) struct FreePages {
    nodes: PathBuf,
    files: BTreeMap<u32, File>,
}

impl FreePages {
    pub fn new(root: &SysRoot) -> FreePages {
        FreePages {
            nodes: root.sys.join("devices/system/node"),
            files: BTreeMap::new(),
        }
    }

    /// Those in its zones, without those in lists of CPUs; `None` if that cannot be read.
    pub fn of_node(&mut self, nid: u32) -> Option<u64> {
        let pages = self.read(nid);
        if pages.is_none() {
            // A node that is gone and comes back has another file.
            self.files.remove(&nid);
        }
        pages
    }

    fn read(&mut self, nid: u32) -> Option<u64> {
        if !self.files.contains_key(&nid) {
            let path = self.nodes.join(format!("node{nid}/meminfo"));
            self.files.insert(nid, File::open(path).ok()?);
        }
        let mut buffer = [0; 256];
        let length = self.files.get(&nid)?.read_at(&mut buffer, 0).ok()?;
        // The second line; the last is cut off.
        let text = std::str::from_utf8(&buffer[..length]).ok()?;
        Some(meminfo_kib(text, "MemFree:")? >> (PAGE_SHIFT - 10))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_node_may_go_and_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let root = SysRoot::under(dir.path());
        let mut free_pages = FreePages::new(&root);
        assert_eq!(free_pages.of_node(2), None);
        let node = root.sys.join("devices/system/node/node2");
        fs::create_dir_all(&node).unwrap();
        let text = "Node 2 MemTotal:        8388608 kB\nNode 2 MemFree:         4194304 kB\n";
        fs::write(node.join("meminfo"), text).unwrap();
        assert_eq!(free_pages.of_node(2), Some(1 << 20));
        fs::write(node.join("meminfo"), "Node 2 MemTotal: 0 kB\n").unwrap();
        assert_eq!(free_pages.of_node(2), None);
        fs::write(node.join("meminfo"), "Node 2 MemFree: x kB\n").unwrap();
        assert_eq!(free_pages.of_node(2), None);
    }
}
