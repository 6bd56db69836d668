//! What can be wrong with what a user asks for.

use std::path::PathBuf;

/// What can be wrong with what a user asks for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A field has an impossible value.
    #[error("{name}: {what}")]
    Field {
        /// The field, as in the scenario file.
        name: String,
        /// What is wrong with it.
        what: String,
    },
    /// A file cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {path}: {source}", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{path} is not a scenario: {message}", path = path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        message: String,
    },
}

impl Error {
    pub(crate) fn field(name: impl Into<String>, what: impl Into<String>) -> Error {
        Error::Field {
            name: name.into(),
            what: what.into(),
        }
    }
}

/// Names the first of some fields of a table that is no time.
pub(crate) fn check_times(table: &str, fields: &[(&str, f64)]) -> Result<(), Error> {
    let wrong = fields
        .iter()
        .find(|(_, ns)| !(ns.is_finite() && *ns >= 0.0));
    wrong.map_or(Ok(()), |(name, ns)| {
        Err(Error::field(
            format!("{table}.{name}"),
            format!("{ns} is not a time"),
        ))
    })
}
