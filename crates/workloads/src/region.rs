//! The memory that a workload touches: mapped, faulted in on its home node, stamped, verified.

use std::fs::{self, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use anyhow::{Context, Result, bail, ensure};

use crate::marks;
use crate::random::mix;
use crate::sys;

/// Bytes of a huge page that one page-middle-directory entry maps.
const HUGE_BYTES: usize = 2 << 20;

/// What kind of memory the region is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Backing {
    /// Private anonymous base pages, even where huge pages are always on.
    Anon,
    /// Private anonymous memory, transparent huge pages asked for.
    Thp,
    /// Shared memory on tmpfs (a memfd), base pages; NUMA balancing never scans it.
    // The kernel scans a tmpfs mapping only if the file itself has a policy that asks for it
    // (vma_policy_mof), so there are no hint faults here, only other signs of heat.
    Shared,
    /// Shared anonymous memory, as forked processes share it: tmpfs without a file to see.
    SharedAnon,
    /// A System V shared memory segment, as older databases use it.
    SysV,
    /// A shared mapping of a file without a name in `--dir`: page cache that is mapped.
    File,
}

/// A mapped region; its first word of every page is a stamp, the other words are free to use.
pub struct Region {
    /// All that was mapped: the region and inaccessible room around it, which keeps the kernel
    /// from merging our mapping with a neighbour and counting the neighbour's pages as ours.
    reserved: Range<usize>,
    /// The usable part.
    range: Range<usize>,
    page_bytes: usize,
    backing: Backing,
    /// They follow each other, and together are the range; none if pages come from anywhere.
    parts: Vec<Part>,
}

/// A piece of a region, from one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where its pages come from.
    pub home: u32,
    /// How much of it.
    pub bytes: usize,
}

impl Region {
    /// Maps `bytes` of memory for pages of node `home`; no page exists yet. A file lies in `dir`.
    pub fn map(bytes: usize, backing: Backing, home: u32, dir: &Path) -> Result<Self> {
        Self::map_parts(&[Part { home, bytes }], backing, dir)
    }

    /// The same with pages of several nodes, one part after the other.
    pub fn map_parts(parts: &[Part], backing: Backing, dir: &Path) -> Result<Self> {
        for part in parts {
            ensure_room(part.home, part.bytes)?;
        }
        let bytes = parts.iter().map(|part| part.bytes).sum();
        Self::map_all(bytes, parts, backing, dir)
    }

    /// The same with pages of no node in particular: they come from where they are first touched.
    pub fn map_anywhere(bytes: usize, backing: Backing, dir: &Path) -> Result<Self> {
        Self::map_all(bytes, &[], backing, dir)
    }

    fn map_all(bytes: usize, parts: &[Part], backing: Backing, dir: &Path) -> Result<Self> {
        if backing == Backing::Thp {
            ensure_thp_possible()?;
        }
        let page_bytes = sys::page_bytes();
        let reserved_bytes = bytes
            .checked_add(2 * HUGE_BYTES)
            .with_context(|| format!("{bytes} bytes do not fit in the address space"))?;
        let reserved = map_anon(reserved_bytes).context("cannot reserve address space")?;
        // Room of one page at least before, and up to a huge page: the start is aligned for THP.
        let start = (reserved.start + page_bytes).next_multiple_of(HUGE_BYTES);
        let region = Self {
            reserved,
            range: start..start + bytes,
            page_bytes,
            backing,
            parts: parts.to_vec(),
        };
        region
            .open(dir)
            .with_context(|| format!("cannot map {} MiB", bytes >> 20))?;
        Ok(region)
    }

