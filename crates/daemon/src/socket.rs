//! The files of the daemon's sockets: bound for this user, or for a group too, and gone at the end.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use pghot_events::event;

/// A socket cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Somebody answers there.
    #[error("another pghot listens on {}: stop it, or choose another --socket", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// A file that is no socket.
    #[error("{} exists and is not a socket: remove it, or choose another --socket", path.display())]
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot listen on {}: {source}{}", path.display(), advice(source))]
    Io {
        /// The socket.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; make its directory writable for the daemon's user, or choose another one"
        }
        _ => "",
    }
}

/// A bound socket; its file goes away with it.
pub struct Socket {
    /// Where connections arrive.
    pub listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Binds the socket for this user and nobody else, whatever the umask. Replaces one that a dead
    /// daemon left behind.
    pub fn bind(path: &Path) -> Result<Socket, SocketError> {
        let io_error = |source| SocketError::Io {
            path: path.to_owned(),
            source,
        };
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io_error(error)),
            Ok(file) if !file.file_type().is_socket() => {
                let path = path.to_owned();
                return Err(SocketError::NotASocket { path });
            }
            Ok(_) => match UnixStream::connect(path) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    fs::remove_file(path).map_err(io_error)?;
                }
                Err(error) => return Err(io_error(error)),
                Ok(_) => {
                    let path = path.to_owned();
                    return Err(SocketError::InUse { path });
                }
            },
        }
        if let Some(directory) = path.parent().filter(|directory| !directory.exists()) {
            fs::create_dir_all(directory).map_err(io_error)?;
            // Whatever the umask: each socket says by itself who may connect.
            fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).map_err(io_error)?;
        }
        let listener = UnixListener::bind(path).map_err(io_error)?;
        let path = path.to_owned();
        let socket = Socket { listener, path };
        // Until here the usual umask keeps others from writing to it, and so from connecting.
        let only_owner = fs::Permissions::from_mode(0o600);
        fs::set_permissions(&socket.path, only_owner).map_err(io_error)?;
        Ok(socket)
    }

    /// The same for the members of a group too, if there is one. Without the right to give a file
    /// to the group it stays this user's, which is said.
    pub fn bind_for(path: &Path, group: Option<u32>) -> Result<Socket, SocketError> {
        let socket = Socket::bind(path)?;
        let open = |gid| {
            // A daemon of that group needs no right for it, and the packaged one has none.
            if fs::symlink_metadata(path)?.gid() != gid {
                chown(path, None, Some(gid))?;
            }
            fs::set_permissions(path, fs::Permissions::from_mode(0o660))
        };
        if let Some(Err(error)) = group.map(open) {
            event!(
                group_not_admitted,
                "cannot open {} to its group: {error}; give pghot CAP_CHOWN",
                path.display()
            );
        }
        Ok(socket)
    }
}

/// The number of a group, if the system knows it.
pub fn group_id(name: &CStr) -> Option<u32> {
    // SAFETY: all zeroes is a value of a struct of pointers and a number.
    let mut group: libc::group = unsafe { std::mem::zeroed() };
    // Its list of members is not of interest, but must fit.
    let mut buffer = vec![0; 1 << 20];
    let mut found = std::ptr::null_mut();
    // SAFETY: all pointers live as long as the call, and the buffer has the length that is given.
    let error = unsafe {
        libc::getgrnam_r(
            name.as_ptr(),
            &mut group,
            buffer.as_mut_ptr(),
            buffer.len(),
            &mut found,
        )
    };
    (error == 0 && !found.is_null()).then_some(group.gr_gid)
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn others_cannot_connect() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sock");
        let _socket = Socket::bind(&path).unwrap();
        let mode = fs::symlink_metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o117, 0, "{mode:o}");
        assert_eq!(mode & 0o600, 0o600, "{mode:o}");
    }

    #[test]
    fn a_used_socket_is_an_error_and_a_stale_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/sock");
        let first = Socket::bind(&path).unwrap();
        assert!(matches!(
            Socket::bind(&path),
            Err(SocketError::InUse { .. })
        ));
        assert!(path.exists(), "the loser leaves the winner's socket");
        // A killed daemon leaves its file.
        let Socket { listener, .. } = &first;
        let fd = listener.as_raw_fd();
        // SAFETY: the descriptor is open.
        unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
        let second = Socket::bind(&path).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
        drop(second);
        drop(first);

        let file = dir.path().join("file");
        fs::write(&file, "precious").unwrap();
        assert!(matches!(
            Socket::bind(&file),
            Err(SocketError::NotASocket { .. })
        ));
        assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    }

    #[test]
    fn a_group_may_connect_if_it_exists() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/sock");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        // SAFETY: takes nothing and cannot fail.
        let own = unsafe { libc::getegid() };
        let socket = Socket::bind_for(&path, Some(own)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().gid(), own);
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o660, 0o755));
        drop(socket);
        let _socket = Socket::bind_for(&path, None).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(group_id(c"root"), Some(0));
        assert_eq!(group_id(c"no such group"), None);
    }
}
