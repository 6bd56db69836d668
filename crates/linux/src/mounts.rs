//! Opening a file by its number, through any mount of its file system.
//!
//! Nothing stays open: a file kept open would keep its inode in memory, and a mount kept open would
//! keep it from being unmounted.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use pghot_engine::{FileId, Outcome};

use crate::root::{ReadError, SysRoot};

/// How a file system writes inode number and generation into a file handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Ext4,
    Xfs,
    Btrfs,
    Tmpfs,
}

/// File systems whose files can be opened by number. Local ones only, because a network file
/// system whose server is silent would hold up the migrator.
const FORMS: &[(&str, Form)] = &[
    ("ext4", Form::Ext4),
    // The driver of ext4 serves these as well, under their own names.
    ("ext3", Form::Ext4),
    ("ext2", Form::Ext4),
    ("xfs", Form::Xfs),
    ("btrfs", Form::Btrfs),
    ("tmpfs", Form::Tmpfs),
];

/// `MAX_HANDLE_SZ` of linux/exportfs.h.
const HANDLE_BYTES_MAX: usize = 128;

/// Handle types of linux/exportfs.h and of the file systems.
const INO32_GEN: i32 = 1;
const XFS_INO64: i32 = 0x80;
const BTRFS_WITHOUT_PARENT: i32 = 0x4d;

/// `struct file_handle`, with room for the longest.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    data: [u8; HANDLE_BYTES_MAX],
}

impl Handle {
    fn new(kind: i32, parts: &[&[u8]]) -> Handle {
        let content = parts.concat();
        let mut data = [0; HANDLE_BYTES_MAX];
        data[..content.len()].copy_from_slice(&content);
        Handle {
            bytes: content.len() as u32,
            kind,
            data,
        }
    }

    /// The handle of `file`, by the example of another file's in the same file system.
    fn of(file: &FileId, form: Form, example: &Handle) -> Handle {
        let inode = file.inode.to_ne_bytes();
        let inode32 = (file.inode as u32).to_ne_bytes();
        let generation = file.generation.to_ne_bytes();
        match form {
            Form::Xfs if example.kind & XFS_INO64 != 0 => {
                Handle::new(XFS_INO64 | INO32_GEN, &[&inode, &generation])
            }
            Form::Ext4 | Form::Xfs => Handle::new(INO32_GEN, &[&inode32, &generation]),
            // The second number is the subvolume's; a file of another one is not found.
            Form::Btrfs => {
                let subvolume = &example.data[8..16];
                Handle::new(BTRFS_WITHOUT_PARENT, &[&inode, subvolume, &generation])
            }
            Form::Tmpfs => Handle::new(INO32_GEN, &[&generation, &inode]),
        }
    }
}

/// A line of `mountinfo`.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    id: i32,
    /// As in [`FileId`].
    device: u32,
    path: PathBuf,
    form: Form,
}

/// The mounts of this process.
pub struct Mounts {
    mountinfo: File,
    mounts: Vec<Mount>,
}

impl Mounts {
    /// Reads the mounts.
    pub fn open(root: &SysRoot) -> Result<Mounts, ReadError> {
        let path = root.proc.join("self/mountinfo");
        let opened = File::open(&path).and_then(|mountinfo| {
            let mut mounts = Mounts {
                mountinfo,
                mounts: Vec::new(),
            };
            mounts.read().map(|()| mounts)
        });
        opened.map_err(|source| ReadError::Io { path, source })
    }

    fn read(&mut self) -> io::Result<()> {
        let mut text = Vec::new();
        self.mountinfo.rewind()?;
        self.mountinfo.read_to_end(&mut text)?;
        let text = String::from_utf8_lossy(&text);
        self.mounts = text.lines().filter_map(parse).collect();
        Ok(())
    }

    /// The kernel flags the open file when a mount comes or goes, so the text, which may be long,
    /// is read only then.
    fn have_changed(&self) -> bool {
        let mut wanted = libc::pollfd {
            fd: self.mountinfo.as_raw_fd(),
            events: libc::POLLPRI,
            revents: 0,
        };
        // SAFETY: `wanted` is one valid entry, and a timeout of 0 does not wait.
        unsafe { libc::poll(&mut wanted, 1, 0) > 0 && wanted.revents & libc::POLLPRI != 0 }
    }

    /// Opens a regular file for reading, without changing its access time. A refusal is the outcome
    /// of its pages.
    pub fn open_file(&mut self, file: &FileId) -> Result<File, Outcome> {
        if self.have_changed() && self.read().is_err() {
            return Err(Outcome::Failed);
        }
        let of_device = self.mounts.iter().filter(|m| m.device == file.device);
        for mount in of_device {
            // A mount that is not where its line says is hidden below another one.
            let Ok((dir, example)) = mount.open() else {
                continue;
            };
            let handle = Handle::of(file, mount.form, &example);
            let opened = open_by_handle(dir.as_raw_fd(), &handle);
            let opened = opened.map_err(|error| refusal(&error, mount.form))?;
            let metadata = opened.metadata().map_err(|_| Outcome::Failed)?;
            if !metadata.is_file() || metadata.ino() != file.inode {
                return Err(Outcome::Gone);
            }
            return Ok(opened);
        }
        Err(Outcome::Unopenable)
    }
}

