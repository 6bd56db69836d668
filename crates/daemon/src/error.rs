//! Why `pghot run` and `pghot restore` fail: each a sentence that says what to do.

use std::io;
use std::time::Duration;

use pghot_hotness::Nid;
use pghot_linux::claim::ClaimError;
use pghot_linux::keeper::KeeperError;
use pghot_linux::knobs::KnobsError;
use pghot_linux::{HostError, ReadError};

use crate::metrics::ListenError;
use crate::socket::SocketError;

/// Why the daemon could not start, or how it ended badly.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Nothing to promote from.
    #[error(
        "this machine has no lower memory tier, so there is nothing to promote: a lower tier is \
         memory on a node of its own that the kernel knows to be slower, such as CXL or persistent \
         memory; if it comes online later, add --wait-for-lower-tier; `pghot doctor` shows the \
         nodes and their tiers"
    )]
    NoLowerTier,
    /// The kernel lacks something.
    #[error("pghot cannot run here: {meaning}; {advice}")]
    Unfit {
        /// What is missing.
        meaning: String,
        /// How to get it.
        advice: &'static str,
    },
    /// The user's rights do not suffice.
    #[error("pghot cannot run here: {meaning}; {advice}")]
    Rights {
        /// What is missing.
        meaning: String,
        /// How to get it.
        advice: &'static str,
    },
    /// `target_nid` names a node that cannot be promoted to.
    #[error("target_nid {nid} is {why}: choose a top-tier node ({top})")]
    Target {
        /// The node.
        nid: Nid,
        /// What is wrong with it.
        why: &'static str,
        /// The nodes that are possible.
        top: String,
    },
    /// No enabled source can run.
    #[error("none of the enabled hotness sources can run, so pghot would see no access: {0}")]
    NoSource(String),
    /// A kernel file could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The changed kernel settings could not be managed.
    #[error(transparent)]
    Keeper(#[from] KeeperError),
    /// Another daemon has this machine.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The control socket could not be used.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The metrics could not be served.
    #[error(transparent)]
    Metrics(#[from] ListenError),
    /// The records could not be set up.
    #[error(transparent)]
    Records(#[from] pghot_sources::Error),
    /// The lower tier's page frames or the settings do not fit the records.
    #[error(transparent)]
    Hotness(#[from] pghot_hotness::Error),
    /// The machine cannot be driven.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    /// Signals could not be caught, so the host could not be put back at their arrival.
    #[error("cannot catch signals: {0}")]
    Signals(#[source] io::Error),
    /// Threads did not end, most likely because the kernel lets them wait for a page.
    #[error(
        "pghot has put the kernel settings back and ends, but {0} did not: the kernel keeps it \
         waiting, maybe for a disk or a server that does not answer; the process is gone when \
         that ends"
    )]
    Stuck(String),
    /// A thread made no progress for the time of systemd's watchdog.
    #[error(
        "{thread} has made no progress for {} s, so pghot ends: the kernel keeps it waiting, maybe \
         for a disk or a server that does not answer",
        limit.as_secs_f64()
    )]
    Hung {
        /// The thread.
        thread: String,
        /// The watchdog's time.
        limit: Duration,
    },
    /// A thread panicked.
    #[error("{0} failed, please report the message above as a bug")]
    Panicked(String),
}

/// Why `pghot restore` could not put everything back.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The state file is in the way.
    #[error(transparent)]
    Knobs(#[from] KnobsError),
    /// A setting is; it stays in the state file for the next attempt.
    #[error("{0}")]
    Left(String),
}
