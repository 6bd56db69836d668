//! Whether the top tier has so much free memory that the kernel promotes in the hint fault.

use std::time::{Duration, Instant};

use pghot_hotness::Nid;
use pghot_linux::SysRoot;
use pghot_linux::topology::Topology;
use pghot_linux::watermarks::Watermarks;

/// Between two looks. Free memory changes by gigabytes in seconds at most.
const INTERVAL: Duration = Duration::from_secs(1);

/// The top tier's watermarks, open.
pub struct FreeSpace {
    top_tier: Vec<Nid>,
    /// `None` if this machine does not show them: then nothing is known, ever.
    watermarks: Option<Watermarks>,
    looked: Option<Instant>,
}

impl FreeSpace {
    /// Opens what is read at each look.
    pub fn open(root: &SysRoot) -> FreeSpace {
        let topology = Topology::read(root);
        let top_tier = topology.map(|t| t.top_tier_nodes().map(|node| node.nid).collect());
        FreeSpace {
            top_tier: top_tier.unwrap_or_default(),
            watermarks: Watermarks::open(root).ok(),
            looked: None,
        }
    }

    /// Whether the kernel's shortcut is open on some node; `None` if it is not time to look yet, or
    /// if nothing can be read.
    pub fn look(&mut self, now: Instant) -> Option<bool> {
        if self
            .looked
            .is_some_and(|looked| now.duration_since(looked) < INTERVAL)
        {
            return None;
        }
        self.looked = Some(now);
        let watermarks = self.watermarks.as_mut()?;
        watermarks.refresh().ok()?;
        let mut top_tier = self.top_tier.iter();
        Some(top_tier.any(|nid| watermarks.free_space_shortcut(*nid)))
    }
}
