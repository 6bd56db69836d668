//! The top tier's free memory, as far as it decides whether the kernel promotes in the hint fault,
//! and whether reads of page cache are watched.

use pghot_hotness::Nid;
use pghot_linux::SysRoot;
use pghot_linux::topology::Topology;
use pghot_linux::watermarks::Watermarks;

/// The top tier's watermarks, open.
pub struct FreeSpace {
    top_tier: Vec<Nid>,
    /// `None` if this machine does not show them: then nothing is known, ever.
    watermarks: Option<Watermarks>,
}

impl FreeSpace {
    /// Opens what is read at each look.
    pub fn open(root: &SysRoot) -> FreeSpace {
        let topology = Topology::read(root);
        let top_tier = topology.map(|t| t.top_tier_nodes().map(|node| node.nid).collect());
        FreeSpace {
            top_tier: top_tier.unwrap_or_default(),
            watermarks: Watermarks::open(root).ok(),
        }
    }

    /// Free pages of the top tier above its watermarks, and all of its pages, as they were at the
    /// last look; nothing if nothing could be read.
    pub fn room_pages(&self) -> (u64, u64) {
        let of_node = |watermarks: &Watermarks, nid: Nid| {
            let zones = watermarks.zones().iter().filter(|zone| zone.nid == nid);
            let all: u64 = zones.map(|zone| zone.managed_pages).sum();
            (watermarks.room_pages(nid, None), all)
        };
        let nodes = self.watermarks.iter().flat_map(|watermarks| {
            let top_tier = self.top_tier.iter();
            top_tier.map(move |nid| of_node(watermarks, *nid))
        });
        nodes.fold((0, 0), |sum, node| (sum.0 + node.0, sum.1 + node.1))
    }

    /// Of each top-tier node, whether the kernel's shortcut is open there; `None` if nothing can be
    /// read.
    pub fn look(&mut self) -> Option<Vec<bool>> {
        let watermarks = self.watermarks.as_mut()?;
        watermarks.refresh().ok()?;
        let top_tier = self.top_tier.iter();
        Some(
            top_tier
                .map(|nid| watermarks.free_space_shortcut(*nid))
                .collect(),
        )
    }
}
