//! Exit statuses: one for one kind of error, wherever it comes from.

use std::error::Error;
use std::fmt;
use std::io;

use pghot_daemon::config::ConfigError;
use pghot_daemon::error::RunError;
use pghot_daemon::protocol::ClientError;
use pghot_profile::file::ReadError;
use pghot_profile::table::TableError;
use pghot_sim::sweep::shard::MergeError;

/// Anything else.
pub const OTHER: u8 = 1;
/// What the user said is not possible.
pub const USAGE: u8 = 2;
/// Nobody is there to be asked.
pub const NOT_RUNNING: u8 = 3;
/// The user's rights do not suffice.
pub const DENIED: u8 = 4;

/// For `--help` and the man page. A damaged state file is no fault of who calls, and a daemon that
/// systemd starts again may find it mended: 2 would tell systemd not to.
pub const HELP: &str = "Exit status: 0 if all is well; 2 for what is invalid on the command line, \
                        in the config file, or in a scenario, table or profile that was named; 3 \
                        if the daemon is not running; 4 without the permission; 1 on any other \
                        error, such as a damaged state file.";

/// An error of a kind that has a status of its own; the sentence says what.
#[derive(Debug)]
pub enum Failure {
    /// What the user said is not possible.
    Usage(String),
    /// Nobody is there to be asked.
    NotRunning(String),
    /// The user's rights do not suffice.
    Denied(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Failure::Usage(sentence) | Failure::NotRunning(sentence) | Failure::Denied(sentence)) =
            self;
        f.write_str(sentence)
    }
}

impl Error for Failure {}

/// The status of an error, by what it or the first of its causes with a kind is.
pub fn status(error: &anyhow::Error) -> u8 {
    error.chain().find_map(of_cause).unwrap_or(OTHER)
}

fn of_cause(cause: &(dyn Error + 'static)) -> Option<u8> {
    if let Some(failure) = cause.downcast_ref() {
        return Some(match failure {
            Failure::Usage(_) => USAGE,
            Failure::NotRunning(_) => NOT_RUNNING,
            Failure::Denied(_) => DENIED,
        });
    }
    match cause.downcast_ref() {
        Some(ClientError::NotRunning { .. }) => return Some(NOT_RUNNING),
        Some(ClientError::Denied { .. } | ClientError::NoReader { .. }) => return Some(DENIED),
        _ => {}
    }
    match cause.downcast_ref() {
        Some(RunError::Target { .. }) => return Some(USAGE),
        Some(RunError::Rights { .. }) => return Some(DENIED),
        _ => {}
    }
    if let Some(ConfigError::Invalid { .. }) = cause.downcast_ref() {
        return Some(USAGE);
    }
    if let Some(pghot_sim::Error::Field { .. } | pghot_sim::Error::Parse { .. }) =
        cause.downcast_ref()
    {
        return Some(USAGE);
    }
    if cause.is::<MergeError>() {
        return Some(USAGE);
    }
    if let Some(TableError::Damaged { .. } | TableError::Field { .. }) = cause.downcast_ref() {
        return Some(USAGE);
    }
    if let Some(ReadError::Damaged { .. }) = cause.downcast_ref() {
        return Some(USAGE);
    }
    let system = cause.downcast_ref::<io::Error>()?;
    (system.kind() == io::ErrorKind::PermissionDenied).then_some(DENIED)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use anyhow::anyhow;
    use pghot_daemon::config::parse_file;
    use pghot_daemon::error::RestoreError;
    use pghot_linux::keeper::KeeperError;
    use pghot_linux::knobs::KnobsError;

    use super::*;

    #[test]
    fn one_kind_of_error_has_one_status() {
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let path = || PathBuf::from("/etc/pghot/pghot.toml");
        let socket = || "/run/pghot/pghot.sock".to_owned();
        let (meaning, advice) = (String::new(), "");
        let damaged = || KnobsError::Corrupt {
            path: PathBuf::from("/run/pghot/state.json"),
            why: String::new(),
        };
        let table: [(anyhow::Error, u8); 14] = [
            (Failure::Usage(String::new()).into(), USAGE),
            (parse_file(Path::new("x"), "x").unwrap_err().into(), USAGE),
            (
                RunError::Target {
                    nid: 9,
                    why: "offline",
                    top: String::new(),
                }
                .into(),
                USAGE,
            ),
            (
                pghot_sim::Error::Parse {
                    path: path(),
                    message: String::new(),
                }
                .into(),
                USAGE,
            ),
            (
                ClientError::NotRunning { socket: socket() }.into(),
                NOT_RUNNING,
            ),
            (Failure::NotRunning(String::new()).into(), NOT_RUNNING),
            (ClientError::Denied { socket: socket() }.into(), DENIED),
            (ClientError::NoReader { socket: socket() }.into(), DENIED),
            (RunError::Rights { meaning, advice }.into(), DENIED),
            (
                ConfigError::Read {
                    path: path(),
                    source: denied(),
                }
                .into(),
                DENIED,
            ),
            (RunError::NoLowerTier.into(), OTHER),
            (RestoreError::from(damaged()).into(), OTHER),
            (
                RunError::from(KeeperError::Refused(damaged().to_string())).into(),
                OTHER,
            ),
            (anyhow!("anything"), OTHER),
        ];
        for (error, expected) in table {
            assert_eq!(status(&error), expected, "{error:?}");
        }
    }
}