    /// Makes the reserved range usable, of the kind wanted.
    fn open(&self, dir: &Path) -> Result<()> {
        if self.backing == Backing::SysV {
            return Ok(attach_segment(&self.range)?);
        }
        let file = match self.backing {
            Backing::Shared => Some(memfd(self.range.len())?),
            Backing::File => Some(
                unnamed_file(dir, self.range.len())
                    .with_context(|| format!("cannot make a file in {}", dir.display()))?,
            ),
            _ => None,
        };
        let kind = if file.is_some() || self.backing == Backing::SharedAnon {
            libc::MAP_SHARED
        } else {
            libc::MAP_PRIVATE
        };
        let anonymous = if file.is_some() {
            0
        } else {
            libc::MAP_ANONYMOUS
        };
        // SAFETY: MAP_FIXED replaces a part of our own reservation, which nothing refers to yet.
        let address = unsafe {
            libc::mmap(
                self.range.start as *mut _,
                self.range.len(),
                libc::PROT_READ | libc::PROT_WRITE,
                kind | anonymous | libc::MAP_FIXED | libc::MAP_NORESERVE,
                file.as_ref().map_or(-1, AsRawFd::as_raw_fd),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error().into());
        }
        let advice = if self.backing == Backing::Thp {
            libc::MADV_HUGEPAGE
        } else {
            libc::MADV_NOHUGEPAGE
        };
        // SAFETY: advice on the mapping just made. It fails on a kernel without huge pages: then
        // there is nothing to advise, and THP backing was refused before.
        unsafe { libc::madvise(address, self.range.len(), advice) };
        Ok(())
    }

    /// Faults every page in on its home node and writes its stamp. The mapping, or for a file this
    /// thread, stays bound there, so that nothing moves before [`Region::release`].
    pub fn populate(&self, seed: u64) -> Result<()> {
        let is_file = self.backing == Backing::File;
        if is_file {
            // Reading ahead makes large folios (ext4, since 6.16), of which a hot page makes all
            // its neighbours hot.
            self.advise(libc::MADV_RANDOM)?;
        }
        let mut start = self.range.start;
        for part in &self.parts {
            let range = start..start + part.bytes;
            match is_file {
                // Page cache is placed by the policy of whoever reads it in, not by the mapping's.
                true => sys::allocate_from(Some(part.home))?,
                false => sys::bind_to_node(&range, part.home)?,
            }
            let page_of = |address: usize| ((address - self.range.start) / self.page_bytes) as u32;
            for page in page_of(range.start)..page_of(range.end) {
                self.stamp_word(page)
                    .store(stamp(seed, page), Ordering::Relaxed);
            }
            start = range.end;
        }
        if is_file {
            // The kernel's aging passes over memory that is accessed at random.
            self.advise(libc::MADV_NORMAL)?;
        }
        Ok(())
    }

    fn advise(&self, advice: libc::c_int) -> Result<()> {
        // SAFETY: advice on our own mapping, that changes no contents.
        match unsafe { libc::madvise(self.range.start as *mut _, self.range.len(), advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()).context("cannot advise the kernel"),
        }
    }

    /// Takes the policy off again, on the thread that populated: NUMA balancing skips memory
    /// that has one.
    pub fn release(&self) -> Result<()> {
        match self.backing {
            Backing::File => sys::allocate_from(None),
            _ => sys::unbind(&self.range),
        }
    }

    /// Maps all of it a second time, to the same place and with all its pages: who goes through the
    /// mappings of the memory in the order in which they were made meets this one last.
    pub fn map_last(&self) -> Result<()> {
        let away = map_anon(self.range.len()).context("cannot reserve address space")?;
        for (from, to) in [
            (self.range.start, away.start),
            (away.start, self.range.start),
        ] {
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            let bytes = self.range.len();
            // SAFETY: our own mapping goes to our own reservation and back, and the borrow of
            // `self` keeps others from using it meanwhile: there are no threads yet.
            let moved = unsafe { libc::mremap(from as *mut _, bytes, bytes, flags, to) };
            if moved == libc::MAP_FAILED {
                return Err(io::Error::last_os_error()).context("cannot move the mapping");
            }
        }
        Ok(())
    }

