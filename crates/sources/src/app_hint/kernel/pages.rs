//! From the ranges of a hint to the page frames behind them.

use std::io;

use pghot_hint::Range;
use pghot_hint::wire::LENGTH_MAX;
pub use pghot_hint::wire::Refusal;
use pghot_hotness::Pfn;
use pghot_linux::pagemap::{Entry, Pagemap};

const PAGE_SHIFT: u32 = 12;

/// No user address is higher, with five-level page tables either.
const USER_END: u64 = 1 << 56;

/// Pages of an address space that are still to be looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pages {
    /// The first one's address / 4096.
    first: u64,
    left: u64,
}

impl Pages {
    /// The pages that a range touches.
    pub fn of(range: Range) -> Result<Pages, Refusal> {
        let Range { address, length } = range;
        if length == 0 {
            return Err(Refusal::Empty);
        }
        if length > LENGTH_MAX {
            return Err(Refusal::TooLong);
        }
        if address >= USER_END || length > USER_END - address {
            return Err(Refusal::BadAddress);
        }
        let first = address >> PAGE_SHIFT;
        let last = (address + length - 1) >> PAGE_SHIFT;
        Ok(Pages {
            first,
            left: last - first + 1,
        })
    }

    /// How many.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Looks up to `limit` of them up, and returns how many were. Hands over the page frames of
    /// those that are in memory; 0 stands for one that the kernel hides.
    pub fn look_up(
        &mut self,
        pagemap: &Pagemap,
        limit: u64,
        sink: &mut dyn FnMut(Pfn),
    ) -> io::Result<u64> {
        let wanted = self.left.min(limit);
        pagemap.look_up(self.first, wanted, &mut |entry| {
            if let Entry::Present(pfn) = entry {
                sink(pfn);
            }
        })?;
        self.first += wanted;
        self.left -= wanted;
        Ok(wanted)
    }
}

#[cfg(test)]
mod tests {
    use pghot_linux::SysRoot;

    use super::*;

    fn pages(address: u64, length: u64) -> Result<u64, Refusal> {
        Pages::of(Range { address, length }).map(|pages| pages.left())
    }

    #[test]
    fn a_range_covers_the_pages_that_it_touches() {
        assert_eq!(pages(0x1000, 1), Ok(1));
        assert_eq!(pages(0x1fff, 1), Ok(1));
        assert_eq!(pages(0x1fff, 2), Ok(2));
        assert_eq!(pages(0x1000, 0x1000), Ok(1));
        assert_eq!(pages(0x1001, 0x1000), Ok(2));
        assert_eq!(pages(0, LENGTH_MAX), Ok(1 << 18));
        assert_eq!(pages(USER_END - 1, 1), Ok(1));
    }

    #[test]
    fn lies_are_refused() {
        assert_eq!(pages(0x1000, 0), Err(Refusal::Empty));
        for length in [LENGTH_MAX + 1, 1 << 60, u64::MAX] {
            assert_eq!(pages(0x1000, length), Err(Refusal::TooLong));
        }
        for address in [USER_END, 0xffff_8880_0000_0000, u64::MAX] {
            assert_eq!(pages(address, 1), Err(Refusal::BadAddress));
        }
        assert_eq!(pages(USER_END - 1, 2), Err(Refusal::BadAddress));
    }

    #[test]
    fn present_pages_are_found_in_steps() {
        let dir = tempfile::tempdir().unwrap();
        let root = SysRoot::under(dir.path());
        std::fs::create_dir_all(root.proc.join("9")).unwrap();
        let entries: Vec<u8> = (0..1500u64)
            .map(|n| if n % 3 == 0 { 1 << 63 | (n + 1) } else { n })
            .flat_map(u64::to_ne_bytes)
            .collect();
        std::fs::write(root.proc.join("9/pagemap"), entries).unwrap();
        let pagemap = Pagemap::open(&root, 9).unwrap();
        let (address, length) = (3 << 12, 3000 << 12);
        let mut pages = Pages::of(Range { address, length }).unwrap();
        let mut found = Vec::new();
        let mut steps = 0;
        while pages.left() > 0 {
            steps += 1;
            let n = pages
                .look_up(&pagemap, 700, &mut |pfn| found.push(pfn))
                .unwrap();
            assert!(n <= 700);
        }
        assert_eq!(steps, 5);
        let expected: Vec<u64> = (3..1500).step_by(3).map(|n| n + 1).collect();
        assert_eq!(found, expected);
    }
}
