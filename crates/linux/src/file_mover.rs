//! Moves page cache that no process maps: through a mapping of our own that lasts for one batch.
//!
//! `move_pages(2)` knows pages by address only, so the file is opened, the pages are mapped, moved,
//! unmapped, and the file is closed. Only pages that are in the cache are mapped, so nothing is
//! read from a disk. No access is feigned either: the access time stays (`O_NOATIME`), and with
//! `MADV_RANDOM` the kernel neither reads ahead nor takes an unmapped page for an accessed one.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr;

use pghot_engine::{FileId, HotFolio, Outcome};
use pghot_hotness::Nid;

use crate::mounts::Mounts;
use crate::mover::Mover;
use crate::root::{ReadError, SysRoot};
use crate::topology::PAGE_SHIFT;

/// The most of a file that one mapping covers. It bounds the page tables: 4 KiB for each 2 MiB.
const WINDOW_BYTES: u64 = 1 << 30;

const PAGE_BYTES: u64 = 1 << PAGE_SHIFT;

/// Moves batches of one file each.
pub struct FileMover {
    mounts: Mounts,
    mover: Mover,
}

impl FileMover {
    /// Reads the mounts.
    pub fn open(root: &SysRoot) -> Result<FileMover, ReadError> {
        Ok(FileMover {
            mounts: Mounts::open(root)?,
            mover: Mover::new(),
        })
    }

    /// Moves folios of a file; `outcomes` gets one more entry for each, in order.
    pub fn move_batch(
        &mut self,
        id: &FileId,
        folios: &[HotFolio],
        target: Nid,
        outcomes: &mut Vec<Outcome>,
    ) {
        let file = match self.mounts.open_file(id) {
            Ok(file) => file,
            Err(outcome) => return outcomes.extend(folios.iter().map(|_| outcome)),
        };
        let mut order: Vec<usize> = (0..folios.len()).collect();
        order.sort_unstable_by_key(|&i| folios[i].address);
        let offsets: Vec<u64> = order.iter().map(|&i| folios[i].address).collect();
        let mut sorted = Vec::with_capacity(folios.len());
        for window in windows(&offsets) {
            self.move_window(&file, window, target, &mut sorted);
        }
        let first = outcomes.len();
        outcomes.resize(first + folios.len(), Outcome::Failed);
        for (place, outcome) in order.into_iter().zip(sorted) {
            outcomes[first + place] = outcome;
        }
    }

    /// Moves the pages at ascending `offsets`, which one mapping covers.
    fn move_window(
        &mut self,
        file: &File,
        offsets: &[u64],
        target: Nid,
        outcomes: &mut Vec<Outcome>,
    ) {
        let (Some(first), Some(last)) = (offsets.first(), offsets.last()) else {
            return;
        };
        let mapping = match Mapping::new(file, *first..*last + PAGE_BYTES) {
            Ok(mapping) => mapping,
            Err(error) => {
                let outcome = match error.raw_os_error() {
                    Some(libc::ENODEV | libc::EACCES) => Outcome::Unopenable,
                    _ => Outcome::Failed,
                };
                return outcomes.extend(offsets.iter().map(|_| outcome));
            }
        };
        let from = outcomes.len();
        // Until a page is found in the cache: reclaimed or truncated since it was hot.
        outcomes.resize(from + offsets.len(), Outcome::Gone);
        let cached = mapping.cached(offsets);
        let mut mapped = Vec::with_capacity(cached.len());
        let cached_offsets: Vec<u64> = cached.iter().map(|&i| offsets[i]).collect();
        for run in runs(&cached_offsets) {
            let bytes = cached_offsets[run.start]..cached_offsets[run.end - 1] + PAGE_BYTES;
            match mapping.populate(&bytes) {
                Ok(()) => mapped.extend(cached[run].iter().copied()),
                // Truncated a moment ago.
                Err(error) if error.raw_os_error() == Some(libc::EFAULT) => {}
                Err(_) => cached[run]
                    .iter()
                    .for_each(|&i| outcomes[from + i] = Outcome::Failed),
            }
        }
        let addresses: Vec<u64> = mapped
            .iter()
            .map(|&i| mapping.address(offsets[i]))
            .collect();
        let mut statuses = Vec::with_capacity(addresses.len());
        const THIS_PROCESS: libc::pid_t = 0;
        self.mover
            .move_batch(THIS_PROCESS, &addresses, target, &mut statuses);
        for (i, status) in mapped.into_iter().zip(statuses) {
            outcomes[from + i] = status.outcome();
        }
    }
}

