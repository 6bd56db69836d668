//! The daemon's own memory: near, and there when it is needed. What is moved for others while the
//! top tier is full must not wait for pages of the mover.

use std::io;

use pghot_hotness::Nid;
use rustix::mm::{MlockAllFlags, mlockall};

use crate::topology::Topology;

/// MPOL_PREFERRED_MANY of linux/mempolicy.h, since Linux 5.15.
const PREFERRED_MANY: libc::c_int = 5;

/// Has this thread, and those that it starts, prefer memory of the top tier: for their heaps and
/// stacks, and for what the kernel takes for them, such as the maps of the records.
pub fn prefer_top_tier(topology: &Topology) -> io::Result<()> {
    let nids = topology.top_tier_nodes().map(|node| node.nid);
    let mask = node_mask(nids);
    // The kernel counts one bit less than it is told.
    let bits = mask.len() as u64 * u64::from(u64::BITS) + 1;
    // SAFETY: the kernel reads the mask, which has as many bits as it is told.
    let result =
        unsafe { libc::syscall(libc::SYS_set_mempolicy, PREFERRED_MANY, mask.as_ptr(), bits) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Locks what is mapped now, page by page as it is used: programs, heap, and the stacks of threads
/// that run. Locked pages are neither swapped out nor demoted. What is mapped later is not: a part
/// of it must not be locked, such as files whose page cache is moved and pages that are to age.
pub fn lock() -> io::Result<()> {
    Ok(mlockall(MlockAllFlags::CURRENT | MlockAllFlags::ONFAULT)?)
}

fn node_mask(nids: impl Iterator<Item = Nid>) -> Vec<u64> {
    let mut mask = vec![0];
    for nid in nids {
        let (word, bit) = (nid as usize / 64, nid % 64);
        if mask.len() <= word {
            mask.resize(word + 1, 0);
        }
        mask[word] |= 1 << bit;
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_its_bit() {
        assert_eq!(node_mask([].into_iter()), [0]);
        assert_eq!(node_mask([0, 1, 63].into_iter()), [1 << 63 | 3]);
        assert_eq!(node_mask([0, 65].into_iter()), [1, 2]);
    }
}
