//! The guest's files: what is mounted, and what the standard library has no call for.

use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};

use pghot_testbed::protocol::Answer;

/// File system type and where it goes, in an order in which each directory exists.
const MOUNTS: [(&str, &str); 9] = [
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("tmpfs", "/tmp"),
    ("tmpfs", "/run"),
    ("debugfs", "/sys/kernel/debug"),
    ("tracefs", "/sys/kernel/tracing"),
    ("bpf", "/sys/fs/bpf"),
    ("cgroup2", "/sys/fs/cgroup"),
];

/// Mounts everything the project may want to look at.
pub fn mount_all() -> io::Result<()> {
    for (kind, target) in MOUNTS {
        let (kind_c, target_c) = (CString::new(kind)?, CString::new(target)?);
        let no_data = std::ptr::null();
        // SAFETY: both strings are NUL-terminated and live through the call; no data is passed.
        let done = unsafe {
            libc::mount(
                kind_c.as_ptr(),
                target_c.as_ptr(),
                kind_c.as_ptr(),
                0,
                no_data,
            )
        };
        if done != 0 {
            let error = io::Error::last_os_error();
            // A kernel booted with `debugfs=off` has not even the directory.
            if kind == "debugfs" && error.kind() == io::ErrorKind::NotFound {
                continue;
            }
            return Err(io::Error::new(
                error.kind(),
                format!("mount of {target}: {error}"),
            ));
        }
    }
    Ok(())
}

/// Writes with a single write(2): for many files of proc and sysfs each write is a command.
pub fn write(path: &str, data: &[u8], append: bool) -> io::Result<Answer> {
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create(true)
        .append(append)
        .truncate(!append);
    let written = options.open(path)?.write(data)?;
    if written == data.len() {
        return Ok(Answer::Done);
    }
    Err(io::Error::other(format!(
        "only {written} of {} bytes were taken",
        data.len()
    )))
}

/// The names in a directory.
pub fn list(path: &str) -> io::Result<Answer> {
    let name = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into());
    let mut names = fs::read_dir(path)?
        .map(name)
        .collect::<io::Result<Vec<String>>>()?;
    names.sort();
    Ok(Answer::Names(names))
}