/// Cuts ascending offsets into pieces that one mapping can cover.
fn windows(offsets: &[u64]) -> impl Iterator<Item = &[u64]> {
    let mut rest = offsets;
    std::iter::from_fn(move || {
        let end = rest.first()? + WINDOW_BYTES;
        let (window, tail) = rest.split_at(rest.partition_point(|&offset| offset < end));
        rest = tail;
        Some(window)
    })
}

/// Index ranges of pages that follow each other without a gap.
fn runs(offsets: &[u64]) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut start = 0;
    offsets
        .chunk_by(|a, b| a + PAGE_BYTES == *b)
        .map(move |run| {
            let range = start..start + run.len();
            start = range.end;
            range
        })
}

/// A part of a file in our address space. Its content is never looked at.
struct Mapping {
    base: *mut libc::c_void,
    file_bytes: Range<u64>,
}

impl Mapping {
    fn new(file: &File, file_bytes: Range<u64>) -> io::Result<Mapping> {
        let length = (file_bytes.end - file_bytes.start) as usize;
        let offset = libc::off_t::try_from(file_bytes.start).map_err(io::Error::other)?;
        // SAFETY: a new mapping where the kernel likes; nothing existing is touched.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                offset,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapping = Mapping { base, file_bytes };
        mapping.advise(&mapping.file_bytes, libc::MADV_RANDOM)?;
        // Or khugepaged may merge base pages of the file, hot and cold, because they are mapped.
        // A kernel without huge pages refuses, which is as good.
        let _ = mapping.advise(&mapping.file_bytes, libc::MADV_NOHUGEPAGE);
        Ok(mapping)
    }

    /// The address of an offset of the file.
    fn address(&self, offset: u64) -> u64 {
        self.base as u64 + (offset - self.file_bytes.start)
    }

    fn advise(&self, bytes: &Range<u64>, advice: libc::c_int) -> io::Result<()> {
        let address = self.address(bytes.start) as *mut libc::c_void;
        let length = (bytes.end - bytes.start) as usize;
        // SAFETY: the range lies in this mapping, to whose memory nothing refers.
        match unsafe { libc::madvise(address, length, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Enters pages into our page table, which does not count as their access by `page_cache`: it
    /// looks at unmapped pages only. Since Linux 5.14.
    fn populate(&self, bytes: &Range<u64>) -> io::Result<()> {
        self.advise(bytes, libc::MADV_POPULATE_READ)
    }

    /// Indices of those offsets whose pages are in the page cache.
    fn cached(&self, offsets: &[u64]) -> Vec<usize> {
        let mut in_cache = Vec::with_capacity(offsets.len());
        let mut flags = Vec::new();
        for run in runs(offsets) {
            flags.clear();
            flags.resize(run.len(), 0u8);
            let address = self.address(offsets[run.start]) as *mut libc::c_void;
            let length = run.len() << PAGE_SHIFT;
            // SAFETY: the range lies in this mapping, and there is one byte for each page.
            let result = unsafe { libc::mincore(address, length, flags.as_mut_ptr()) };
            if result == 0 {
                let cached = run.zip(&flags).filter(|(_, flag)| **flag & 1 != 0);
                in_cache.extend(cached.map(|(i, _)| i));
            }
        }
        in_cache
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let length = (self.file_bytes.end - self.file_bytes.start) as usize;
        // SAFETY: we mapped this range, and nothing refers to its memory.
        unsafe { libc::munmap(self.base, length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_handled_together() {
        let offsets = [0, 4096, 8192, 20480, 28672, 32768];
        assert_eq!(runs(&offsets).collect::<Vec<_>>(), [0..3, 3..4, 4..6]);
        assert_eq!(runs(&[]).count(), 0);
    }

    #[test]
    fn a_mapping_covers_a_bounded_part() {
        let offsets = [5 << 12, 1 << 30, (1 << 30) + (5 << 12), 1 << 40];
        let windows: Vec<_> = windows(&offsets).map(<[u64]>::len).collect();
        assert_eq!(windows, [2, 1, 1]);
    }

    #[test]
    fn only_cached_pages_are_found() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[1; 8192], 16384).unwrap();
        let mapping = Mapping::new(&file, 0..2 << 20).unwrap();
        let offsets = [0, 4096, 16384, 20480, 1 << 20];
        assert_eq!(mapping.cached(&offsets), [2, 3]);
        assert!(mapping.populate(&(16384..24576)).is_ok());
        let beyond = mapping.populate(&(1 << 20..(1 << 20) + 4096)).unwrap_err();
        assert_eq!(beyond.raw_os_error(), Some(libc::EFAULT));
    }
}
