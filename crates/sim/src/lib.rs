//! A modelled tiered machine that runs pghot's own engine: to try a policy or a size of DRAM before
//! buying it, and to see what the engine does on machines that nobody here has.
//!
//! A [`scenario::Scenario`] says what the machine is and what runs on it. A [`run::Simulation`]
//! takes it through slices of simulated time: processes access memory ([`traffic`]), the kernel
//! scans and reclaims ([`scan`], [`reclaim`]), and the system under test ([`systems`]) decides what
//! moves. The same scenario and seed give the same run, to the byte.
//!
//! Beside it there is a machine of several sockets without tiers ([`sockets`]), for the policies of
//! 2012 that moved pages and threads to each other.
//!
//! What a page costs the model: one byte of state, and in the hotness records what it costs the
//! daemon.

pub mod chaos;
pub mod copying;
pub mod emulated;
pub mod heat;
pub mod machine;
pub mod memory;
pub mod node;
mod parallel;
pub mod plan;
pub mod rates;
pub mod reclaim;
pub mod replay;
pub mod run;
pub mod scan;
pub mod scenario;
pub mod sockets;
pub mod sweep;
#[cfg(feature = "parquet")]
pub mod sweep_parquet;
pub mod sweep_report;
pub mod systems;
pub mod tables;
pub mod task;
pub mod traffic;
pub mod trouble;
pub mod world;

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
    fn field(name: impl Into<String>, what: impl Into<String>) -> Error {
        Error::Field {
            name: name.into(),
            what: what.into(),
        }
    }
}
