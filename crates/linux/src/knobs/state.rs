//! The state file of [`Knobs`](super::Knobs): its format, its owner, and writing it durably.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::KnobsError;
use super::settings::Settings;
use crate::root::{ReadError, SysRoot, read_optional, read_text};

const FORMAT_VERSION: u32 = 1;

/// One changed setting.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedKnob {
    pub path: PathBuf,
    pub original: String,
    /// Every value that may be there because of us. One value at rest; more while a change that
    /// goes through intermediate values is under way, or where the kernel prints another spelling.
    pub ours: Vec<String>,
}

/// The content of the state file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    version: u32,
    /// `/proc/sys/kernel/random/boot_id`
    boot_id: String,
    pub pid: u32,
    /// Clock ticks from boot to the start of `pid`: tells a reused pid from the daemon.
    start_ticks: u64,
    /// In the order of the changes.
    pub knobs: Vec<SavedKnob>,
}

/// Read before the rest, so that a newer format is named as such.
#[derive(Deserialize)]
struct StateVersion {
    version: u32,
}

impl State {
    /// A state owned by the calling process.
    pub fn of_this_process(root: &SysRoot, knobs: Vec<SavedKnob>) -> Result<Self, KnobsError> {
        let pid = std::process::id();
        let start_ticks = live_start_ticks(root, pid)?.ok_or_else(|| KnobsError::Missing {
            path: stat_path(root, pid),
            why: "without procfs pghot cannot tell later whether this process still runs",
        })?;
        Ok(Self {
            version: FORMAT_VERSION,
            boot_id: boot_id(root)?,
            pid,
            start_ticks,
            knobs,
        })
    }

    /// Reads and checks the state file; an absent one is `None`.
    pub fn load(root: &SysRoot, path: &Path) -> Result<Option<Self>, KnobsError> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(file_error("read", path, source)),
        };
        let corrupt = |why: String| KnobsError::Corrupt {
            path: path.to_path_buf(),
            why,
        };
        let StateVersion { version } =
            serde_json::from_slice(&text).map_err(|error| corrupt(error.to_string()))?;
        if version != FORMAT_VERSION {
            return Err(KnobsError::UnknownVersion {
                path: path.to_path_buf(),
                found: version,
                written: FORMAT_VERSION,
            });
        }
        let state: Self =
            serde_json::from_slice(&text).map_err(|error| corrupt(error.to_string()))?;
        let settings = Settings::new(root);
        match state.knobs.iter().find(|knob| !settings.has(&knob.path)) {
            Some(knob) => Err(KnobsError::ForeignState {
                path: path.to_path_buf(),
                names: knob.path.clone(),
            }),
            None => Ok(Some(state)),
        }
    }

    /// Replaces the state file, durably: a reader sees the old text or the new, never a part.
    pub fn save(&self, path: &Path) -> Result<(), KnobsError> {
        let temporary = beside(path, ".tmp");
        let save = || {
            let text = serde_json::to_string_pretty(self)?;
            let mut file = create_private(&temporary)?;
            file.set_len(0)?;
            writeln!(file, "{text}")?;
            file.sync_all()?;
            fs::rename(&temporary, path)?;
            sync_directory(path)
        };
        save().map_err(|source| file_error("write", path, source))
    }

    /// Removes the state file; an absent one is as good.
    pub fn remove(path: &Path) -> Result<(), KnobsError> {
        match fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.and_then(|()| sync_directory(path)),
        }
        .map_err(|source| file_error("remove", path, source))
    }

    /// Whether it was written since the machine booted.
    pub fn is_of_this_boot(&self, root: &SysRoot) -> Result<bool, ReadError> {
        Ok(self.boot_id == boot_id(root)?)
    }

    /// Whether the very process that wrote it still runs.
    pub fn owner_lives(&self, root: &SysRoot) -> Result<bool, ReadError> {
        Ok(live_start_ticks(root, self.pid)? == Some(self.start_ticks))
    }
}

/// Held while a state file is taken over, so that a daemon and `pghot restore` started together
/// do not undo each other's work. The lock file itself stays.
#[derive(Debug)]
pub(super) struct StateLock {
    /// Closing it unlocks.
    _file: File,
}

impl StateLock {
    /// Waits for the lock, creating the directory if need be.
    pub fn take(state_path: &Path) -> Result<Self, KnobsError> {
        let lock = || -> io::Result<File> {
            DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(directory(state_path))?;
            let file = create_private(&beside(state_path, ".lock"))?;
            // SAFETY: flock takes a descriptor, which `file` keeps open, and a number.
            while unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } != 0 {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            Ok(file)
        };
        let file = lock().map_err(|source| file_error("lock", state_path, source))?;
        Ok(Self { _file: file })
    }
}

fn boot_id(root: &SysRoot) -> Result<String, ReadError> {
    read_text(&root.sysctl("kernel.random.boot_id"))
}

fn stat_path(root: &SysRoot, pid: u32) -> PathBuf {
    root.proc.join(format!("{pid}/stat"))
}

/// Start time of a process in clock ticks since boot; `None` if it is gone or a zombie.
fn live_start_ticks(root: &SysRoot, pid: u32) -> Result<Option<u64>, ReadError> {
    let path = stat_path(root, pid);
    let Some(stat) = read_optional(&path)? else {
        return Ok(None);
    };
    // The command, field 2, may hold blanks and parentheses: count from the last ')'.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let mut fields = fields.split_whitespace();
    if matches!(fields.next(), Some("Z" | "X")) {
        return Ok(None);
    }
    // Field 22 of proc_pid_stat(5); the state just taken was field 3.
    match fields.nth(18).and_then(|ticks| ticks.parse().ok()) {
        Some(ticks) => Ok(Some(ticks)),
        None => Err(ReadError::malformed(
            &path,
            "a line as in proc_pid_stat(5)",
            &stat,
        )),
    }
}

/// Opens a file that only its owner may read or write, creating it if need be.
fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

/// `path` with a suffix, in the same directory.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(directory(path))?.sync_all()
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

pub(super) fn file_error(action: &'static str, path: &Path, source: io::Error) -> KnobsError {
    KnobsError::StateFile {
        action,
        path: path.to_path_buf(),
        source,
    }
}
