//! The system calls of either end: connecting, and a message with a descriptor.

use std::io;
use std::mem::{offset_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// One descriptor as a control message, and no byte more: into the padding that `CMSG_SPACE` has a
/// second one would fit, and stay open for ever.
#[repr(C)]
struct ControlMessage {
    header: libc::cmsghdr,
    fd: RawFd,
}

const CONTROL_BYTES: usize = offset_of!(ControlMessage, fd) + size_of::<RawFd>();
const RIGHTS: (libc::c_int, libc::c_int) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);

impl ControlMessage {
    fn new(fd: RawFd) -> Self {
        // SAFETY: all zeros are a valid cmsghdr.
        let mut header: libc::cmsghdr = unsafe { zeroed() };
        header.cmsg_len = CONTROL_BYTES;
        (header.cmsg_level, header.cmsg_type) = RIGHTS;
        ControlMessage { header, fd }
    }

    /// The descriptor that the kernel wrote into it.
    fn received(&self, bytes: usize) -> Option<RawFd> {
        let kind = (self.header.cmsg_level, self.header.cmsg_type);
        (bytes >= CONTROL_BYTES && kind == RIGHTS && self.header.cmsg_len == CONTROL_BYTES)
            .then_some(self.fd)
    }
}

/// Sends a message whole, and with it a descriptor.
pub fn send(
    socket: &OwnedFd,
    bytes: &[u8],
    file: Option<BorrowedFd<'_>>,
    flags: libc::c_int,
) -> io::Result<()> {
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut control = ControlMessage::new(file.map_or(-1, |file| file.as_raw_fd()));
    // SAFETY: all zeros are a valid msghdr: nothing to send, to nobody in particular.
    let mut header: libc::msghdr = unsafe { zeroed() };
    (header.msg_iov, header.msg_iovlen) = (&mut part, 1);
    if file.is_some() {
        header.msg_control = (&raw mut control).cast();
        header.msg_controllen = size_of::<ControlMessage>();
    }
    // SAFETY: the kernel reads as many bytes as there are, and the control message if there is one.
    match unsafe { libc::sendmsg(socket.as_raw_fd(), &header, flags | libc::MSG_NOSIGNAL) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Waits for a message and for the descriptor that comes with it, and says how long the message
/// is. For the application, which trusts the daemon: what a stranger sends need not be closable.
pub(crate) fn receive(socket: &OwnedFd, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let mut control = ControlMessage::new(-1);
    // SAFETY: all zeros are a valid msghdr.
    let mut header: libc::msghdr = unsafe { zeroed() };
    (header.msg_iov, header.msg_iovlen) = (&mut part, 1);
    header.msg_control = (&raw mut control).cast();
    header.msg_controllen = CONTROL_BYTES;
    // SAFETY: the kernel writes into `bytes` and `control`, as far as they go.
    let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, libc::MSG_CMSG_CLOEXEC) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = control.received(header.msg_controllen);
    // SAFETY: the kernel has just made this descriptor, and nobody else knows it.
    let file = fd.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    Ok((got as usize, file))
}

/// Whether the other end has not hung up, and has sent nothing.
pub(crate) fn is_quiet(socket: &OwnedFd) -> bool {
    let mut poll = libc::pollfd {
        fd: socket.as_fd().as_raw_fd(),
        events: 0,
        revents: 0,
    };
    // SAFETY: the kernel reads and writes this one entry.
    let asked = unsafe { libc::poll(&mut poll, 1, 0) };
    asked >= 0 && poll.revents == 0
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
