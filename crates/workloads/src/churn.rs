//! Processes and memory that come and go while pages are looked for and moved: what a daemon must
//! survive. Every page carries a stamp, so that a page lost in a move is found.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;
use std::ptr;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::random::{XorShift, mix};
use crate::sys;

/// Pages that a worker keeps for its whole life.
const KEPT_PAGES: usize = 2048;
/// Pages of a mapping that comes and goes, at most.
const MAPPED_PAGES_MAX: u32 = 512;
/// Pages of a file.
const FILE_PAGES: usize = 256;

/// How often each thing was done, and what went wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Mappings made, touched, holed and removed.
    pub mappings: u64,
    /// Children that wrote to shared pages and exited.
    pub forks: u64,
    /// Programs executed.
    pub execs: u64,
    /// Files made, mapped, truncated and deleted.
    pub files: u64,
    /// Mappings moved to another address.
    pub remaps: u64,
    /// Times that kept pages were given up and made anew.
    pub discards: u64,
    /// Pages whose stamp was wrong.
    pub errors: u64,
}

impl std::ops::AddAssign for Done {
    fn add_assign(&mut self, other: Self) {
        self.mappings += other.mappings;
        self.forks += other.forks;
        self.execs += other.execs;
        self.files += other.files;
        self.remaps += other.remaps;
        self.discards += other.discards;
        self.errors += other.errors;
    }
}

/// One process's churn. It must have one thread only, because it forks.
pub struct Worker {
    random: XorShift,
    home: u32,
    dir: PathBuf,
    number: u32,
    page_bytes: usize,
    kept: Mapping,
    done: Done,
}

/// Anonymous memory or a mapped file; unmapped when dropped.
struct Mapping {
    start: usize,
    bytes: usize,
}

impl Mapping {
    fn new(bytes: usize, file: Option<&File>) -> io::Result<Mapping> {
        let (flags, fd) = match file {
            Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
        };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping where the kernel likes; nothing existing is touched.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = start as usize;
        Ok(Mapping { start, bytes })
    }

    /// Writes the stamps of pages `from..to`.
    fn stamp(&self, from: usize, to: usize, page_bytes: usize) {
        for address in self.addresses(from, to, page_bytes) {
            // SAFETY: the address is inside this mapping, which is writable and ours alone, and
            // callers name no page that has been unmapped or cut off.
            unsafe { (address as *mut u64).write_volatile(mix(address as u64)) };
        }
    }

    /// Counts the pages of `from..to` that do not hold what was written at `written_at`, the place
    /// where the mapping was then.
    fn damaged(&self, from: usize, to: usize, page_bytes: usize, written_at: usize) -> u64 {
        let is_damaged = |address: &usize| {
            let stamp = mix((address - self.start + written_at) as u64);
            // SAFETY: as in `stamp`.
            unsafe { (*address as *const u64).read_volatile() != stamp }
        };
        let addresses = self.addresses(from, to, page_bytes);
        addresses.filter(is_damaged).count() as u64
    }

    fn addresses(&self, from: usize, to: usize, page_bytes: usize) -> impl Iterator<Item = usize> {
        let start = self.start;
        let to = to.min(self.bytes / page_bytes);
        (from..to).map(move |page| start + page * page_bytes)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: we made this mapping, and nothing refers to it any more.
        unsafe { libc::munmap(self.start as *mut _, self.bytes) };
    }
}

impl Worker {
    /// A worker that has done nothing; its memory starts on node `home`, its files lie in `dir`.
    pub fn new(number: u32, seed: u64, home: u32, dir: PathBuf) -> Result<Worker> {
        let page_bytes = sys::page_bytes();
        let kept = Mapping::new(KEPT_PAGES * page_bytes, None).context("cannot map memory")?;
        sys::allocate_from(Some(home))?;
        kept.stamp(0, KEPT_PAGES, page_bytes);
        sys::allocate_from(None)?;
        Ok(Worker {
            random: XorShift::new(seed.wrapping_add(u64::from(number))),
            home,
            dir,
            number,
            page_bytes,
            kept,
            done: Done::default(),
        })
    }

    /// Does one thing, chosen at random, and looks after the kept pages.
    pub fn step(&mut self) -> Result<()> {
        match self.random.below(16) {
            0..6 => self.map_and_unmap()?,
            6..9 => self.fork()?,
            9 => self.exec()?,
            10..13 => self.file()?,
            13 => self.remap()?,
            _ => self.discard()?,
        }
        let (kept, bytes) = (&self.kept, self.page_bytes);
        self.done.errors += kept.damaged(0, KEPT_PAGES, bytes, kept.start);
        Ok(())
    }

    /// What was done so far.
    pub fn done(&self) -> Done {
        self.done
    }

    /// Pages that start on the home node and are used a while after.
    fn stamped(&mut self, pages: usize) -> Result<Mapping> {
        let mapping = Mapping::new(pages * self.page_bytes, None).context("cannot map memory")?;
        sys::allocate_from(Some(self.home))?;
        mapping.stamp(0, pages, self.page_bytes);
        sys::allocate_from(None)?;
        Ok(mapping)
    }

    fn check(&mut self, mapping: &Mapping, from: usize, to: usize, written_at: usize) {
        self.done.errors += mapping.damaged(from, to, self.page_bytes, written_at);
    }

