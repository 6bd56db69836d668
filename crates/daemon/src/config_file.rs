//! The config file of a running daemon, and what came of reading it again.

use std::path::PathBuf;
use std::sync::Mutex;

use crate::config::{Options, Told};
use crate::lock;
use crate::status::ReloadReport;

/// The config file of a running daemon.
#[derive(Default)]
pub struct ConfigFile {
    /// Where it is.
    pub path: PathBuf,
    /// The command line of the daemon, which overrides it.
    pub told: Told,
    /// As it was read last without an error; held while it is read again, so that reloads come one
    /// after the other.
    pub read: Mutex<Option<Options>>,
    /// What came of it.
    pub last: Mutex<Option<ReloadReport>>,
}

impl ConfigFile {
    /// It was read for the start.
    pub fn new(options: &Options) -> ConfigFile {
        ConfigFile {
            path: options.told.path().to_owned(),
            told: options.told.clone(),
            read: Mutex::new(Some(options.clone())),
            last: Mutex::default(),
        }
    }

    /// What came of the last reload, if there was one.
    pub fn last(&self) -> Option<ReloadReport> {
        lock(&self.last).clone()
    }
}
