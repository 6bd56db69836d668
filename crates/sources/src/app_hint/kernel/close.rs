//! Closing the sockets of strangers, in a process that may wait.
//!
//! A message that nobody has taken may hold descriptors, and whoever closes the socket closes them.
//! The last close of a descriptor can wait for as long as its sender likes: for the server of a
//! FUSE file, or for a connection that lingers. So a child does it, one at a time. While it waits,
//! sockets are kept; when there are too many of them, nobody new is admitted.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Sockets that are to be closed.
#[derive(Default)]
pub struct Closer {
    sockets: Vec<OwnedFd>,
    child: Option<libc::pid_t>,
}

impl Closer {
    /// Takes a socket, to be closed soon.
    pub fn close(&mut self, socket: OwnedFd) {
        self.sockets.push(socket);
    }

    /// Sockets that are not in a child's hands yet.
    pub fn waiting(&self) -> usize {
        self.sockets.len()
    }

    /// Hands what waits to a new child, unless the last one is not done.
    pub fn step(&mut self) {
        if let Some(child) = self.child {
            // SAFETY: waitpid() takes numbers; nobody asks for the status.
            if unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::WNOHANG) } == 0 {
                return;
            }
            self.child = None;
        }
        if self.sockets.is_empty() {
            return;
        }
        // Out of processes or memory for a moment: the next step tries again.
        if let Ok((child, gate)) = spawn(&self.sockets) {
            self.child = Some(child);
            // The child's are the last ones when the gate opens.
            self.sockets.clear();
            drop(gate);
        }
    }
}

impl Drop for Closer {
    /// A child that waits goes on alone.
    fn drop(&mut self) {
        self.step();
        if !self.sockets.is_empty() {
            self.child = None;
            self.step();
        }
    }
}

/// A child that ends, and so closes these, once the gate that comes with it is closed here. It has
/// given back its copy of the daemon's memory by then, and holds no other descriptor.
fn spawn(sockets: &[OwnedFd]) -> io::Result<(libc::pid_t, io::PipeWriter)> {
    let (gate, opener) = io::pipe()?;
    let mut kept: Vec<RawFd> = sockets.iter().map(AsRawFd::as_raw_fd).collect();
    kept.push(gate.as_raw_fd());
    kept.sort_unstable();
    // SAFETY: the child, in which other threads' locks may be held for ever, makes system calls
    // only, and none that allocates.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: as above; `read` writes one byte at most into a variable of its own.
        0 => unsafe {
            close_all_but(&kept);
            let mut byte = 0u8;
            libc::read(gate.as_raw_fd(), (&raw mut byte).cast(), 1);
            libc::_exit(0)
        },
        child => Ok((child, opener)),
    }
}

/// # Safety
///
/// Only for a process that uses no other descriptor.
unsafe fn close_all_but(sorted: &[RawFd]) {
    let mut first = 0;
    for &kept in sorted.iter().chain([&RawFd::MAX]) {
        if kept > first {
            // SAFETY: as the caller promises.
            unsafe { libc::syscall(libc::SYS_close_range, first, kept - 1, 0) };
        }
        first = kept.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;
    use std::process::Command;

    use super::super::socket;
    use super::*;

    /// A socket with a descriptor in it, and whether that is closed everywhere.
    fn filled() -> (OwnedFd, impl Fn() -> bool) {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        let (reader, writer) = io::pipe().unwrap();
        socket::send(&theirs.into(), &[1], Some(writer.as_fd())).unwrap();
        let is_closed = move || {
            let mut ended = [socket::pollfd(reader.as_raw_fd())];
            socket::poll(&mut ended, 5000).unwrap();
            ended[0].revents & libc::POLLHUP != 0
        };
        (ours.into(), is_closed)
    }

    #[test]
    fn one_child_at_a_time_closes_what_waits() {
        let mut slow = Command::new("sleep").arg("60").spawn().unwrap();
        let mut closer = Closer {
            sockets: Vec::new(),
            child: Some(slow.id() as libc::pid_t),
        };
        let (first, is_first_closed) = filled();
        let (second, is_second_closed) = filled();
        closer.close(first);
        closer.close(second);
        closer.step();
        assert_eq!(closer.waiting(), 2, "the last one is not done");
        slow.kill().unwrap();
        while closer.waiting() > 0 {
            closer.step();
        }
        assert!(is_first_closed() && is_second_closed());
        assert!(slow.wait().is_err(), "it was waited for");
    }

    #[test]
    fn what_waits_at_the_end_is_closed() {
        let mut slow = Command::new("sleep").arg("60").spawn().unwrap();
        let (socket, is_closed) = filled();
        let closer = Closer {
            sockets: vec![socket],
            child: Some(slow.id() as libc::pid_t),
        };
        drop(closer);
        assert!(is_closed());
        slow.kill().unwrap();
        slow.wait().unwrap();
    }
}
