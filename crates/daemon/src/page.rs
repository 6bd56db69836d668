//! Finds the page frame behind an address of a process, and the head of its folio.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use pghot_hotness::Pfn;
use pghot_linux::SysRoot;
use pghot_linux::pagemap::{Entry, Pagemap};
use pghot_linux::topology::PAGE_SHIFT;

/// Bit of a kpageflags entry: not the first page of its folio.
const COMPOUND_TAIL: u64 = 1 << 16;

/// Pages of the largest folio that NUMA balancing handles: a transparent huge page.
const FOLIO_PAGES_MAX: u64 = 512;

/// What lies at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapped {
    /// This page frame; `head` is the first one of its folio, which has the record.
    Present {
        /// The page itself.
        pfn: Pfn,
        /// The head page of its folio.
        head: Pfn,
    },
    /// Nothing in memory: swapped out, or being migrated.
    Swapped,
    /// Never touched, unmapped, or no address of this process at all.
    Absent,
}

/// The page could not be looked up.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// No such process.
    #[error("there is no process {pid}")]
    NoProcess {
        /// The process asked for.
        pid: u32,
    },
    /// The kernel hides page frame numbers.
    #[error("the daemon may not see page frame numbers: run it as root or with CAP_SYS_ADMIN")]
    Hidden,
    /// Reading failed.
    #[error("cannot read /proc/{pid}/pagemap: {source}")]
    Read {
        /// The process asked for.
        pid: u32,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Looks an address of a process up.
pub fn find(root: &SysRoot, pid: u32, address: u64) -> Result<Mapped, PageError> {
    let entry = match read_entry(root, pid, address) {
        Ok(entry) => entry,
        Err(source) if source.kind() == io::ErrorKind::NotFound => {
            return Err(PageError::NoProcess { pid });
        }
        Err(source) if source.raw_os_error() == Some(libc::ESRCH) => {
            return Err(PageError::NoProcess { pid });
        }
        Err(source) => return Err(PageError::Read { pid, source }),
    };
    match entry {
        Entry::Present(0) => Err(PageError::Hidden),
        Entry::Present(pfn) => Ok(Mapped::Present {
            pfn,
            // A kernel without /proc/kpageflags: the page is taken for its own head.
            head: head(root, pfn).unwrap_or(pfn),
        }),
        Entry::Swapped => Ok(Mapped::Swapped),
        Entry::Absent => Ok(Mapped::Absent),
    }
}

fn read_entry(root: &SysRoot, pid: u32, address: u64) -> io::Result<Entry> {
    let mut found = Entry::Absent;
    let pagemap = Pagemap::open(root, pid)?;
    pagemap.look_up(address >> PAGE_SHIFT, 1, &mut |entry| found = entry)?;
    Ok(found)
}

/// Folios are aligned to their size, so the head is the nearest page before that is no tail.
fn head(root: &SysRoot, pfn: Pfn) -> io::Result<Pfn> {
    let file = File::open(root.proc.join("kpageflags"))?;
    let first = pfn & !(FOLIO_PAGES_MAX - 1);
    let mut flags = vec![0; ((pfn - first + 1) * 8) as usize];
    file.read_exact_at(&mut flags, first * 8)?;
    let is_tail = |entry: &[u8]| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(entry);
        u64::from_ne_bytes(bytes) & COMPOUND_TAIL != 0
    };
    let head = flags.chunks_exact(8).rposition(|entry| !is_tail(entry));
    Ok(head.map_or(pfn, |index| first + index as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom, Write};

    fn write_entries(root: &SysRoot, file: &str, at: u64, entries: &[u64]) {
        let path = root.proc.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .unwrap();
        file.seek(SeekFrom::Start(at * 8)).unwrap();
        for entry in entries {
            file.write_all(&entry.to_ne_bytes()).unwrap();
        }
    }

    #[test]
    fn every_kind_of_entry_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let root = SysRoot::under(dir.path());
        let pagemap = [1 << 63 | 0x1234, 1 << 62 | 7, 0, 1 << 63];
        write_entries(&root, "9/pagemap", 4, &pagemap);
        let at = |page: u64| find(&root, 9, page << PAGE_SHIFT);
        let (pfn, head) = (0x1234, 0x1234);
        assert_eq!(
            at(4).unwrap(),
            Mapped::Present { pfn, head },
            "without kpageflags"
        );
        assert_eq!(at(5).unwrap(), Mapped::Swapped);
        assert_eq!(at(6).unwrap(), Mapped::Absent);
        assert!(matches!(at(7), Err(PageError::Hidden)));
        assert_eq!(at(1 << 50).unwrap(), Mapped::Absent, "no such address");
        assert!(matches!(
            find(&root, 8, 0),
            Err(PageError::NoProcess { pid: 8 })
        ));
    }

    #[test]
    fn the_head_of_a_large_folio_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = SysRoot::under(dir.path());
        // A 16-page folio at 0x1230 behind a base page.
        let mut flags = vec![COMPOUND_TAIL; 512];
        flags[0x2f] = 0;
        flags[0x30] = 1 << 15;
        write_entries(&root, "kpageflags", 0x1200, &flags);
        assert_eq!(head(&root, 0x1234).unwrap(), 0x1230);
        assert_eq!(head(&root, 0x1230).unwrap(), 0x1230);
        assert_eq!(head(&root, 0x122f).unwrap(), 0x122f);
    }
}
