//! Holds the changed kernel settings and puts them back however the daemon ends.

use std::sync::{Arc, Mutex};

use pghot_events::event;
use pghot_linux::knobs::{Knobs, KnobsError, RestoreOutcome, Restored};

use crate::lock;

/// Restores on [`Restorer::finish`], or else when dropped: on an error during the start, and when
/// a panic unwinds. After a kill -9 the state file is left for `pghot restore`.
pub struct Restorer {
    knobs: Arc<Mutex<Knobs>>,
    done: bool,
}

impl Restorer {
    /// Takes charge of the settings.
    pub fn new(knobs: Knobs) -> Restorer {
        Restorer {
            knobs: Arc::new(Mutex::new(knobs)),
            done: false,
        }
    }

    /// The settings, for those who change them.
    pub fn knobs(&self) -> Arc<Mutex<Knobs>> {
        Arc::clone(&self.knobs)
    }

    /// Puts everything back now; an error if something could not be.
    pub fn finish(mut self) -> Result<(), KnobsError> {
        self.restore()
    }

    fn restore(&mut self) -> Result<(), KnobsError> {
        self.done = true;
        let report = lock(&self.knobs).restore()?;
        log(&report);
        first_failure(report).map_or(Ok(()), Err)
    }
}

impl Drop for Restorer {
    fn drop(&mut self) {
        if !self.done
            && let Err(error) = self.restore()
        {
            event!(
                setting_not_restored,
                "{error}; run `pghot restore` to try again"
            );
        }
    }
}

/// The first setting that could not be put back.
pub fn first_failure(report: Vec<Restored>) -> Option<KnobsError> {
    report
        .into_iter()
        .find_map(|restored| match restored.outcome {
            RestoreOutcome::Failed(error) => Some(error),
            _ => None,
        })
}

/// What became of a setting.
pub fn sentence(restored: &Restored) -> String {
    let (path, original) = (restored.path.display(), &restored.original);
    match &restored.outcome {
        RestoreOutcome::PutBack => format!("{path} is {original} again"),
        RestoreOutcome::AlreadyOriginal => format!("{path} was {original} already"),
        RestoreOutcome::LeftAlone { present } => {
            format!(
                "{path} is left at {present}, as somebody set it; before pghot it was {original}"
            )
        }
        RestoreOutcome::Failed(error) => error.to_string(),
    }
}

/// Says of each setting what became of it.
pub fn log(report: &[Restored]) {
    for restored in report {
        let (said, path) = (sentence(restored), restored.path.display());
        match restored.outcome {
            RestoreOutcome::PutBack | RestoreOutcome::AlreadyOriginal => {
                event!(setting_restored, %path, "{said}");
            }
            RestoreOutcome::LeftAlone { .. } => event!(setting_left_alone, %path, "{said}"),
            RestoreOutcome::Failed(_) => event!(setting_not_restored, %path, "{said}"),
        }
    }
}
