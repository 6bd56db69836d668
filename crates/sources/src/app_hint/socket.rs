//! The hint socket: anybody may connect, and the kernel says who did.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use pghot_hint::wire::MESSAGE_BYTES_MAX;

/// Since Linux 6.5.
const SO_PEERPIDFD: libc::c_int = 77;

/// Connections that may wait to be accepted.
const BACKLOG: libc::c_int = 64;

/// The listening socket; its file goes away with it.
pub struct Listener {
    socket: OwnedFd,
    path: PathBuf,
}

/// Who connected, as the kernel knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its process, in the daemon's namespace.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
}

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

impl Listener {
    /// Listens for everybody, in place of a socket that a dead daemon left behind.
    pub fn bind(path: &Path) -> io::Result<Listener> {
        match pghot_hint::connect(path) {
            Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path)?;
            }
            // Not there, or no socket of ours: then bind() says so.
            Err(_) => {}
        }
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: socket() takes numbers, and the descriptor that it makes is known to nobody else.
        let socket = unsafe {
            let fd = checked(libc::socket(libc::AF_UNIX, kind, 0))?;
            OwnedFd::from_raw_fd(fd)
        };
        let (address, length) = pghot_hint::peer_address(path)?;
        let address: *const libc::sockaddr_un = &address;
        // SAFETY: the kernel reads `length` bytes of the address, which it has.
        checked(unsafe { libc::bind(socket.as_raw_fd(), address.cast(), length) })?;
        let path = path.to_owned();
        let listener = Listener { socket, path };
        fs::set_permissions(&listener.path, fs::Permissions::from_mode(0o666))?;
        // SAFETY: listen() takes an open descriptor and a number.
        checked(unsafe { libc::listen(listener.socket.as_raw_fd(), BACKLOG) })?;
        Ok(listener)
    }

    /// The next connection, if one waits.
    pub fn accept(&self) -> io::Result<OwnedFd> {
        let (none, flags) = (
            std::ptr::null_mut(),
            libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
        );
        // SAFETY: no address is asked for, and the new descriptor is known to nobody else.
        unsafe {
            let fd = libc::accept4(self.socket.as_raw_fd(), none, none.cast(), flags);
            Ok(OwnedFd::from_raw_fd(checked(fd)?))
        }
    }

    /// For poll(2).
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = fs::remove_file(&self.path);
    }
}

fn option<T>(socket: &OwnedFd, name: libc::c_int, mut value: T) -> io::Result<T> {
    let mut length = size_of::<T>() as libc::socklen_t;
    let (fd, place) = (socket.as_raw_fd(), (&raw mut value).cast());
    // SAFETY: the kernel writes at most `length` bytes into `value`; callers pass plain numbers.
    checked(unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, name, place, &mut length) })?;
    Ok(value)
}

/// Who made this connection.
pub fn peer(socket: &OwnedFd) -> io::Result<Peer> {
    let (pid, uid, gid) = (0, 0, 0);
    let peer = option(socket, libc::SO_PEERCRED, libc::ucred { pid, uid, gid })?;
    match u32::try_from(peer.pid) {
        Ok(pid) if pid > 0 => Ok(Peer { pid, uid: peer.uid }),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Whether the process that made this connection has not ended, so that its number is still its
/// own. A kernel that cannot tell is believed.
pub fn peer_lives(socket: &OwnedFd) -> bool {
    let Ok(fd) = option(socket, SO_PEERPIDFD, -1) else {
        return true;
    };
    // SAFETY: the kernel has just made this descriptor, and nobody else knows it.
    let pidfd: OwnedFd = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut ended = [pollfd(pidfd.as_raw_fd())];
    poll(&mut ended, 0).is_ok_and(|_| ended[0].revents == 0)
}

/// Asks poll(2) whether a descriptor has something to read.
pub fn pollfd(fd: RawFd) -> libc::pollfd {
    libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}

/// Waits for one of the descriptors.
pub fn poll(fds: &mut [libc::pollfd], timeout_ms: i32) -> io::Result<()> {
    // SAFETY: the kernel reads and writes as many entries as there are.
    checked(unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout_ms) })?;
    Ok(())
}

/// Room for a control message.
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

