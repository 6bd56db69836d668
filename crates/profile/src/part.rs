//! A file that is written beside the one that it becomes, so that an older one stays until there is
//! a new one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", path.display())]
pub struct WriteError {
    /// The file.
    pub path: PathBuf,
    /// The system's answer.
    pub source: io::Error,
}

/// See the head of this file. It goes if it is dropped before it is kept.
pub struct Part {
    path: PathBuf,
    part: PathBuf,
    file: File,
}

impl Part {
    /// An empty one, which its owner alone can read: what programs do with their memory is nobody
    /// else's business.
    pub fn create(path: &Path) -> Result<Part, WriteError> {
        let mut part = path.to_owned().into_os_string();
        part.push(".part");
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let part = PathBuf::from(part);
        match options.open(&part) {
            Ok(file) => Ok(Part {
                path: path.to_owned(),
                part,
                file,
            }),
            Err(source) => Err(WriteError { path: part, source }),
        }
    }

    /// Where it is written, for who opens it himself.
    pub fn unfinished(&self) -> &Path {
        &self.part
    }

    /// With these bytes in it, it becomes the file.
    pub fn keep(mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let written = self.file.write_all(bytes);
        let written = written.and_then(|()| self.file.sync_all());
        written.map_err(|source| self.failed(source))?;
        self.rename()
    }

    /// As it was written by its path, it becomes the file.
    pub fn rename(self) -> Result<(), WriteError> {
        fs::rename(&self.part, &self.path).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> WriteError {
        WriteError {
            path: self.path.clone(),
            source,
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // It is gone if it was kept; that it stays is no harm.
        let _ = fs::remove_file(&self.part);
    }
}
