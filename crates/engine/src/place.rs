//! Where a folio can be got hold of: through a process that maps it, or through its file.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Pid;

/// A file, as the kernel tells it from all others for as long as its file system is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct FileId {
    /// The file system's device number in the kernel's encoding: 12 bits major, 20 bits minor.
    pub device: u32,
    /// The inode number.
    pub inode: u64,
    /// Told from the earlier users of the inode number.
    pub generation: u32,
}

impl FileId {
    /// The upper part of the device number.
    pub fn major(&self) -> u32 {
        self.device >> 20
    }

    /// The lower part of the device number.
    pub fn minor(&self) -> u32 {
        self.device & 0xf_ffff
    }
}

impl fmt::Display for FileId {
    /// As in `/proc/locks`: device, then inode.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.major(), self.minor(), self.inode)
    }
}

/// Through whom a folio moves. A batch has one owner, because a call serves one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Owner {
    /// A process that maps it.
    Process(Pid),
    /// Its file: nobody maps it, it is page cache that is read and written by system calls.
    File(FileId),
}

/// A process, as an operator knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Program {
    /// Its number.
    pub pid: Pid,
    /// Its name, of which the kernel keeps 15 letters.
    pub name: String,
    /// The path of its cgroup below the mount of cgroup v2, with a slash in front; empty if there
    /// is none.
    pub cgroup: String,
}

impl Program {
    /// Stands for what cannot be told. No path begins so.
    pub const UNKNOWN: &str = "(unknown)";

    /// Stands for page cache that no process maps.
    pub fn page_cache() -> Program {
        Program::standing_for("(page cache)")
    }

    /// Stands for pages that neither a process nor a file was found for.
    pub fn nobody() -> Program {
        Program::standing_for("(nobody)")
    }

    /// Stands for a process that is gone.
    pub fn unknown() -> Program {
        Program::standing_for(Program::UNKNOWN)
    }

    fn standing_for(what: &str) -> Program {
        Program {
            pid: 0,
            name: what.to_owned(),
            cgroup: what.to_owned(),
        }
    }
}

/// A folio's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Place {
    /// Whose it is.
    pub owner: Owner,
    /// An address of the folio in the process, or its first byte's offset in the file.
    pub address: u64,
}

impl Place {
    /// An address of a process.
    pub fn in_process(pid: Pid, address: u64) -> Place {
        Place {
            owner: Owner::Process(pid),
            address,
        }
    }

    /// An offset in a file, in bytes.
    pub fn in_file(file: FileId, offset_bytes: u64) -> Place {
        Place {
            owner: Owner::File(file),
            address: offset_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_shown_by_device_and_inode() {
        let file = FileId {
            device: 259 << 20 | 3,
            inode: 131,
            generation: 7,
        };
        assert_eq!(file.to_string(), "259:3:131");
    }
}