/// One descriptor and no byte more: into the padding that `CMSG_SPACE` has a second one would fit,
/// and stay open for ever. What does not fit the kernel closes.
// SAFETY: it only computes.
const CONTROL_BYTES: usize = unsafe { libc::CMSG_LEN(size_of::<RawFd>() as u32) } as usize;

/// Receives one message; empty at the end of the connection. One that is too long comes back longer
/// than any message may be. With it, the descriptor that was sent along.
pub fn receive(socket: &OwnedFd) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let mut bytes = vec![0; MESSAGE_BYTES_MAX + 1];
    let mut control = Control([0; CONTROL_BYTES]);
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: all zeros are a valid msghdr.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    (header.msg_iov, header.msg_iovlen) = (&mut part, 1);
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = CONTROL_BYTES;
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the kernel writes into `bytes` and `control`, as far as they go.
    let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, flags) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    bytes.truncate(got as usize);
    // SAFETY: the kernel filled the header in; the first control message lies in `control` if there
    // is one. A whole descriptor in it is new and known to nobody else.
    let file = unsafe {
        let first = libc::CMSG_FIRSTHDR(&header).as_ref();
        first
            .filter(|first| (first.cmsg_level, first.cmsg_type) == RIGHTS)
            .filter(|first| first.cmsg_len == CONTROL_BYTES)
            .map(|first| {
                OwnedFd::from_raw_fd(libc::CMSG_DATA(first).cast::<RawFd>().read_unaligned())
            })
    };
    Ok((bytes, file))
}

const RIGHTS: (libc::c_int, libc::c_int) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);

/// Sends an answer, unless the client does not take it: then that is its loss.
pub fn send(socket: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let (fd, place) = (socket.as_raw_fd(), bytes.as_ptr());
    // SAFETY: the kernel reads as many bytes as there are.
    match unsafe { libc::send(fd, place.cast(), bytes.len(), flags) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends a byte, and with it descriptors.
    fn send_with(socket: &OwnedFd, fds: &[RawFd]) {
        let mut byte = 7u8;
        let mut part = libc::iovec {
            iov_base: (&raw mut byte).cast(),
            iov_len: 1,
        };
        let mut control = [0u64; 8];
        let bytes = size_of_val(fds) as u32;
        // SAFETY: all zeros are a valid msghdr; the control message with its descriptors fits into
        // `control`, which lives until it is sent.
        unsafe {
            let mut header: libc::msghdr = std::mem::zeroed();
            (header.msg_iov, header.msg_iovlen) = (&mut part, 1);
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(bytes) as usize;
            let first = libc::CMSG_FIRSTHDR(&header);
            (*first).cmsg_len = libc::CMSG_LEN(bytes) as usize;
            ((*first).cmsg_level, (*first).cmsg_type) = RIGHTS;
            let data = libc::CMSG_DATA(first).cast::<RawFd>();
            data.copy_from_nonoverlapping(fds.as_ptr(), fds.len());
            assert_eq!(libc::sendmsg(socket.as_raw_fd(), &header, 0), 1);
        }
    }

    #[test]
    fn one_descriptor_is_taken_and_no_other_stays_open() {
        let mut pair = [-1; 2];
        // SAFETY: the kernel writes two descriptors, which nobody else knows.
        let [ours, theirs] = unsafe {
            let made = libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, pair.as_mut_ptr());
            assert_eq!(made, 0);
            pair.map(|fd| OwnedFd::from_raw_fd(fd))
        };
        for sent in 1..=4 {
            let (reader, writer) = io::pipe().unwrap();
            send_with(&theirs, &vec![writer.as_raw_fd(); sent]);
            let (bytes, file) = receive(&ours).unwrap();
            assert_eq!((bytes, file.is_some()), (vec![7], true));
            drop((writer, file));
            // It hangs up when no writer is left anywhere.
            let mut ended = [pollfd(reader.as_raw_fd())];
            poll(&mut ended, 1000).unwrap();
            assert!(
                ended[0].revents & libc::POLLHUP != 0,
                "one of {sent} is open"
            );
        }
        send(&theirs, &[7]).unwrap();
        assert!(receive(&ours).unwrap().1.is_none());
    }
}
