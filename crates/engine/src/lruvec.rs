//! Lruvecs, as MGLRU lists them.

use pghot_hotness::Nid;

/// A memcg's pages on one node: a lruvec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The kernel's id of the memcg, as `lru_gen` shows it.
    pub memcg_id: u64,
    /// The node.
    pub nid: Nid,
}

/// What is listed of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Listed {
    /// The youngest generation.
    pub max_seq: u64,
    /// Base pages in all generations.
    pub pages: u64,
}
