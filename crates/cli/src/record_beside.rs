//! Who else reads and clears the accessed bits that `pghot record` does: the daemon's sources, and
//! DAMON.
//!
//! Two that clear the same bits each miss what the other has seen.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use pghot_daemon::protocol::{self, ClientError, Request, Response};
use pghot_daemon::status::{SourceState, Status};
use pghot_linux::SysRoot;
use pghot_linux::conflicts::readers_of_accessed_bits;
use pghot_sources::{Kind, SOURCES, tunables};

/// Sources of a daemon that are off until this is dropped.
pub struct Paused {
    socket: PathBuf,
    /// `enabled_sources` before, and meanwhile.
    before: u64,
    without: u64,
}

impl Paused {
    /// Switches off those that read accessed bits, if any run and `may_pause`; refuses if they may
    /// not be.
    pub fn sources(socket: &Path, may_pause: bool) -> Result<Option<Paused>> {
        let status = match protocol::ask(socket, &Request::Status) {
            Ok(Response::Status(status)) => status,
            Err(ClientError::NotRunning { .. }) => return Ok(None),
            Ok(_) => return Err(anyhow!("the daemon did not answer with its status")),
            Err(error) => return Err(error.into()),
        };
        if let Some(recording) = &status.recording {
            return Err(anyhow!(
                "the daemon records already, to {}, and both would miss what the other sees: use \
                 that profile, or restart the daemon without record_file",
                recording.file
            ));
        }
        let readers = SOURCES
            .iter()
            .filter(|source| source.kind == Kind::PageTables);
        let running: Vec<_> = readers
            .filter(|reader| {
                let mut sources = status.sources.iter();
                sources.any(|source| {
                    source.name == reader.name && source.state == SourceState::Running
                })
            })
            .collect();
        let Some(reader) = running.first() else {
            return Ok(None);
        };
        let bits: u32 = running.iter().map(|reader| reader.bit).sum();
        let before = enabled(&status);
        let without = before & !u64::from(bits);
        if !may_pause {
            return Err(anyhow!(
                "the daemon's source {} reads the same accessed bits, and both would miss what the \
                 other sees: record with --pause-sources, or switch it off yourself with `pghot \
                 set enabled_sources {}`",
                reader.name,
                names(without)
            ));
        }
        set(socket, without)?;
        Ok(Some(Paused {
            socket: socket.to_owned(),
            before,
            without,
        }))
    }

    /// As before, unless somebody else has set them meanwhile. A daemon that has ended needs
    /// nothing.
    fn resume(&self) -> Result<()> {
        match protocol::ask(&self.socket, &Request::Status) {
            Ok(Response::Status(status)) if enabled(&status) == self.without => {
                set(&self.socket, self.before)
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        if let Err(error) = self.resume() {
            eprintln!(
                "pghot: warning: the daemon's sources stay off: {error:#}; switch them on again \
                 with `pghot set enabled_sources {}`",
                names(self.before)
            );
        }
    }
}

fn enabled(status: &Status) -> u64 {
    let setting = status.settings.get("enabled_sources");
    setting.and_then(|setting| setting.value).unwrap_or(0)
}

/// A mask as `pghot set` takes it.
fn names(mask: u64) -> String {
    let tunable = tunables::find("enabled_sources");
    tunable.map_or_else(|_| format!("{mask:#x}"), |tunable| tunable.show(mask))
}

fn set(socket: &Path, mask: u64) -> Result<()> {
    let request = Request::Set {
        name: "enabled_sources".to_owned(),
        value: names(mask),
    };
    match protocol::ask(socket, &request)? {
        Response::Done { .. } => Ok(()),
        Response::Error(sentence) | Response::Invalid(sentence) => Err(anyhow!(sentence)),
        _ => Err(anyhow!("the daemon did not answer what it was asked")),
    }
}

/// Those of the kernel are no reason not to record: what they take is small, of huge pages alone it
/// is much. Returns their names.
pub fn warn_of_the_kernels_readers(root: &SysRoot) -> BTreeSet<String> {
    let found = readers_of_accessed_bits(root);
    for fight in &found {
        eprintln!(
            "pghot: warning: {} clears accessed bits, which the recording then misses, of huge \
             pages above all; to switch it off: {}",
            fight.id, fight.advice
        );
    }
    found.iter().map(|fight| fight.id.to_owned()).collect()
}
