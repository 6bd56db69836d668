//! A file in the page cache of its home node: written there, read, verified, looked up.

use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::ptr;

use anyhow::{Context, Result};

use crate::hot_set::HotSet;
use crate::list::IdList;
use crate::numa_maps::NodePages;
use crate::placement::{Placement, tally};
use crate::random::mix;
use crate::sys;

/// The file; every page is filled with a word of its own.
pub struct CachedFile {
    file: File,
    pages: u32,
    page_bytes: usize,
    seed: u64,
}

impl CachedFile {
    /// Writes the file, page by page so that the cache has base pages, each from node `home`.
    pub fn create(path: &Path, pages: u32, home: u32, seed: u64) -> Result<Self> {
        let mut options = OpenOptions::new();
        // Reads leave the access time alone, so that it shows whether somebody else reads.
        options.custom_flags(libc::O_NOATIME);
        let options = options.read(true).write(true).create(true).truncate(true);
        let file = options
            .open(path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        let cached = Self {
            file,
            pages,
            page_bytes: sys::page_bytes(),
            seed,
        };
        sys::allocate_from(Some(home))?;
        let written = cached.write();
        sys::allocate_from(None)?;
        written.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(cached)
    }

    fn write(&self) -> io::Result<()> {
        // Nothing is read ahead: large folios would come of it.
        // SAFETY: advice on an open file.
        match unsafe { libc::posix_fadvise(self.file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) } {
            0 => {}
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
        for page in 0..self.pages {
            self.file
                .write_all_at(&self.content(page), self.offset(page))?;
        }
        self.file.sync_all()
    }

    /// Reads one page; whether it holds what was written.
    pub fn is_intact(&self, page: u32, buffer: &mut Vec<u8>) -> bool {
        buffer.resize(self.page_bytes, 0);
        let read = self.file.read_exact_at(buffer, self.offset(page));
        read.is_ok() && buffer.ends_with(&self.word(page)) && buffer.starts_with(&self.word(page))
    }

    /// Pages that do not hold what was written, from the first byte to the last.
    pub fn damaged_pages(&self) -> u64 {
        let mut buffer = Vec::new();
        let mut is_damaged =
            |page: &u32| !self.is_intact(*page, &mut buffer) || buffer != self.content(*page);
        (0..self.pages).filter(|page| is_damaged(page)).count() as u64
    }

    /// Where the cached pages are now, told apart by `hot_set` and `fast` nodes.
    ///
    /// Only mapped pages can be asked about, so the file is mapped for a moment. That neither reads
    /// (pages outside the cache are left out) nor, thanks to `MADV_RANDOM`, marks pages as accessed
    /// when they are unmapped. But as long as it takes the pages are not unmapped page cache, so it
    /// is for the time before and after what is measured.
    pub fn look_up(&self, hot_set: &HotSet, fast: &IdList) -> Result<Placement> {
        Ok(tally(&self.page_nodes()?, hot_set.is_hot(), fast))
    }

    /// How many cached pages each node has; see [`CachedFile::look_up`].
    pub fn nodes(&self) -> Result<NodePages> {
        let mut nodes = NodePages::new();
        let known = self.page_nodes()?.into_iter().flat_map(u32::try_from);
        known.for_each(|node| *nodes.entry(node).or_default() += 1);
        Ok(nodes)
    }

    /// The node of each page, negative for those outside the cache.
    fn page_nodes(&self) -> Result<Vec<i32>> {
        let length = self.pages as usize * self.page_bytes;
        // SAFETY: a new mapping where the kernel likes; nothing existing is touched.
        let base = unsafe {
            let (protection, kind) = (libc::PROT_READ, libc::MAP_SHARED);
            libc::mmap(
                ptr::null_mut(),
                length,
                protection,
                kind,
                self.file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error()).context("cannot map the file");
        }
        let nodes = self.query(base);
        // SAFETY: we mapped this range, and nothing refers to it any more.
        unsafe { libc::munmap(base, length) };
        nodes
    }

    fn query(&self, base: *mut c_void) -> Result<Vec<i32>> {
        let pages = self.pages as usize;
        let length = pages * self.page_bytes;
        let mut in_cache = vec![0u8; pages];
        // SAFETY: advice on the whole of our own mapping.
        sys::check(unsafe { libc::madvise(base, length, libc::MADV_RANDOM) }.into())?;
        // Or khugepaged may merge base pages, and take their entries away before they are asked
        // about. A kernel without huge pages refuses, which is as good.
        // SAFETY: as above.
        unsafe { libc::madvise(base, length, libc::MADV_NOHUGEPAGE) };
        // SAFETY: there is one byte for each page of our own mapping.
        sys::check(unsafe { libc::mincore(base, length, in_cache.as_mut_ptr()) }.into())?;
        let address = |page: usize| base.wrapping_byte_add(page * self.page_bytes);
        let mut page = 0;
        for run in in_cache.chunk_by(|a, b| a & 1 == b & 1) {
            if run[0] & 1 != 0 {
                let bytes = run.len() * self.page_bytes;
                // SAFETY: a part of our own mapping. It fails if the file was cut short meanwhile:
                // then these pages are nowhere.
                unsafe { libc::madvise(address(page), bytes, libc::MADV_POPULATE_READ) };
            }
            page += run.len();
        }
        let addresses: Vec<_> = (0..pages).map(|page| address(page).cast_const()).collect();
        let mut nodes = vec![0; pages];
        sys::query_nodes(&addresses, &mut nodes)?;
        Ok(nodes)
    }

    /// Has the kernel make a file handle, as an NFS server would. tmpfs finds a file by its handle
    /// only after that.
    pub fn encode_handle(&self) -> Result<()> {
        const HANDLE_BYTES_MAX: u32 = 128;
        #[repr(C)]
        struct Handle {
            bytes: u32,
            kind: i32,
            data: [u8; HANDLE_BYTES_MAX as usize],
        }
        let mut handle = Handle {
            bytes: HANDLE_BYTES_MAX,
            kind: 0,
            data: [0; HANDLE_BYTES_MAX as usize],
        };
        let mut mount = 0i32;
        // SAFETY: the path is an empty C string, and the handle has room for the bytes it says.
        let result = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                self.file.as_raw_fd(),
                c"".as_ptr(),
                &raw mut handle,
                &raw mut mount,
                libc::AT_EMPTY_PATH,
            )
        };
        sys::check(result).context("cannot make a file handle")
    }

    fn offset(&self, page: u32) -> u64 {
        u64::from(page) * self.page_bytes as u64
    }

    fn word(&self, page: u32) -> [u8; 8] {
        mix(self.seed ^ mix(u64::from(page) + 1)).to_ne_bytes()
    }

    fn content(&self, page: u32) -> Vec<u8> {
        self.word(page).repeat(self.page_bytes / 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_is_found() {
        let path = std::env::temp_dir().join(format!("pagecache-{}", std::process::id()));
        let cached = CachedFile::create(&path, 16, 0, 7).unwrap();
        assert_eq!(cached.damaged_pages(), 0);
        cached.file.write_all_at(b"x", 5 * 4096 + 77).unwrap();
        assert_eq!(cached.damaged_pages(), 1);
        cached.file.set_len(14 * 4096).unwrap();
        assert_eq!(cached.damaged_pages(), 3);
        std::fs::remove_file(path).unwrap();
    }
}
