//! Hinting at the hot pages, through pghot's C headers as an application would use them.

use std::ffi::{CString, c_char, c_int};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use anyhow::{Context, Result};

use crate::region::Region;

unsafe extern "C" {
    fn hotset_hint_connect(path: *const c_char) -> c_int;
    fn hotset_hint_pages(
        fd: c_int,
        base: *mut c_char,
        pages: *const u32,
        nr: usize,
        page_bytes: usize,
    ) -> c_int;
    fn hotset_hint_ring_open(path: *const c_char) -> c_int;
    fn hotset_hint_ring_pages(
        base: *mut c_char,
        pages: *const u32,
        nr: usize,
        page_bytes: usize,
    ) -> c_int;
}

/// A connection to a daemon.
pub enum Hinter {
    /// Messages on its socket.
    Messages(OwnedFd),
    /// The process's only ring, which stays until it ends.
    Ring,
}

impl Hinter {
    /// Connects to the hint socket at `path`, for messages or for a ring.
    pub fn connect(path: &str, ring: bool) -> Result<Self> {
        let c_path = CString::new(path)?;
        // SAFETY: the string ends with a zero.
        let fd = unsafe {
            match ring {
                true => hotset_hint_ring_open(c_path.as_ptr()),
                false => hotset_hint_connect(c_path.as_ptr()),
            }
        };
        if fd < 0 {
            let error = io::Error::last_os_error();
            return Err(error).with_context(|| format!("cannot connect to {path}"));
        }
        if ring {
            return Ok(Self::Ring);
        }
        // SAFETY: the C side has just made this descriptor, and nobody else knows it.
        Ok(Self::Messages(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Hints at pages of the region.
    pub fn hint(&self, region: &Region, pages: &[u32]) -> Result<()> {
        let base = region.range().start as *mut c_char;
        let (first, nr, page_bytes) = (pages.as_ptr(), pages.len(), region.page_bytes());
        // SAFETY: the C side reads `nr` numbers and only computes with `base`; a ring was opened.
        let result = unsafe {
            match self {
                Self::Messages(socket) => {
                    hotset_hint_pages(socket.as_raw_fd(), base, first, nr, page_bytes)
                }
                Self::Ring => hotset_hint_ring_pages(base, first, nr, page_bytes),
            }
        };
        if result < 0 {
            return Err(io::Error::last_os_error()).context("a hint was not taken");
        }
        Ok(())
    }
}
