//! Where the records lie: in a mapped BPF array for the daemon, on the heap for a simulation.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Memory for a [`crate::Table`], zero at the start. Other CPUs and BPF programs may write it at
/// any time, so it is only ever seen as atomics.
pub trait Storage: Send + Sync {
    /// Records, packed into 32-bit words.
    fn words(&self) -> &[AtomicU32];
    /// One word per section.
    fn sections(&self) -> &[AtomicU64];
}

/// A storage with its slices looked up once: a report is a few nanoseconds, and two virtual calls
/// would be half of that.
pub(crate) struct Memory {
    words: NonNull<[AtomicU32]>,
    sections: NonNull<[AtomicU64]>,
    /// Keeps the slices alive.
    _storage: Box<dyn Storage>,
}

// SAFETY: the pointers are shared references into a storage that is itself `Send` and `Sync`.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub fn new(storage: Box<dyn Storage>) -> Memory {
        let (words, sections) = (storage.words().into(), storage.sections().into());
        Memory {
            words,
            sections,
            _storage: storage,
        }
    }

    #[inline]
    pub fn words(&self) -> &[AtomicU32] {
        // SAFETY: the storage is boxed, never moved out, never borrowed mutably, and lives as
        // long as `self`.
        unsafe { self.words.as_ref() }
    }

    #[inline]
    pub fn sections(&self) -> &[AtomicU64] {
        // SAFETY: as above.
        unsafe { self.sections.as_ref() }
    }
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
