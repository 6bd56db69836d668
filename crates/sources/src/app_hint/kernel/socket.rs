//! The hint socket: anybody may connect, and the kernel says who did.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use pghot_hint::wire::MESSAGE_BYTES_MAX;
use pghot_linux::{SysRoot, cgroup};

/// Since Linux 6.5.
const SO_PEERPIDFD: libc::c_int = 77;

/// Whether senders may attach descriptors; connections have it of the listener. Since Linux 6.16.
const SO_PASSRIGHTS: libc::c_int = 83;

/// Connections that may wait to be accepted.
const BACKLOG: libc::c_int = 64;

/// The listening socket; its file goes away with it.
pub struct Listener {
    socket: OwnedFd,
    file: SocketFile,
}

struct SocketFile(PathBuf);

/// Who connected, as the kernel knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its process, in the daemon's namespace.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its control group, by its path; empty if there is none.
    pub cgroup: String,
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
        let file = SocketFile(path.to_owned());
        fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
        // The kernel refuses descriptors where they are sent. One that cannot delivers them, and
        // `look` finds them.
        let _ = set_option(&socket, SO_PASSRIGHTS, 0);
        // SAFETY: listen() takes an open descriptor and a number.
        checked(unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) })?;
        Ok(Listener { socket, file })
    }

    /// Ends listening, and leaves the socket, in which connections may wait.
    pub fn into_socket(self) -> OwnedFd {
        drop(self.file);
        self.socket
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

    /// As on a kernel that delivers descriptors.
    #[cfg(test)]
    pub fn like_an_old_kernels(self) -> Listener {
        let _ = set_option(&self.socket, SO_PASSRIGHTS, 1);
        self
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = fs::remove_file(&self.0);
    }
}

/// Has messages say who sent them, as [`look`] wants it.
pub fn ask_for_senders(socket: &OwnedFd) -> io::Result<()> {
    set_option(socket, libc::SO_PASSCRED, 1)
}

fn set_option(socket: &OwnedFd, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let (fd, length) = (socket.as_raw_fd(), size_of_val(&value) as libc::socklen_t);
    // SAFETY: the kernel reads `length` bytes of `value`.
    checked(unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            name,
            (&raw const value).cast(),
            length,
        )
    })?;
    Ok(())
}

fn option<T>(socket: &OwnedFd, name: libc::c_int, mut value: T) -> io::Result<T> {
    let mut length = size_of::<T>() as libc::socklen_t;
    let (fd, place) = (socket.as_raw_fd(), (&raw mut value).cast());
    // SAFETY: the kernel writes at most `length` bytes into `value`; callers pass plain numbers.
    checked(unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, name, place, &mut length) })?;
    Ok(value)
}

/// Who made this connection.
pub fn peer(root: &SysRoot, socket: &OwnedFd) -> io::Result<Peer> {
    let (pid, uid, gid) = (0, 0, 0);
    let peer = option(socket, libc::SO_PEERCRED, libc::ucred { pid, uid, gid })?;
    match u32::try_from(peer.pid) {
        Ok(pid) if pid > 0 => Ok(Peer {
            pid,
            uid: peer.uid,
            cgroup: cgroup::of(&root.proc, pid).unwrap_or_default(),
        }),
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

/// What comes next on a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// A message.
    Message,
    /// A message with descriptors, which nobody asked for. It must not be taken: whoever takes it
    /// closes them ([`super::close`]).
    Descriptors,
    /// Nothing any more: it is closed, and everything was read.
    End,
}

/// A control message for who sent a message, which makes a message without bytes differ from the
/// end.
#[repr(C)]
struct Credentials {
    header: libc::cmsghdr,
    peer: libc::ucred,
}

/// Looks at what comes next and leaves it where it is.
pub fn look(socket: &OwnedFd) -> io::Result<Next> {
    // SAFETY: all zeros are a valid msghdr and valid credentials.
    let (mut header, mut control): (libc::msghdr, Credentials) = unsafe { std::mem::zeroed() };
    header.msg_control = (&raw mut control).cast();
    header.msg_controllen = size_of::<Credentials>();
    let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
    // SAFETY: the kernel writes no bytes of the message, and into `control` as far as it goes: no
    // descriptor has room behind the credentials.
    checked(unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, flags) } as libc::c_int)?;
    Ok(match header.msg_flags & libc::MSG_CTRUNC {
        0 if header.msg_controllen == 0 => Next::End,
        0 => Next::Message,
        _ => Next::Descriptors,
    })
}

/// Takes the next message. One that is too long comes back longer than any message may be.
pub fn receive(socket: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; MESSAGE_BYTES_MAX + 1];
    let (fd, place) = (socket.as_raw_fd(), bytes.as_mut_ptr().cast());
    // SAFETY: the kernel writes into `bytes`, as far as they go.
    let got = unsafe { libc::recv(fd, place, bytes.len(), libc::MSG_DONTWAIT) };
    bytes.truncate(checked(got as libc::c_int)? as usize);
    Ok(bytes)
}

/// Sends an answer, unless the client does not take it: then that is its loss.
pub fn send(socket: &OwnedFd, bytes: &[u8], file: Option<BorrowedFd<'_>>) -> io::Result<()> {
    pghot_hint::socket::send(socket, bytes, file, libc::MSG_DONTWAIT)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn what_comes_next_is_known_before_it_is_taken() {
        let mut pair = [-1; 2];
        // SAFETY: the kernel writes two descriptors, which nobody else knows.
        let [ours, theirs] = unsafe {
            let made = libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, pair.as_mut_ptr());
            assert_eq!(made, 0);
            pair.map(|fd| OwnedFd::from_raw_fd(fd))
        };
        set_option(&ours, libc::SO_PASSCRED, 1).unwrap();
        let nothing = look(&ours).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        let (reader, writer) = io::pipe().unwrap();
        for bytes in [&[7u8][..], &[]] {
            send(&theirs, bytes, None).unwrap();
            assert_eq!(look(&ours).unwrap(), Next::Message);
            assert_eq!(receive(&ours).unwrap(), bytes);
        }
        send(&theirs, &[7], Some(writer.as_fd())).unwrap();
        drop(writer);
        for _ in 0..2 {
            assert_eq!(look(&ours).unwrap(), Next::Descriptors);
        }
        let hung_up = |within_ms| {
            let mut ended = [pollfd(reader.as_raw_fd())];
            poll(&mut ended, within_ms).unwrap();
            ended[0].revents & libc::POLLHUP != 0
        };
        assert!(!hung_up(0), "looking closes nothing");
        receive(&ours).unwrap();
        // A child that another test has just forked has the descriptors too, until its exec.
        assert!(hung_up(60_000), "taking it does");
        drop(theirs);
        poll(&mut [pollfd(ours.as_raw_fd())], 60_000).unwrap();
        assert_eq!(look(&ours).unwrap(), Next::End);
    }
}
