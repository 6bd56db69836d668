//! Where the records lie: in a mapped BPF array for the daemon, on the heap for a simulation.

use std::sync::atomic::{AtomicU32, AtomicU64};

/// Memory for a [`crate::Table`], zero at the start. Other CPUs and BPF programs may write it at
/// any time, so it is only ever seen as atomics.
pub trait Storage: Send + Sync {
    /// Records, packed into 32-bit words.
    fn words(&self) -> &[AtomicU32];
    /// One word per section.
    fn sections(&self) -> &[AtomicU64];
}

/// Storage on the heap.
pub struct InMemory {
    words: Vec<AtomicU32>,
    sections: Vec<AtomicU64>,
}

impl InMemory {
    pub(crate) fn new(words: usize, sections: usize) -> InMemory {
        let mut storage = InMemory {
            words: Vec::new(),
            sections: Vec::new(),
        };
        storage.words.resize_with(words, AtomicU32::default);
        storage.sections.resize_with(sections, AtomicU64::default);
        storage
    }
}

impl Storage for InMemory {
    fn words(&self) -> &[AtomicU32] {
        &self.words
    }

    fn sections(&self) -> &[AtomicU64] {
        &self.sections
    }
}
