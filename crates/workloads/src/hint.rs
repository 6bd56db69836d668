//! Hinting at the hot pages, through pghot's C header as an application would use it.

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
}

/// A connection to a daemon.
pub struct Hinter {
    socket: OwnedFd,
}

impl Hinter {
    /// Connects to the hint socket at `path`.
    pub fn connect(path: &str) -> Result<Self> {
        let c_path = CString::new(path)?;
        // SAFETY: the string ends with a zero; the descriptor is known to nobody else.
        let fd = unsafe { hotset_hint_connect(c_path.as_ptr()) };
        if fd < 0 {
            let error = io::Error::last_os_error();
            return Err(error).with_context(|| format!("cannot connect to {path}"));
        }
        // SAFETY: as above.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { socket })
    }

    /// Hints at pages of the region.
    pub fn hint(&self, region: &Region, pages: &[u32]) -> Result<()> {
        let (fd, base) = (self.socket.as_raw_fd(), region.range().start as *mut c_char);
        // SAFETY: the C side reads `pages.len()` numbers and only computes with `base`.
        let result = unsafe {
            hotset_hint_pages(fd, base, pages.as_ptr(), pages.len(), region.page_bytes())
        };
        if result < 0 {
            return Err(io::Error::last_os_error()).context("a hint was not taken");
        }
        Ok(())
    }
}
