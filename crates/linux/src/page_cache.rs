//! How much page cache a node has.

use crate::root::SysRoot;
use crate::topology::{PAGE_SHIFT, meminfo_kib};

/// Pages of files in the node's page cache, whether somebody maps them or not, without those of
/// tmpfs and shared memory; `None` if that cannot be read.
pub fn page_cache_pages(root: &SysRoot, nid: u32) -> Option<u64> {
    let path = format!("devices/system/node/node{nid}/meminfo");
    let text = std::fs::read_to_string(root.sys.join(path)).ok()?;
    let pages = |name| Some(meminfo_kib(&text, name)? >> (PAGE_SHIFT - 10));
    Some(pages("FilePages:")?.saturating_sub(pages("Shmem:")?))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn shared_memory_is_not_page_cache() {
        let dir = tempfile::tempdir().unwrap();
        let root = SysRoot::under(dir.path());
        let node = root.sys.join("devices/system/node/node2");
        fs::create_dir_all(&node).unwrap();
        assert_eq!(page_cache_pages(&root, 2), None);
        let write = |text| fs::write(node.join("meminfo"), text).unwrap();
        write("Node 2 FilePages:      81920 kB\nNode 2 Mapped: 8 kB\nNode 2 Shmem: 40960 kB\n");
        assert_eq!(page_cache_pages(&root, 2), Some(10_240));
        write("Node 2 FilePages:      40960 kB\nNode 2 Shmem: 81920 kB\n");
        assert_eq!(
            page_cache_pages(&root, 2),
            Some(0),
            "read at different times"
        );
        write("Node 2 FilePages:      40960 kB\n");
        assert_eq!(page_cache_pages(&root, 2), None);
    }
}
