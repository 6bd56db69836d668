//! Changes kernel settings so that they are put back: at exit, on a signal, and after a kill -9.
//!
//! The promise rests on one order: a setting's original value is on disk before the setting
//! changes. The state file carries the boot id, so values of an earlier boot, which the kernel
//! has already reset, are never written.

use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use pghot_events::event;
use serde::{Deserialize, Serialize};

use crate::knobs::state::{SavedKnob, State, StateLock, file_error};
use crate::root::{SysRoot, read_text};

pub use error::KnobsError;
pub(crate) use settings::Settings;

mod error;
mod settings;
mod state;

/// How long who finds a living owner waits for its end: a keeper whose daemon has just been killed
/// is about to put the settings back.
const OWNER_ENDS_WITHIN: Duration = Duration::from_secs(1);
const OWNER_POLL: Duration = Duration::from_millis(10);

/// What happened to one setting when it was put back.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Restored {
    /// The setting.
    pub path: PathBuf,
    /// Its value before pghot.
    pub original: String,
    /// What was done.
    pub outcome: RestoreOutcome,
}

/// See [`Restored`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum RestoreOutcome {
    /// The original was written back.
    PutBack,
    /// It held the original already.
    AlreadyOriginal,
    /// Somebody else has changed it since: their choice stands.
    LeftAlone {
        /// The value it has now.
        present: String,
    },
    /// Reading or writing failed; it stays in the state file for the next attempt.
    Failed(String),
}

impl fmt::Display for Restored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, original) = (self.path.display(), &self.original);
        match &self.outcome {
            RestoreOutcome::PutBack => write!(f, "{path} is {original} again"),
            RestoreOutcome::AlreadyOriginal => write!(f, "{path} was {original} already"),
            RestoreOutcome::LeftAlone { present } => write!(
                f,
                "{path} is left at {present}, as somebody set it; before pghot it was {original}"
            ),
            RestoreOutcome::Failed(why) => f.write_str(why),
        }
    }
}

/// Says of each setting what became of it.
pub fn log(report: &[Restored]) {
    for restored in report {
        let path = restored.path.display();
        match restored.outcome {
            RestoreOutcome::PutBack | RestoreOutcome::AlreadyOriginal => {
                event!(setting_restored, %path, "{restored}");
            }
            RestoreOutcome::LeftAlone { .. } => event!(setting_left_alone, %path, "{restored}"),
            RestoreOutcome::Failed(_) => event!(setting_not_restored, %path, "{restored}"),
        }
    }
}

/// A setting that somebody else has changed after this process did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Foreign {
    /// The setting.
    pub path: PathBuf,
    /// The value that this process wrote.
    pub ours: String,
    /// The value that it has now.
    pub present: String,
}

/// Settings changed by this process, with their originals in a state file.
///
/// Dropping it restores nothing: a crash does not run destructors, so correctness never depends on
/// one. Call [`Knobs::restore`].
#[derive(Debug)]
pub struct Knobs {
    root: SysRoot,
    state_path: PathBuf,
    state: State,
    is_over: bool,
}

impl Knobs {
    /// Claims the state file, after putting back what a dead run of this boot left behind.
    ///
    /// What could not be put back stays in the new state file, with its true original.
    pub fn open(root: &SysRoot, state_path: &Path) -> Result<(Self, Vec<Restored>), KnobsError> {
        let (_lock, report, left) = recover_with_lock(root, state_path)?;
        let state = State::of_this_process(root, left)?;
        state.save(state_path)?;
        let knobs = Self {
            root: root.clone(),
            state_path: state_path.to_path_buf(),
            state,
            is_over: false,
        };
        Ok((knobs, report))
    }

    /// Puts back what a dead run of this boot left behind, without claiming anything: the work of
    /// `pghot restore`. No state file is an empty report.
    pub fn recover(root: &SysRoot, state_path: &Path) -> Result<Vec<Restored>, KnobsError> {
        // Where nobody may look there may be one.
        let exists = state_path.try_exists();
        if !exists.map_err(|source| file_error("read", state_path, source))? {
            return Ok(Vec::new());
        }
        recover_with_lock(root, state_path).map(|(_lock, report, _)| report)
    }

    /// The trees whose settings this changes.
    pub fn root(&self) -> &SysRoot {
        &self.root
    }

    /// Sets one setting; nothing is written if it holds the value already.
    pub fn set(&mut self, path: &Path, value: &str) -> Result<(), KnobsError> {
        self.set_through(path, &[value])
    }