    fn map_and_unmap(&mut self) -> Result<()> {
        let pages = 4 + self.random.below(MAPPED_PAGES_MAX) as usize;
        let mapping = self.stamped(pages)?;
        let (hole, end) = (pages / 4, pages / 2);
        let hole_start = (mapping.start + hole * self.page_bytes) as *mut _;
        // SAFETY: a part of our own mapping that is not used from here on.
        sys::check(unsafe { libc::munmap(hole_start, (end - hole) * self.page_bytes) }.into())
            .context("cannot unmap")?;
        for _ in 0..4 {
            self.check(&mapping, 0, hole, mapping.start);
            self.check(&mapping, end, pages, mapping.start);
        }
        self.done.mappings += 1;
        Ok(())
    }

    /// The child breaks the sharing of half the kept pages, and exits with the number of wrong
    /// ones.
    fn fork(&mut self) -> Result<()> {
        let (kept, bytes) = (&self.kept, self.page_bytes);
        // SAFETY: this process has one thread; the child only reads and writes memory of its own
        // and ends by _exit.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            kept.stamp(0, KEPT_PAGES / 2, bytes);
            let damaged = kept.damaged(0, KEPT_PAGES, bytes, kept.start);
            // SAFETY: ends the child at once, without running anything of the parent's.
            unsafe { libc::_exit(damaged.min(255) as i32) };
        }
        sys::check(pid.into()).context("cannot fork")?;
        let mut status = 0;
        // SAFETY: our own child; the status is a valid place for the result.
        sys::check(unsafe { libc::waitpid(pid, &mut status, 0) }.into()).context("cannot wait")?;
        ensure!(libc::WIFEXITED(status), "the child died of a signal");
        self.done.errors += libc::WEXITSTATUS(status) as u64;
        self.done.forks += 1;
        Ok(())
    }

    fn exec(&mut self) -> Result<()> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let output = Command::new(program).arg("--version").output();
        ensure!(
            output.context("cannot execute")?.status.success(),
            "an executed program failed"
        );
        self.done.execs += 1;
        Ok(())
    }

    /// A file is mapped, cut in half while its pages may be on the move, and deleted while mapped.
    fn file(&mut self) -> Result<()> {
        let path = self.dir.join(format!("churn{}", self.number));
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        let bytes = FILE_PAGES * self.page_bytes;
        file.set_len(bytes as u64)
            .context("cannot extend the file")?;
        let mapping = Mapping::new(bytes, Some(&file)).context("cannot map the file")?;
        sys::allocate_from(Some(self.home))?;
        mapping.stamp(0, FILE_PAGES, self.page_bytes);
        sys::allocate_from(None)?;
        self.check(&mapping, 0, FILE_PAGES, mapping.start);
        file.set_len(bytes as u64 / 2)
            .context("cannot truncate the file")?;
        self.check(&mapping, 0, FILE_PAGES / 2, mapping.start);
        fs::remove_file(&path).with_context(|| format!("cannot delete {}", path.display()))?;
        self.check(&mapping, 0, FILE_PAGES / 2, mapping.start);
        self.done.files += 1;
        Ok(())
    }

    fn remap(&mut self) -> Result<()> {
        let pages = 4 + self.random.below(MAPPED_PAGES_MAX) as usize;
        let mut mapping = self.stamped(pages)?;
        let written_at = mapping.start;
        let larger = 2 * mapping.bytes;
        // SAFETY: our own mapping, to which nothing else refers; it moves as a whole.
        let moved = unsafe {
            libc::mremap(
                mapping.start as *mut _,
                mapping.bytes,
                larger,
                libc::MREMAP_MAYMOVE,
            )
        };
        if moved == libc::MAP_FAILED {
            return Err(io::Error::last_os_error()).context("cannot move a mapping");
        }
        mapping.start = moved as usize;
        mapping.bytes = larger;
        self.check(&mapping, 0, pages, written_at);
        self.done.remaps += 1;
        Ok(())
    }

    fn discard(&mut self) -> Result<()> {
        let pages = 1 + self.random.below(KEPT_PAGES as u32 / 4) as usize;
        let first = self.random.below((KEPT_PAGES - pages) as u32) as usize;
        let start = (self.kept.start + first * self.page_bytes) as *mut _;
        // SAFETY: pages of our own mapping, which are written anew before they are read.
        let result = unsafe { libc::madvise(start, pages * self.page_bytes, libc::MADV_DONTNEED) };
        sys::check(result.into()).context("cannot discard pages")?;
        sys::allocate_from(Some(self.home))?;
        self.kept.stamp(first, first + pages, self.page_bytes);
        sys::allocate_from(None)?;
        self.done.discards += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_page_is_found_even_after_a_move() {
        let page_bytes = sys::page_bytes();
        let mapping = Mapping::new(8 * page_bytes, None).unwrap();
        mapping.stamp(0, 8, page_bytes);
        let here = mapping.start;
        assert_eq!(mapping.damaged(0, 8, page_bytes, here), 0);
        assert_eq!(mapping.damaged(0, 8, page_bytes, here + page_bytes), 8);
        // SAFETY: inside the mapping, which is writable.
        unsafe { (here as *mut u64).write_volatile(0) };
        assert_eq!(mapping.damaged(0, 8, page_bytes, here), 1);
    }
}
