//! Clearing the accessed bits of a process, by the way that stalls it least, and flushing its TLB.
//!
//! README.md of `pgtscan` says what each way costs and what was measured.

use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use pghot_linux::thread_cpu;

use super::walk::{YoungFolio, YoungPage};

/// Bytes of a base page.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// From clearing to flushing: time for some accessed bits to come back, without which there is
/// nothing to flush with.
pub(crate) const FLUSH_DELAY: Duration = Duration::from_millis(20);

/// If not even the daemon's own accessed bits can be cleared, an entry is assumed to take as long
/// as on a slow machine.
const START_NS_PER_ENTRY: u64 = 100;

/// MADV_COLD holds the mmap lock for reading only. One call at a time takes so much.
const COLD_BYTES: u64 = 32 << 20;

/// x86 flushes single pages up to this many (`tlb_single_page_flush_ceiling`), and the whole
/// address space beyond.
const SINGLE_FLUSH_PAGES: u64 = 33;
/// MADV_COLD ages what it covers; for the sake of a flush it may be so much.
const FLUSH_SPAN_MAX_PAGES: u64 = 4096;

/// How to clear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    /// `/proc/PID/clear_refs`: quick, all of the process, no TLB flush.
    ClearRefs,
    /// `process_madvise(MADV_COLD)`: slower, by ranges, flushes; leaves pages alone that several
    /// processes map, and moves the others towards the cold end of the LRU.
    Cold,
}

/// What clearing one process by [`Method::ClearRefs`] takes.
#[derive(Debug, Clone)]
pub(crate) struct ClearCost {
    ns_per_entry: u64,
}

impl ClearCost {
    /// Measured on this process itself, whose `clear_refs` is `own`, so that the first clearing of
    /// a program is no gamble. It has thousands of pages, which makes what a call costs besides
    /// them small, and counts that in.
    pub fn measure(own: io::Result<File>) -> ClearCost {
        let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let resident = statm.split_ascii_whitespace().nth(1);
        let entries = resident.and_then(|pages| pages.parse().ok()).unwrap_or(0);
        let before = thread_cpu();
        let ns_per_entry = match own.and_then(clear_refs) {
            Ok(()) if entries > 0 => (thread_cpu() - before).as_nanos() as u64 / entries,
            _ => START_NS_PER_ENTRY,
        };
        ClearCost { ns_per_entry }
    }

    /// Whether a process with so many present entries can be cleared within `stall_max`.
    /// `/proc/PID/clear_refs` holds the mmap lock for writing all the while: every page fault that
    /// maps something new, every mmap() of the process waits.
    pub fn is_short(&self, entries: u64, stall_max: Duration) -> bool {
        Duration::from_nanos(self.ns_per_entry.saturating_mul(entries)) <= stall_max
    }

    /// The other way was taken. What was once measured on a busy machine must not rule this way out
    /// for ever.
    pub fn forget(&mut self) {
        self.ns_per_entry -= self.ns_per_entry / 64;
    }

    /// Learns from one clearing; `cpu` is the thread's CPU time, for waiting stalls nobody.
    pub fn learn(&mut self, entries: u64, cpu: Duration) {
        let measured = cpu.as_nanos() as u64 / entries.max(1);
        self.ns_per_entry = (3 * self.ns_per_entry + measured) / 4;
    }
}

/// Clears the accessed bits of all pages of the process whose `/proc/PID/clear_refs` this is.
pub(crate) fn clear_refs(mut file: File) -> io::Result<()> {
    file.write_all(b"1")
}

/// A process, for as long as it is used; its id may be another's by then.
pub(crate) struct PidFd(OwnedFd);

