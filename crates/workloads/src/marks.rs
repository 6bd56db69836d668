//! What workload and witness agree on.
//!
//! A workload maps its measured memory at [`REGION`], and one page at [`MARKS`]. A store into the
//! page is a mark: its place says which. QEMU 7.2 shows a plugin where an access goes, not what it
//! writes. A mark is exact where no other thread accesses the region meanwhile. A witness that
//! watches all programs takes marks from any of them.

use std::io;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::sys::page_bytes;

/// First byte of the measured memory: far from where the kernel puts anything by itself.
pub const REGION: u64 = 0x5000_0000_0000;

/// Bytes of the measured memory at most.
pub const REGION_MAX_BYTES: u64 = 1 << 40;

/// The page of marks, clear of the room that a region reserves before itself.
pub const MARKS: u64 = 0x4fff_ff00_0000;

/// From one mark to the next in that page.
pub const MARK_STRIDE: u64 = 64;

/// What a store into the page of marks says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// The measured phase begins: all counts start from zero.
    Start,
    /// It ends: accesses from now on do not count, and the report is written.
    Stop,
    /// A slice of it ends: the counts so far are kept for the report.
    Slice,
}

impl Mark {
    const ALL: [Mark; 3] = [Mark::Start, Mark::Stop, Mark::Slice];

    /// Where to store for this mark.
    pub fn address(self) -> u64 {
        MARKS + self as u64 * MARK_STRIDE
    }

    /// The mark at an address.
    pub fn at(address: u64) -> Option<Mark> {
        Mark::ALL.into_iter().find(|mark| mark.address() == address)
    }
}

/// The page of marks, mapped. A workload that is not watched has none, and marks nothing.
///
/// Kept as a number, since threads share it; a mark is one aligned store.
pub struct Marks(usize);

impl Marks {
    /// Maps it; the measured `memory` must be where the witness looks.
    pub fn open(memory: &Range<usize>) -> Result<Marks> {
        ensure!(
            memory.start as u64 == REGION,
            "the memory is not where the witness looks for it, at {REGION:#x}: something else is"
        );
        Self::open_alone()
    }

    /// Maps it, for a witness that watches everything.
    pub fn open_alone() -> Result<Marks> {
        // SAFETY: a new mapping at an address where there is none, or else it fails.
        let page = unsafe {
            libc::mmap(
                MARKS as *mut _,
                page_bytes(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
                -1,
                0,
            )
        };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error()).context("cannot map the page of marks");
        }
        Ok(Marks(page as usize))
    }

    /// Says it to the witness, if there is one.
    pub fn mark(&self, mark: Mark) {
        let offset = (mark.address() - MARKS) as usize;
        // SAFETY: inside our page, which is ours as long as `self` lives.
        unsafe { ptr::write_volatile((self.0 + offset) as *mut u64, 1) };
    }
}

impl Drop for Marks {
    fn drop(&mut self) {
        // SAFETY: our mapping, which nobody uses any more.
        unsafe { libc::munmap(self.0 as *mut _, page_bytes()) };
    }
}

/// Does `work` as a measured phase, with slices of this length. Without marks it is only done.
pub fn watched<R>(marks: Option<&Marks>, slice: Duration, work: impl FnOnce() -> R) -> R {
    let Some(marks) = marks else {
        return work();
    };
    let is_over = &AtomicBool::new(false);
    marks.mark(Mark::Start);
    let result = thread::scope(|scope| {
        let slicer = scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                thread::park_timeout(slice);
                if !is_over.load(Ordering::Relaxed) {
                    marks.mark(Mark::Slice);
                }
            }
        });
        let result = work();
        is_over.store(true, Ordering::Relaxed);
        slicer.thread().unpark();
        result
    });
    marks.mark(Mark::Stop);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_have_their_own_cache_lines_in_one_page() {
        for mark in Mark::ALL {
            assert_eq!(Mark::at(mark.address()), Some(mark));
            assert_eq!(Mark::at(mark.address() + 8), None);
            assert!(mark.address() < MARKS + 4096);
        }
        assert_eq!(Mark::at(REGION), None);
    }
}