    /// Gives back the first page of each unit, with what it held.
    pub fn make_holes(&self) -> Result<()> {
        let unit_bytes = self.unit_pages() as usize * self.page_bytes;
        for start in self.range().step_by(unit_bytes) {
            // SAFETY: a page of our own mapping; from here on who reads it finds zeroes.
            let given =
                unsafe { libc::madvise(start as *mut _, self.page_bytes, libc::MADV_DONTNEED) };
            if given != 0 {
                return Err(io::Error::last_os_error()).context("cannot give back a page");
            }
        }
        Ok(())
    }

    /// Pages whose stamp is not what [`Region::populate`] wrote: their contents were lost.
    pub fn damaged_pages(&self, seed: u64) -> u64 {
        self.damaged_among(seed, 0..self.pages())
    }

    /// The same of these pages alone.
    pub fn damaged_among(&self, seed: u64, pages: impl Iterator<Item = u32>) -> u64 {
        let damaged =
            |page: &u32| self.stamp_word(*page).load(Ordering::Relaxed) != stamp(seed, *page);
        pages.filter(damaged).count() as u64
    }

    /// The region as 8-byte words, page after page. Word 0 of a page is its stamp.
    pub fn words(&self) -> &[AtomicU64] {
        let words = self.range.len() / size_of::<AtomicU64>();
        // SAFETY: the range is mapped readable and writable as long as `self` lives, is aligned,
        // any bits are a u64, and nothing but these atomics touches it.
        unsafe { std::slice::from_raw_parts(self.range.start as *const AtomicU64, words) }
    }

    /// The same as 4-byte words. What is used in one size must not be used in the other meanwhile.
    pub fn half_words(&self) -> &[AtomicU32] {
        let words = self.range.len() / size_of::<AtomicU32>();
        // SAFETY: as for `words`; who uses both views keeps to places of their own.
        unsafe { std::slice::from_raw_parts(self.range.start as *const AtomicU32, words) }
    }

    /// The address range, in bytes.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Bytes of a base page.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Words of a base page.
    pub fn page_words(&self) -> usize {
        self.page_bytes / size_of::<AtomicU64>()
    }

    /// Base pages in the region.
    pub fn pages(&self) -> u32 {
        (self.range.len() / self.page_bytes) as u32
    }

    /// Base pages that are meant to move together.
    pub fn unit_pages(&self) -> u32 {
        match self.backing {
            Backing::Thp => (HUGE_BYTES / self.page_bytes) as u32,
            _ => 1,
        }
    }

    fn stamp_word(&self, page: u32) -> &AtomicU64 {
        &self.words()[page as usize * self.page_words()]
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: we mapped this range, and whoever borrowed its words cannot outlive `self`.
        unsafe { libc::munmap(self.reserved.start as *mut _, self.reserved.len()) };
    }
}

/// What the first word of `page` holds.
fn stamp(seed: u64, page: u32) -> u64 {
    mix(seed ^ mix(u64::from(page) + 1))
}

/// Reserves addresses without access rights, so that the region begins where a witness looks for it
/// if nothing else is there.
fn map_anon(bytes: usize) -> io::Result<Range<usize>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let hint = marks::REGION as usize - HUGE_BYTES;
    // SAFETY: a new mapping where the kernel likes; nothing existing is touched.
    let address = unsafe { libc::mmap(hint as *mut _, bytes, libc::PROT_NONE, flags, -1, 0) };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(address as usize..address as usize + bytes)
}

/// A new segment in the place of this range of our own, gone with its last mapping.
fn attach_segment(range: &Range<usize>) -> io::Result<()> {
    // SAFETY: makes a segment, and touches no memory.
    let id = unsafe { libc::shmget(libc::IPC_PRIVATE, range.len(), libc::IPC_CREAT | 0o600) };
    sys::check(id.into())?;
    // SAFETY: it replaces a part of our own reservation, which nothing refers to yet.
    let address = unsafe { libc::shmat(id, range.start as *const _, libc::SHM_REMAP) };
    let attached = match address.addr() == range.start {
        true => Ok(()),
        false => Err(io::Error::last_os_error()),
    };
    // SAFETY: the segment is ours; it stays as long as it is attached.
    unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) };
    attached
}