impl PidFd {
    pub fn open(pid: i32) -> io::Result<PidFd> {
        // SAFETY: takes two numbers and touches no memory.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and ours alone.
        Ok(PidFd(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    /// Clears the accessed bits of a range and flushes what was set, in bounded calls.
    pub fn cold(&self, range: &Range<u64>) -> io::Result<()> {
        for start in (range.start..range.end).step_by(COLD_BYTES as usize) {
            let piece = libc::iovec {
                iov_base: start as *mut _,
                iov_len: COLD_BYTES.min(range.end - start) as usize,
            };
            // SAFETY: one iovec, of addresses in the other process, where nothing is written; the
            // advice changes no contents.
            let done = unsafe {
                libc::syscall(
                    libc::SYS_process_madvise,
                    self.0.as_raw_fd(),
                    &raw const piece,
                    1,
                    libc::MADV_COLD,
                    0,
                )
            };
            if done < 0 {
                let error = io::Error::last_os_error();
                // A hole, which the kernel steps over and then tells, or locked memory.
                if !matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EINVAL)) {
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

/// The smallest range that [`PidFd::cold`] must be given to flush the whole TLB of the process: two
/// young pages further apart than the kernel flushes one by one, or a young huge page. `start` is
/// where the walked range starts.
pub(crate) fn flush_range(
    start: u64,
    young: &[YoungPage],
    folios: &[YoungFolio],
) -> Option<Range<u64>> {
    let huge_pages = 512;
    let address = |page: u32| start + u64::from(page) * PAGE_BYTES;
    let huge = folios.iter().find(|folio| {
        folio.pages == huge_pages && address(folio.page).is_multiple_of(512 * PAGE_BYTES)
    });
    if let Some(folio) = huge {
        let first = address(folio.page);
        return Some(first..first + u64::from(folio.pages) * PAGE_BYTES);
    }
    let mut best: Option<(u32, u32)> = None;
    let mut first = 0;
    for last in young {
        // The latest page that is far enough before this one.
        while let Some(next) = young.get(first + 1)
            && u64::from(last.page.saturating_sub(next.page)) > SINGLE_FLUSH_PAGES
        {
            first += 1;
        }
        let (a, b) = (young[first].page, last.page);
        let span = b.saturating_sub(a);
        if u64::from(span) > SINGLE_FLUSH_PAGES && best.is_none_or(|(c, d)| span < d - c) {
            best = Some((a, b));
        }
    }
    let (a, b) = best.filter(|(a, b)| u64::from(b - a) <= FLUSH_SPAN_MAX_PAGES)?;
    Some(address(a)..address(b) + PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(pages: &[u32]) -> Vec<YoungPage> {
        let page = |page: &u32| YoungPage {
            pfn: 0,
            nid: 0,
            page: *page,
        };
        pages.iter().map(page).collect()
    }

    fn flush(young: &[u32]) -> Option<(u64, u64)> {
        let range = flush_range(0x10000, &pages(young), &[])?;
        Some(((range.start - 0x10000) >> 12, (range.end - 0x10000) >> 12))
    }

    #[test]
    fn the_closest_pair_that_flushes_all_is_taken() {
        assert_eq!(flush(&[]), None);
        assert_eq!(flush(&[5]), None);
        assert_eq!(flush(&[5, 20, 38]), None);
        assert_eq!(flush(&[5, 20, 39]), Some((5, 40)));
        assert_eq!(flush(&[0, 100, 110, 140, 145, 300]), Some((110, 146)));
        assert_eq!(flush(&[0, 100_000]), None, "too much for a flush");
    }

    #[test]
    fn a_huge_page_is_enough() {
        let folio = |page, pages| YoungFolio {
            pfn: 0,
            pages,
            page,
        };
        let range = flush_range(2 << 20, &[], &[folio(3, 16), folio(512, 512)]);
        assert_eq!(range, Some(4 << 20..6 << 20));
        assert_eq!(flush_range(2 << 20, &[], &[folio(1, 512)]), None);
    }

    #[test]
    fn a_slow_process_is_found_out() {
        let mut cost = ClearCost { ns_per_entry: 100 };
        let max = Duration::from_millis(10);
        assert!(cost.is_short(65536, max) && !cost.is_short(1 << 20, max));
        for _ in 0..8 {
            cost.learn(65536, Duration::from_millis(30));
        }
        assert!(!cost.is_short(65536, max) && cost.is_short(1000, max));
        (0..100).for_each(|_| cost.forget());
        assert!(cost.is_short(65536, max));
    }

    #[test]
    fn the_machine_is_measured() {
        let own = File::options().write(true).open("/proc/self/clear_refs");
        assert!(ClearCost::measure(own).ns_per_entry < 1_000_000);
    }
}
