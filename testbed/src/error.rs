//! What can go wrong on the way from a machine file to an answer of the guest.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Any failure of the testbed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the host could not be used.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A machine or kernel file has a wrong or missing field.
    #[error("{path}: {problem}", path = path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the field's name.
        problem: String,
    },
    /// The image was never fetched.
    #[error("kernel {name} is not in {dir}: run `make setup`", dir = dir.display())]
    KernelMissing {
        /// Its name in `kernels.toml`.
        name: String,
        /// Where it was looked for.
        dir: PathBuf,
    },
    /// What only some tests or benchmarks need is not in the cache.
    #[error("{name} is missing ({reason}): run `testbed/setup.sh {option}`")]
    ProgramMissing {
        /// Its name.
        name: String,
        /// Why it is missing, as `setup.sh` said.
        reason: String,
        /// What brings it.
        option: &'static str,
    },
    /// A binary for the guest was never built.
    #[error("{path} is missing: run `{command}`", path = path.display())]
    BinaryMissing {
        /// Where it was looked for.
        path: PathBuf,
        /// The command that builds it.
        command: String,
    },
    /// A binary needs a library that this host does not have.
    #[error("{binary} needs {library}, which was not found", binary = binary.display())]
    LibraryMissing {
        /// The binary.
        binary: PathBuf,
        /// The library's name.
        library: String,
    },
    /// The emulator could not be started.
    #[error("qemu-system-x86_64 does not start ({0}): run `make setup`")]
    Spawn(io::Error),
    /// The guest ended while something was asked of it: a panic, a power-off, or QEMU was killed.
    #[error("the guest is gone ({reason}) during {during}; its last words:\n{console}")]
    Gone {
        /// The call that was cut off.
        during: String,
        /// How QEMU ended.
        reason: String,
        /// End of the console.
        console: String,
    },
    /// The guest did not answer in time.
    #[error("no answer within {limit:?} to {during}; the guest's last words:\n{console}")]
    Hang {
        /// The call that was cut off.
        during: String,
        /// The limit that was reached.
        limit: Duration,
        /// End of the console.
        console: String,
    },
    /// The agent answered that it could not do what was asked.
    #[error("{call}: {reason}")]
    Refused {
        /// What was asked.
        call: String,
        /// The guest's reason.
        reason: String,
    },
    /// A condition did not come true in time.
    #[error("not within {limit:?}: {what}")]
    Never {
        /// What was waited for.
        what: String,
        /// The limit that was reached.
        limit: Duration,
    },
    /// The guest answered with something other than the question allows.
    #[error("{what} is not as expected: {found}")]
    Unexpected {
        /// What was looked at.
        what: String,
        /// What was there.
        found: String,
    },
}

impl Error {
    pub(crate) fn unexpected(what: &str, found: &impl Debug) -> Self {
        Self::Unexpected {
            what: what.to_owned(),
            found: format!("{found:?}"),
        }
    }

    /// For `map_err` on an operation on `path`.
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            path: path.to_owned(),
            source,
        }
    }
}
