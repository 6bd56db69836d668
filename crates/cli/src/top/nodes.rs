//! How much memory each node has, and how much of it is free: from sysfs, readable by everyone.

use std::fs;

use pghot_linux::SysRoot;
use pghot_linux::topology::{meminfo_kib, parse_range_list};

/// The memory of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeMemory {
    /// The node.
    pub nid: u32,
    /// All of it.
    pub total_bytes: u64,
    /// Of it, free.
    pub free_bytes: u64,
}

/// All nodes that have memory. What cannot be read is left out.
pub fn read(root: &SysRoot) -> Vec<NodeMemory> {
    let nodes = root.sys.join("devices/system/node");
    let online = fs::read_to_string(nodes.join("online")).unwrap_or_default();
    let nids = parse_range_list(online.trim()).unwrap_or_default();
    let memory = |nid: u32| {
        let text = fs::read_to_string(nodes.join(format!("node{nid}/meminfo"))).ok()?;
        let bytes = |name| meminfo_kib(&text, name)?.checked_mul(1024);
        let total_bytes = bytes("MemTotal:")?;
        let free_bytes = bytes("MemFree:").unwrap_or_default();
        (total_bytes > 0).then_some(NodeMemory {
            nid,
            total_bytes,
            free_bytes,
        })
    };
    nids.into_iter().filter_map(memory).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_with_memory_are_read_and_others_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let root = SysRoot::under(dir.path());
        assert_eq!(read(&root), []);
        let nodes = root.sys.join("devices/system/node");
        for (nid, text) in [
            (0, "Node 0 MemTotal:  2048 kB\nNode 0 MemFree:   512 kB\n"),
            (1, "Node 1 MemTotal:     0 kB\n"),
            (2, "rubbish"),
        ] {
            fs::create_dir_all(nodes.join(format!("node{nid}"))).unwrap();
            fs::write(nodes.join(format!("node{nid}/meminfo")), text).unwrap();
        }
        fs::write(nodes.join("online"), "0-3\n").unwrap();
        let expected = NodeMemory {
            nid: 0,
            total_bytes: 2 << 20,
            free_bytes: 1 << 19,
        };
        assert_eq!(read(&root), [expected]);
    }
}
