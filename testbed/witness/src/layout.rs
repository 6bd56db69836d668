//! From guest-physical addresses to nodes and pages.
//!
//! QEMU's `q35` puts RAM from address 0 on, and what does not fit below the hole for devices from 4
//! GiB on. Nodes follow each other in RAM.

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;

/// Where RAM goes on after the hole.
const HOLE_END: u64 = 4 << 30;

/// The nodes' memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Where each node ends, counted in RAM.
    ends: Vec<u64>,
    /// Where the hole begins.
    hole_start: u64,
}

impl Layout {
    /// Of nodes with so many bytes, in the order of their numbers.
    pub fn new(node_bytes: &[u64]) -> Layout {
        let mut end = 0;
        let ends: Vec<u64> = node_bytes
            .iter()
            .map(|bytes| {
                end += bytes;
                end
            })
            .collect();
        // pc_q35_init(): more than 2.75 GiB are split at a gigabyte's border.
        let hole_start = if end >= 0xb000_0000 {
            0x8000_0000
        } else {
            0xb000_0000
        };
        Layout { ends, hole_start }
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.ends.len()
    }

    /// Pages of all nodes.
    pub fn pages(&self) -> usize {
        let bytes = self.ends.last().copied().unwrap_or(0);
        (bytes / PAGE_BYTES) as usize
    }

    /// The node of an address, and the index of its page among all; none for what is no RAM of a
    /// node.
    pub fn find(&self, address: u64) -> Option<(usize, usize)> {
        let place = if address < self.hole_start {
            address
        } else {
            self.hole_start + address.checked_sub(HOLE_END)?
        };
        let node = self.ends.iter().position(|end| place < *end)?;
        Some((node, (place / PAGE_BYTES) as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_hole_for_devices_is_left_out() {
        let layout = Layout::new(&[GIB, GIB, GIB]);
        assert_eq!((layout.nodes(), layout.pages()), (3, 3 << 18));
        assert_eq!(layout.find(0), Some((0, 0)));
        assert_eq!(layout.find(GIB), Some((1, 1 << 18)));
        assert_eq!(layout.find(2 * GIB), None, "devices");
        assert_eq!(layout.find(4 * GIB - 1), None, "devices");
        assert_eq!(layout.find(4 * GIB + 5000), Some((2, (2 << 18) + 1)));
        assert_eq!(layout.find(5 * GIB), None);
    }

    #[test]
    fn little_memory_lies_below_the_hole() {
        let layout = Layout::new(&[GIB, GIB]);
        assert_eq!(layout.find(2 * GIB - 1), Some((1, (2 << 18) - 1)));
        assert_eq!(layout.find(2 * GIB), None);
        assert_eq!(layout.find(4 * GIB), None);
    }
}
