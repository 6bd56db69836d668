//! Which page frames lie behind the addresses of a process, by `/proc/PID/pagemap`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use pghot_hotness::Pfn;

use crate::root::SysRoot;

/// Entries read at once.
const CHUNK: usize = 512;

/// Bits of an entry (Documentation/admin-guide/mm/pagemap.rst).
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const PFN_MASK: u64 = (1 << 55) - 1;

/// What lies at one page of an address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// This page frame; 0 if the kernel hides it.
    Present(Pfn),
    /// Nothing in memory: swapped out, or being migrated.
    Swapped,
    /// Never touched, or unmapped.
    Absent,
}

/// The page map of a process. It stays that of the address space which the process had when it was
/// opened, whoever gets the number later, and becomes empty when that ends.
#[derive(Debug)]
pub struct Pagemap(File);

impl Pagemap {
    /// Opens it; no such process is `NotFound`.
    pub fn open(root: &SysRoot, pid: u32) -> io::Result<Pagemap> {
        File::open(root.proc.join(format!("{pid}/pagemap"))).map(Pagemap)
    }

    /// Looks up so many pages from `first` on, an address / 4096, and hands over what lies there,
    /// in order; nothing for those behind the end of the address space.
    pub fn look_up(&self, first: u64, pages: u64, sink: &mut dyn FnMut(Entry)) -> io::Result<()> {
        let mut bytes = [0; 8 * CHUNK];
        for chunk in (first..first + pages).step_by(CHUNK) {
            let wanted = (first + pages - chunk).min(CHUNK as u64) as usize;
            let got = self.0.read_at(&mut bytes[..8 * wanted], chunk * 8)?;
            for entry in bytes[..got].chunks_exact(8) {
                sink(match entry.try_into().map_or(0, u64::from_ne_bytes) {
                    entry if entry & PRESENT != 0 => Entry::Present(entry & PFN_MASK),
                    entry if entry & SWAPPED != 0 => Entry::Swapped,
                    _ => Entry::Absent,
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_told_apart_and_the_end_is_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let root = SysRoot::under(dir.path());
        std::fs::create_dir_all(root.proc.join("9")).unwrap();
        let mut entries = vec![PRESENT | 0x1234, SWAPPED | 7, 0, PRESENT];
        entries.resize(1500, PRESENT | 5);
        let bytes: Vec<u8> = entries.into_iter().flat_map(u64::to_ne_bytes).collect();
        std::fs::write(root.proc.join("9/pagemap"), bytes).unwrap();
        let pagemap = Pagemap::open(&root, 9).unwrap();
        let look_up = |first, pages| {
            let mut found = Vec::new();
            let sink = &mut |entry| found.push(entry);
            pagemap.look_up(first, pages, sink).unwrap();
            found
        };
        let (hidden, swapped) = (Entry::Present(0), Entry::Swapped);
        let first = [Entry::Present(0x1234), swapped, Entry::Absent, hidden];
        assert_eq!(look_up(0, 4), first);
        assert_eq!(look_up(4, 3000), [Entry::Present(5); 1496]);
        assert!(look_up(1 << 50, 9).is_empty());
        let nobody = Pagemap::open(&root, 8).unwrap_err();
        assert_eq!(nobody.kind(), io::ErrorKind::NotFound);
    }
}