    /// Writes several values to one setting in turn, for a setting whose *change* has an effect.
    ///
    /// Until the last one is in place the state file names them all as ours, so that a crash
    /// between two of them is still recognised and put back.
    pub fn set_through(&mut self, path: &Path, values: &[&str]) -> Result<(), KnobsError> {
        if !Settings::new(&self.root).has(path) {
            return Err(KnobsError::NotASetting {
                path: path.to_path_buf(),
            });
        }
        if self.is_over {
            return Err(KnobsError::Over {
                path: path.to_path_buf(),
            });
        }
        let present = read_text(path)?;
        if values.iter().all(|value| *value == present) {
            return Ok(());
        }
        let before = self.state.knobs.clone();
        let index = self.note_original(path, present);
        for value in values {
            add(&mut self.state.knobs[index].ours, value);
        }
        if let Err(error) = self.state.save(&self.state_path) {
            self.state.knobs = before;
            return Err(error);
        }
        for value in values {
            write_setting(path, value)?;
        }
        // "1" may read back as "Y" or "true"; that spelling is what a restore will find.
        let mut ours: Vec<String> = values
            .last()
            .map(|value| value.to_string())
            .into_iter()
            .collect();
        add(&mut ours, &read_text(path)?);
        self.state.knobs[index].ours = ours;
        self.state.save(&self.state_path)
    }

    /// Puts everything back, last change first, and removes the state file; a second call finds
    /// nothing to do. From then on nothing is set any more, whoever may still be running.
    ///
    /// What fails stays in the state file, which then remains for the next attempt.
    pub fn restore(&mut self) -> Result<Vec<Restored>, KnobsError> {
        self.is_over = true;
        let (report, left) = put_back_all(std::mem::take(&mut self.state.knobs));
        self.state.knobs = left;
        if self.state.knobs.is_empty() {
            State::remove(&self.state_path)?;
        } else {
            self.state.save(&self.state_path)?;
        }
        Ok(report)
    }

    /// The settings changed so far, in order.
    pub fn changed(&self) -> Vec<PathBuf> {
        let paths = self.state.knobs.iter();
        paths.map(|knob| knob.path.clone()).collect()
    }

    /// What a setting was last set to, if it was.
    pub fn ours(&self, path: &Path) -> Option<&str> {
        let knob = self.state.knobs.iter().find(|knob| knob.path == path)?;
        knob.ours.last().map(String::as_str)
    }

    /// Of the settings changed so far, those that somebody else has changed since. One that cannot
    /// be read is none: debugfs may be gone.
    pub fn foreign(&self) -> Vec<Foreign> {
        let foreign = |knob: &SavedKnob| {
            let present = read_text(&knob.path).ok()?;
            let ours = knob.ours.last()?.clone();
            let path = knob.path.clone();
            (!knob.ours.contains(&present)).then_some(Foreign {
                path,
                ours,
                present,
            })
        };
        match self.is_over {
            true => Vec::new(),
            false => self.state.knobs.iter().filter_map(foreign).collect(),
        }
    }

    /// Enters a setting in the books whose present value is one of ours already, left by a run
    /// whose state file is lost; it will be put back to `original`. What is in the books stays.
    pub fn adopt(&mut self, path: &Path, original: &str) -> Result<(), KnobsError> {
        if self.is_over || self.state.knobs.iter().any(|knob| knob.path == path) {
            return Ok(());
        }
        let ours = vec![read_text(path)?];
        let (path, original) = (path.to_path_buf(), original.to_owned());
        self.state.knobs.push(SavedKnob {
            path,
            original,
            ours,
        });
        self.state.save(&self.state_path)
    }

    /// Puts everything back, and keeps the claim on the state file: more may be set later. After
    /// [`Knobs::restore`] nothing is left to do.
    pub fn put_back(&mut self) -> Result<Vec<Restored>, KnobsError> {
        self.roll_back(0)
    }

    /// Puts one setting back; it is then as if this process had never changed it.
    pub(crate) fn put_back_one(&mut self, path: &Path) -> Result<(), KnobsError> {
        let Some(index) = self.state.knobs.iter().position(|knob| knob.path == path) else {
            return Ok(());
        };
        put_back(&self.state.knobs[index])?;
        self.state.knobs.remove(index);
        self.state.save(&self.state_path)
    }

    /// Number of settings changed so far; a point to [`Knobs::roll_back`] to.
    pub(crate) fn mark(&self) -> usize {
        self.state.knobs.len()
    }

