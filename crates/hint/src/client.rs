//! The application's end of the socket.

use std::io;
use std::mem::{offset_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::wire::{ANSWER_BYTES, Answer, FLAG_ANSWER, Message, RANGES_MAX, Range};

/// A connection to the daemon. It speaks for the process that made it.
#[derive(Debug)]
pub struct Hints {
    socket: OwnedFd,
}

impl Hints {
    /// Connects to the daemon's hint socket.
    pub fn connect(path: &Path) -> io::Result<Hints> {
        let socket = connect(path)?;
        Ok(Hints { socket })
    }

    /// Hints memory of this process and does not wait. `WouldBlock` means that the daemon is
    /// behind: this hint, from the first range not sent, is lost, and the next may get through.
    pub fn send(&self, ranges: &[Range]) -> io::Result<()> {
        for ranges in ranges.chunks(RANGES_MAX) {
            let ranges = ranges.to_vec();
            let (pid, flags) = (0, 0);
            let message = Message { pid, flags, ranges };
            self.write(&message, libc::MSG_DONTWAIT)?;
        }
        Ok(())
    }

    /// Hints memory of a process, 0 for this one, and waits for what becomes of it. At most
    /// [`RANGES_MAX`] ranges. Only root may name another process.
    pub fn ask(&self, pid: u32, ranges: &[Range]) -> io::Result<Answer> {
        if ranges.len() > RANGES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let ranges = ranges.to_vec();
        let flags = FLAG_ANSWER;
        self.write(&Message { pid, flags, ranges }, 0)?;
        let mut bytes = [0u8; ANSWER_BYTES];
        let (fd, length) = (self.socket.as_raw_fd(), bytes.len());
        // SAFETY: the kernel writes at most `length` bytes, which `bytes` has.
        let got = unsafe { libc::recv(fd, bytes.as_mut_ptr().cast(), length, 0) };
        match got {
            -1 => Err(io::Error::last_os_error()),
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            got => Answer::decode(&bytes[..got as usize])
                .ok_or_else(|| io::ErrorKind::InvalidData.into()),
        }
    }

    fn write(&self, message: &Message, flags: libc::c_int) -> io::Result<()> {
        let (bytes, fd) = (message.encode(), self.socket.as_raw_fd());
        let flags = flags | libc::MSG_NOSIGNAL;
        // SAFETY: the kernel reads as many bytes as there are.
        match unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}

/// Connects a `SOCK_SEQPACKET` socket, which the standard library does not know.
pub fn connect(path: &Path) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: socket() takes numbers.
    let fd = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor, and nobody else knows it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let (address, length) = peer_address(path)?;
    let address: *const libc::sockaddr_un = &address;
    // SAFETY: the kernel reads `length` bytes of the address, which it has.
    match unsafe { libc::connect(fd, address.cast(), length) } {
        0 => Ok(socket),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A path as the socket calls want it.
pub fn peer_address(path: &Path) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: all zeros are a valid sockaddr_un.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    // Room for the zero at the end.
    if bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    let length = offset_of!(libc::sockaddr_un, sun_path) + bytes.len() + 1;
    Ok((address, length as libc::socklen_t))
}
