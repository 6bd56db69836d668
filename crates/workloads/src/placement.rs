//! On which node each single page is: exact, and dearer than [`crate::numa_maps`].

use std::ffi::c_void;

use anyhow::Result;

use crate::hot_set::HotSet;
use crate::list::IdList;
use crate::numa_maps::NodePages;
use crate::region::Region;
use crate::sys;

/// Where the region's pages are at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Pages per node; a page being moved right now is in none.
    pub nodes: NodePages,
    /// Hot pages on fast nodes.
    pub hot_fast: u64,
    /// Cold pages on fast nodes.
    pub cold_fast: u64,
}

/// Asks the kernel for the node of every page of one region; buffers are kept between queries.
pub struct PlacementQuery {
    addresses: Vec<*const c_void>,
    status: Vec<i32>,
}

impl PlacementQuery {
    /// A query over all pages of `region`.
    pub fn new(region: &Region) -> Self {
        let range = region.range();
        let addresses: Vec<_> = range
            .step_by(region.page_bytes())
            .map(|address| address as *const c_void)
            .collect();
        let status = vec![0; addresses.len()];
        Self { addresses, status }
    }

    /// The placement now, told apart by `hot_set` and `fast` nodes.
    pub fn run(&mut self, hot_set: &HotSet, fast: &IdList) -> Result<Placement> {
        sys::query_nodes(&self.addresses, &mut self.status)?;
        Ok(tally(&self.status, hot_set.is_hot(), fast))
    }
}

/// Counts statuses (a node, or a negative errno for a page that is nowhere) by heat and tier.
pub(crate) fn tally(status: &[i32], is_hot: &[bool], fast: &IdList) -> Placement {
    let mut placement = Placement::default();
    for (&status, &hot) in status.iter().zip(is_hot) {
        let Ok(node) = u32::try_from(status) else {
            continue;
        };
        *placement.nodes.entry(node).or_default() += 1;
        if fast.contains(node) {
            *(if hot {
                &mut placement.hot_fast
            } else {
                &mut placement.cold_fast
            }) += 1;
        }
    }
    placement
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_hot_from_cold_and_fast_from_slow() {
        let status = [0, 0, 1, 2, 2, -libc::ENOENT];
        let is_hot = [true, false, true, true, false, true];
        let placement = tally(&status, &is_hot, &"0-1".parse().unwrap());
        assert_eq!(placement.nodes, NodePages::from([(0, 2), (1, 1), (2, 2)]));
        assert_eq!((placement.hot_fast, placement.cold_fast), (2, 1));
    }
}
