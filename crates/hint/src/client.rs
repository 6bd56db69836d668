//! The application's end of the socket.

use std::io;
use std::mem::{offset_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
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
            self.write(&message, None, libc::MSG_DONTWAIT)?;
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
        self.write(&Message { pid, flags, ranges }, None, 0)?;
        self.answer()
    }

    /// Whether the daemon has not hung up.
    pub(crate) fn is_connected(&self) -> bool {
        let mut poll = libc::pollfd {
            fd: self.socket.as_raw_fd(),
            events: 0,
            revents: 0,
        };
        // SAFETY: the kernel reads and writes this one entry.
        let asked = unsafe { libc::poll(&mut poll, 1, 0) };
        asked >= 0 && poll.revents == 0
    }

    /// Waits for the daemon's answer.
    pub(crate) fn answer(&self) -> io::Result<Answer> {
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

    /// Sends a message, and with it a descriptor.
    pub(crate) fn write(
        &self,
        message: &Message,
        file: Option<BorrowedFd<'_>>,
        flags: libc::c_int,
    ) -> io::Result<()> {
        let mut bytes = message.encode();
        let mut part = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        let mut control = ControlMessage::default();
        // SAFETY: all zeros are a valid msghdr: nothing to send, to nobody in particular.
        let mut header: libc::msghdr = unsafe { zeroed() };
        (header.msg_iov, header.msg_iovlen) = (&mut part, 1);
        if let Some(file) = file {
            control.fd = file.as_raw_fd();
            header.msg_control = (&raw mut control).cast();
            header.msg_controllen = size_of::<ControlMessage>();
        }
        let (fd, flags) = (self.socket.as_raw_fd(), flags | libc::MSG_NOSIGNAL);
        // SAFETY: the kernel reads as many bytes as there are, and the control message if there is
        // one.
        match unsafe { libc::sendmsg(fd, &header, flags) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}

/// One descriptor as a control message (`CMSG_SPACE(sizeof(int))` bytes of it).
#[repr(C)]
struct ControlMessage {
    header: libc::cmsghdr,
    fd: RawFd,
    _padding: u32,
}

impl Default for ControlMessage {
    fn default() -> Self {
        // SAFETY: all zeros are a valid cmsghdr.
        let mut header: libc::cmsghdr = unsafe { zeroed() };
        header.cmsg_len = offset_of!(ControlMessage, fd) + size_of::<RawFd>();
        (header.cmsg_level, header.cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
        ControlMessage {
            header,
            fd: -1,
            _padding: 0,
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
