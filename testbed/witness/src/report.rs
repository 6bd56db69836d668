//! The JSON file that the witness writes.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::counts::{Moves, NodeCounts};

/// What was seen between the marks `Start` and `Stop`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Whether the phase was ended by its mark; if not, the guest ended first.
    pub is_complete: bool,
    /// The node of each vCPU.
    pub cpu_nodes: Vec<u64>,
    /// By vCPU, then by node of the memory.
    pub vcpus: Vec<Vec<NodeCounts>>,
    /// By node, of all vCPUs.
    pub nodes: Vec<NodeCounts>,
    /// Accesses whose node nobody knows; should be 0.
    pub unknown: u64,
    /// Pages that were found elsewhere than at their access before.
    pub moves: Moves,
    /// At the end of each slice, from the start of the phase.
    pub slices: Vec<Slice>,
    /// Pages of the measured memory, from its first to the last that was accessed: how often.
    pub page_accesses: Vec<u32>,
    /// The node of each at its last access; null for never.
    pub page_nodes: Vec<Option<u8>>,
    /// By node, how often each physical page was accessed; those that were not are left out.
    pub physical_accesses: Vec<Vec<u32>>,
}

/// Counts at a moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// The emulator's time since the start, in ns: the host's, divided by the dilation.
    pub host_ns: u64,
    /// By node, since the start.
    pub nodes: Vec<NodeCounts>,
}

impl Report {
    /// Writes it in one piece: whoever finds the file finds all of it.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let unfinished = path.with_extension("part");
        fs::write(&unfinished, serde_json::to_vec(self)?)?;
        fs::rename(unfinished, path)
    }
}