/// A file on tmpfs that has no name and goes away with its mapping.
fn memfd(bytes: usize) -> io::Result<OwnedFd> {
    // SAFETY: the name is a C string that lives for ever.
    let fd = unsafe { libc::memfd_create(c"hotset".as_ptr(), libc::MFD_CLOEXEC) };
    sys::check(fd.into())?;
    // SAFETY: the descriptor is new and ours alone.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the descriptor is open; only the file's length changes.
    sys::check(unsafe { libc::ftruncate(file.as_raw_fd(), bytes as libc::off_t) }.into())?;
    Ok(file)
}

/// A file in `dir` that has no name and goes away with its mapping.
fn unnamed_file(dir: &Path, bytes: usize) -> io::Result<OwnedFd> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .open(dir)?;
    file.set_len(bytes as u64)?;
    Ok(file.into())
}

fn ensure_thp_possible() -> Result<()> {
    let enabled = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
        .context("this kernel has no transparent huge pages")?;
    ensure!(
        !enabled.contains("[never]"),
        "transparent huge pages are off (/sys/kernel/mm/transparent_hugepage/enabled)"
    );
    Ok(())
}

/// Refuses what would not fit: binding to a full node ends in the OOM killer, not in an error.
pub fn ensure_room(node: u32, bytes: usize) -> Result<()> {
    let path = format!("/sys/devices/system/node/node{node}/meminfo");
    let Ok(meminfo) = fs::read_to_string(&path) else {
        bail!("node {node} does not exist or has no memory ({path})");
    };
    let room_kib = room_kib(&meminfo);
    ensure!(
        room_kib >= bytes as u64 >> 10,
        "node {node} has room for {} MiB, {} MiB are needed",
        room_kib >> 10,
        bytes >> 20
    );
    Ok(())
}

/// Free memory and page cache of a node's `meminfo`; the kernel gives up the latter for us.
fn room_kib(meminfo: &str) -> u64 {
    let is_room = |name: &str| matches!(name, "MemFree:" | "Active(file):" | "Inactive(file):");
    meminfo
        .lines()
        .filter_map(|line| {
            // Node 0 MemFree:        12345 kB
            let mut fields = line.split_ascii_whitespace().skip(2);
            fields.next().filter(|name| is_room(name))?;
            fields.next()?.parse::<u64>().ok()
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_free_memory_and_page_cache() {
        let text = "Node 2 MemTotal: 900 kB\nNode 2 MemFree: 500 kB\nNode 2 Active(file): 30 kB\n\
                    Node 2 Active(anon): 7000 kB\nNode 2 Inactive(file): 4 kB\n";
        assert_eq!(room_kib(text), 534);
    }

    #[test]
    fn shared_memory_of_each_kind_is_shared_with_children() {
        for backing in [Backing::Shared, Backing::SharedAnon, Backing::SysV] {
            let region = Region::map(1 << 20, backing, 0, Path::new("/")).unwrap();
            region.populate(5).unwrap();
            // SAFETY: the child stores one word and ends.
            match unsafe { libc::fork() } {
                0 => {
                    region.words()[1].store(7, Ordering::Relaxed);
                    // SAFETY: it ends the child.
                    unsafe { libc::_exit(0) }
                }
                child => {
                    // SAFETY: our own child, not reaped yet.
                    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
                }
            }
            assert_eq!(region.words()[1].load(Ordering::Relaxed), 7, "{backing:?}");
            assert_eq!(region.damaged_pages(5), 0, "{backing:?}");
        }
    }

    #[test]
    fn a_changed_stamp_is_found() {
        let region = Region::map(1 << 20, Backing::Anon, 0, Path::new("/")).unwrap();
        region.populate(5).unwrap();
        assert_eq!(region.damaged_pages(5), 0);
        region.words()[3 * region.page_words()].fetch_xor(1, Ordering::Relaxed);
        region.words()[4 * region.page_words() + 1].store(9, Ordering::Relaxed);
        assert_eq!(region.damaged_pages(5), 1);
    }
}