    /// Puts back what was changed after `mark`, and keeps the claim.
    pub(crate) fn roll_back(&mut self, mark: usize) -> Result<Vec<Restored>, KnobsError> {
        if self.is_over {
            return Ok(Vec::new());
        }
        let newer = self.state.knobs.split_off(mark.min(self.state.knobs.len()));
        let (report, left) = put_back_all(newer);
        self.state.knobs.extend(left);
        self.state.save(&self.state_path)?;
        Ok(report)
    }

    /// Index of the entry for `path`, whose original is what to go back to.
    fn note_original(&mut self, path: &Path, present: String) -> usize {
        match self.state.knobs.iter().position(|knob| knob.path == path) {
            Some(index) => {
                let knob = &mut self.state.knobs[index];
                if !knob.ours.contains(&present) {
                    // Somebody has changed it since: from here on their value is the original.
                    knob.original = present;
                    knob.ours.clear();
                }
                index
            }
            None => {
                let path = path.to_path_buf();
                self.state.knobs.push(SavedKnob {
                    path,
                    original: present,
                    ours: Vec::new(),
                });
                self.state.knobs.len() - 1
            }
        }
    }
}

/// [`recover_locked`] with the lock, which is still held when it returns.
fn recover_with_lock(
    root: &SysRoot,
    state_path: &Path,
) -> Result<(StateLock, Vec<Restored>, Vec<SavedKnob>), KnobsError> {
    let deadline = Instant::now() + OWNER_ENDS_WITHIN;
    loop {
        let lock = StateLock::take(state_path)?;
        match recover_locked(root, state_path) {
            Err(KnobsError::AlreadyRunning { .. }) if Instant::now() < deadline => drop(lock),
            recovered => return recovered.map(|(report, left)| (lock, report, left)),
        }
        thread::sleep(OWNER_POLL);
    }
}

/// Handles what an earlier run left; returns the report and the entries that could not be put back.
///
/// The caller holds the lock. The file is removed unless such entries remain: then it stays as it
/// is, being their only record.
fn recover_locked(
    root: &SysRoot,
    state_path: &Path,
) -> Result<(Vec<Restored>, Vec<SavedKnob>), KnobsError> {
    let Some(state) = State::load(root, state_path)? else {
        return Ok((Vec::new(), Vec::new()));
    };
    if !state.is_of_this_boot(root)? {
        State::remove(state_path)?;
        return Ok((Vec::new(), Vec::new()));
    }
    if state.owner_lives(root)? {
        let state_path = state_path.to_path_buf();
        return Err(KnobsError::AlreadyRunning {
            pid: state.pid,
            state_path,
        });
    }
    let (report, left) = put_back_all(state.knobs);
    if left.is_empty() {
        State::remove(state_path)?;
    }
    Ok((report, left))
}

/// Puts entries back, last first; returns the report and the entries that failed, in old order.
fn put_back_all(knobs: Vec<SavedKnob>) -> (Vec<Restored>, Vec<SavedKnob>) {
    let (mut report, mut left) = (Vec::new(), Vec::new());
    for knob in knobs.into_iter().rev() {
        let outcome = put_back(&knob);
        let outcome = outcome.unwrap_or_else(|error| RestoreOutcome::Failed(error.to_string()));
        let failed = matches!(outcome, RestoreOutcome::Failed(_));
        let (path, original) = (knob.path.clone(), knob.original.clone());
        report.push(Restored {
            path,
            original,
            outcome,
        });
        if failed {
            left.insert(0, knob);
        }
    }
    (report, left)
}

fn put_back(knob: &SavedKnob) -> Result<RestoreOutcome, KnobsError> {
    let present = read_text(&knob.path)?;
    if present == knob.original {
        return Ok(RestoreOutcome::AlreadyOriginal);
    }
    if !knob.ours.contains(&present) {
        return Ok(RestoreOutcome::LeftAlone { present });
    }
    write_setting(&knob.path, &knob.original)?;
    Ok(RestoreOutcome::PutBack)
}

/// One write call, as sysctl handlers want it; never creates a file.
fn write_setting(path: &Path, value: &str) -> Result<(), KnobsError> {
    let write = || {
        let mut file = OpenOptions::new().write(true).truncate(true).open(path)?;
        file.write_all(format!("{value}\n").as_bytes())
    };
    write().map_err(|source| KnobsError::Write {
        path: path.to_path_buf(),
        value: value.to_owned(),
        source,
    })
}

fn add(values: &mut Vec<String>, value: &str) {
    if !values.iter().any(|known| known == value) {
        values.push(value.to_owned());
    }
}
