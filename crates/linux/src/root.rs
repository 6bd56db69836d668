//! Reads the kernel's small text files below `/proc` and `/sys`, or below a fake tree in a test.

use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where the kernel's two file trees are mounted.
///
/// Passed to every reader instead of being a constant, so that a test can describe a machine with
/// a directory of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SysRoot {
    /// procfs; `/proc` on a real machine.
    pub proc: PathBuf,
    /// sysfs; `/sys` on a real machine. debugfs is looked for at `kernel/debug` below it.
    pub sys: PathBuf,
}

impl Default for SysRoot {
    fn default() -> Self {
        Self {
            proc: std::env::var_os(PROC).map_or("/proc".into(), PathBuf::from),
            sys: "/sys".into(),
        }
    }
}

/// Names the host's `/proc` where the own one cannot be written, as in a container that is not
/// privileged.
pub const PROC: &str = "PGHOT_PROC";

impl SysRoot {
    /// A tree with `proc` and `sys` directories below `dir`.
    pub fn under(dir: &Path) -> Self {
        Self {
            proc: dir.join("proc"),
            sys: dir.join("sys"),
        }
    }

    /// The file of a sysctl written the way sysctl(8) prints it, e.g. `kernel.numa_balancing`.
    pub fn sysctl(&self, name: &str) -> PathBuf {
        self.proc.join("sys").join(name.replace('.', "/"))
    }
}

/// A kernel file could not be read, or does not say what the kernel documents.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Opening or reading failed.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the kernel answered.
        source: io::Error,
    },
    /// The text is not in the documented form.
    #[error("{} holds {found:?}, which is not {expected}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What the kernel's documentation promises.
        expected: &'static str,
        /// The offending text.
        found: String,
    },
}

impl ReadError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io {
            path: path.to_path_buf(),
            source,
        }
    }

    pub(crate) fn malformed(path: &Path, expected: &'static str, found: &str) -> Self {
        Self::Malformed {
            path: path.to_path_buf(),
            expected,
            found: found.to_owned(),
        }
    }

    /// The file is absent: this kernel lacks the feature, or the object went away meanwhile.
    pub fn is_not_found(&self) -> bool {
        self.has_kind(io::ErrorKind::NotFound)
    }

    /// The file is there, but not for us.
    pub fn is_denied(&self) -> bool {
        self.has_kind(io::ErrorKind::PermissionDenied)
    }

    fn has_kind(&self, kind: io::ErrorKind) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == kind)
    }
}

/// The text of a file without surrounding white space.
pub(crate) fn read_text(path: &Path) -> Result<String, ReadError> {
    let text = std::fs::read_to_string(path).map_err(|source| ReadError::io(path, source))?;
    Ok(text.trim().to_owned())
}

/// As [`read_text`], with an absent file as `None`: most kernel files are optional.
pub(crate) fn read_optional(path: &Path) -> Result<Option<String>, ReadError> {
    match read_text(path) {
        Err(error) if error.is_not_found() => Ok(None),
        other => other.map(Some),
    }
}

/// One decimal number.
pub(crate) fn read_number<T: FromStr>(path: &Path) -> Result<T, ReadError> {
    let text = read_text(path)?;
    text.parse()
        .map_err(|_| ReadError::malformed(path, "a decimal number", &text))
}

/// The `N` of every entry `prefixN` in a directory, ascending; an absent directory has none.
pub(crate) fn numbered_entries(dir: &Path, prefix: &str) -> Result<Vec<u64>, ReadError> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(ReadError::io(dir, error)),
    };
    let mut numbers = Vec::new();
    for entry in entries {
        let name = entry
            .map_err(|source| ReadError::io(dir, source))?
            .file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(prefix));
        numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}
