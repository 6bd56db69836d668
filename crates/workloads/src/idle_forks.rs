//! Children that share the parent's memory and do nothing: pages mapped by several processes.
//!
//! A store by the parent copies the page, and the copy is where the parent runs. With
//! `--store-percent 0` all pages stay shared, and the kernel takes no hint faults on them: it does
//! not scan pages that are shared copy-on-write.

use std::io;

use anyhow::{Context, Result};

/// Idle children; killed and reaped when dropped.
pub struct IdleForks(Vec<libc::pid_t>);

impl IdleForks {
    /// Forks `count` children. To be called before there are threads.
    pub fn spawn(count: usize) -> Result<Self> {
        let mut forks = Self(Vec::new());
        for _ in 0..count {
            // SAFETY: the process has one thread, so the child may go on running any code; it
            // never returns from `idle`.
            match unsafe { libc::fork() } {
                -1 => return Err(io::Error::last_os_error()).context("cannot fork"),
                0 => idle(),
                pid => forks.0.push(pid),
            }
        }
        Ok(forks)
    }
}

/// The child's life: wait, and die with the parent whatever kills that.
fn idle() -> ! {
    // SAFETY: no memory is involved; pause returns only after a handled signal, and none is.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        loop {
            libc::pause();
        }
    }
}

impl Drop for IdleForks {
    fn drop(&mut self) {
        for &pid in &self.0 {
            // SAFETY: our own child, not reaped before, so the id cannot be another process's.
            unsafe {
                libc::kill(pid, libc::SIGKILL);
                libc::waitpid(pid, std::ptr::null_mut(), 0);
            }
        }
    }
}
