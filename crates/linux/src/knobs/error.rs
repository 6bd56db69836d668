//! Why a setting could not be changed or put back.

use std::io;
use std::path::PathBuf;

use crate::root::ReadError;

/// A setting could not be changed or put back safely.
#[derive(Debug, thiserror::Error)]
pub enum KnobsError {
    /// A kernel file could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The kernel refused a value.
    #[error("cannot write {value} to {}: {source}", path.display())]
    Write {
        /// The setting.
        path: PathBuf,
        /// What should have been written.
        value: String,
        /// What the kernel answered.
        source: io::Error,
    },
    /// All is put back already, and must stay so.
    #[error("{} stays as it is: this pghot is ending, its settings are put back", path.display())]
    Over {
        /// The setting that was to change.
        path: PathBuf,
    },
    /// pghot changes a closed list of settings.
    #[error("{} is none of the kernel settings that pghot changes", path.display())]
    NotASetting {
        /// The path.
        path: PathBuf,
    },
    /// This kernel was built without the setting.
    #[error("{} does not exist: {why}", path.display())]
    Missing {
        /// The setting.
        path: PathBuf,
        /// Which kernel option or version brings it.
        why: &'static str,
    },
    /// The state file belongs to a live process.
    #[error(
        "pghot is already running: its keeper, process {pid}, holds {}",
        state_path.display()
    )]
    AlreadyRunning {
        /// That process.
        pid: u32,
        /// Its state file.
        state_path: PathBuf,
    },
    /// The state file cannot be trusted, so nothing was written back from it.
    #[error(
        "the state file {} is damaged ({why}): check that kernel.numa_balancing and \
         kernel.numa_balancing_promote_rate_limit_MBps hold what you want, then delete the file",
        path.display()
    )]
    Corrupt {
        /// The state file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The state file names what pghot never changes, so nothing was written back from it.
    #[error(
        "the state file {} names {}, which pghot never changes, so pghot did not write it: check \
         that kernel.numa_balancing and kernel.numa_balancing_promote_rate_limit_MBps hold what \
         you want, then delete the file",
        path.display(),
        names.display()
    )]
    ForeignState {
        /// The state file.
        path: PathBuf,
        /// What is not a setting of pghot's.
        names: PathBuf,
    },
    /// Another version of pghot wrote the state file.
    #[error(
        "the state file {} has format {found}, this pghot writes format {written}: \
         run `pghot restore` of the version that wrote it",
        path.display()
    )]
    UnknownVersion {
        /// The state file.
        path: PathBuf,
        /// Its format version.
        found: u32,
        /// The one that this version writes.
        written: u32,
    },
    /// The state file could not be written or removed.
    #[error("cannot {action} the state file {}: {source}", path.display())]
    StateFile {
        /// "read", "write", "lock" or "remove".
        action: &'static str,
        /// The state file.
        path: PathBuf,
        /// What the file system answered.
        source: io::Error,
    },
}