impl Mount {
    /// Opens its root, and gives the root's handle for an example.
    fn open(&self) -> io::Result<(File, Handle)> {
        let dir = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_NONBLOCK)
            .open(&self.path)?;
        let mut example = Handle::new(0, &[&[0; HANDLE_BYTES_MAX]]);
        let mut id = 0;
        let empty = CString::default();
        // SAFETY: `example` has room for the `bytes` it says, and the other pointers are valid.
        let result = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                dir.as_raw_fd(),
                empty.as_ptr(),
                &raw mut example,
                &raw mut id,
                libc::AT_EMPTY_PATH,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        if id != self.id {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok((dir, example))
    }
}

/// Without waiting for anybody: not for a lease's holder, and if the number should belong to
/// something else by now, not for a device or a pipe either.
fn open_by_handle(mount: RawFd, handle: &Handle) -> io::Result<File> {
    let flags = libc::O_RDONLY | libc::O_NOATIME | libc::O_NONBLOCK | libc::O_CLOEXEC;
    // SAFETY: `handle` is readable for the `bytes` it says.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            mount,
            &raw const *handle,
            flags,
        )
    };
    match RawFd::try_from(fd) {
        // SAFETY: the descriptor is new and ours alone.
        Ok(fd) if fd >= 0 => Ok(unsafe { File::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

fn refusal(error: &io::Error, form: Form) -> Outcome {
    match error.raw_os_error() {
        // tmpfs finds only files whose handle somebody asked for since they were made.
        Some(libc::ESTALE) if form == Form::Tmpfs => Outcome::Unopenable,
        Some(libc::ESTALE | libc::ENOENT) => Outcome::Gone,
        Some(libc::EPERM | libc::EACCES) => Outcome::Denied,
        Some(libc::EAGAIN) => Outcome::Busy,
        Some(libc::ELOOP | libc::ENXIO | libc::ENODEV | libc::EINVAL | libc::EOPNOTSUPP) => {
            Outcome::Unopenable
        }
        _ => Outcome::Failed,
    }
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw`, of a known file system.
fn parse(line: &str) -> Option<Mount> {
    let (mount, file_system) = line.split_once(" - ")?;
    let fields: Vec<&str> = mount.split(' ').collect();
    let name = file_system.split(' ').next()?;
    let (_, form) = FORMS.iter().find(|(known, _)| *known == name)?;
    let (major, minor) = fields.get(2)?.split_once(':')?;
    Some(Mount {
        id: fields.first()?.parse().ok()?,
        device: major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?,
        path: PathBuf::from(unescape(fields.get(4)?)),
        form: *form,
    })
}

/// Space, tab, newline and backslash are written as three octal digits.
fn unescape(path: &str) -> String {
    ["\\040", "\\011", "\\012", "\\134"]
        .iter()
        .zip([" ", "\t", "\n", "\\"])
        .fold(path.to_owned(), |path, (code, plain)| {
            path.replace(code, plain)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId {
        device: 259 << 20 | 1,
        inode: 0x1_0000_0083,
        generation: 7,
    };

    fn bytes(form: Form, example: &Handle) -> (i32, Vec<u8>) {
        let handle = Handle::of(&FILE, form, example);
        (handle.kind, handle.data[..handle.bytes as usize].to_vec())
    }

    #[test]
    fn handles_are_written_as_each_file_system_reads_them() {
        let example = |kind| Handle::new(kind, &[&[9; 20]]);
        let inode = [0x83, 0, 0, 0, 1, 0, 0, 0];
        let generation = [7, 0, 0, 0];
        let ino32 = (1, [&inode[..4], &generation].concat());
        let ino64 = (0x81, [&inode[..], &generation].concat());
        assert_eq!(bytes(Form::Ext4, &example(1)), ino32);
        assert_eq!(bytes(Form::Xfs, &example(1)), ino32);
        assert_eq!(bytes(Form::Xfs, &example(0x81)), ino64);
        let tmpfs = (1, [&generation[..], &inode].concat());
        assert_eq!(bytes(Form::Tmpfs, &example(1)), tmpfs);
        let btrfs = (0x4d, [&inode[..], &[9; 8], &generation].concat());
        assert_eq!(bytes(Form::Btrfs, &example(0x4d)), btrfs);
    }

    #[test]
    fn mounts_of_known_local_file_systems_are_kept() {
        let line = "41 29 259:1 / /mnt/my\\040data rw,noatime shared:5 - ext4 /dev/nvme0n1p1 rw";
        let mount = Mount {
            id: 41,
            device: FILE.device,
            path: "/mnt/my data".into(),
            form: Form::Ext4,
        };
        assert_eq!(parse(line), Some(mount));
        assert_eq!(parse("41 29 0:50 / /home rw - nfs4 server:/home rw"), None);
        assert_eq!(parse("nonsense"), None);
    }
}
