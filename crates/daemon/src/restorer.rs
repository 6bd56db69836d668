//! Holds the changed kernel settings and puts them back however the daemon ends.

use std::sync::Arc;

use pghot_events::event;
use pghot_linux::keeper::{Keeper, KeeperError};
use pghot_linux::knobs::{RestoreOutcome, Restored, log};

/// Restores on [`Restorer::finish`], or else when dropped: on an error during the start, and when
/// a panic unwinds. After a kill -9 the keeper does it unasked.
pub struct Restorer {
    keeper: Arc<Keeper>,
    done: bool,
}

impl Restorer {
    /// Takes charge of what the keeper will set.
    pub fn new(keeper: &Arc<Keeper>) -> Restorer {
        Restorer {
            keeper: Arc::clone(keeper),
            done: false,
        }
    }

    /// Puts everything back now; an error if something could not be.
    pub fn finish(mut self) -> Result<(), KeeperError> {
        self.restore()
    }

    fn restore(&mut self) -> Result<(), KeeperError> {
        self.done = true;
        let report = self.keeper.restore()?;
        log(&report);
        first_failure(report).map_or(Ok(()), |why| Err(KeeperError::Refused(why)))
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

/// Why a setting could not be put back, if one could not.
pub fn first_failure(report: Vec<Restored>) -> Option<String> {
    report
        .into_iter()
        .find_map(|restored| match restored.outcome {
            RestoreOutcome::Failed(why) => Some(why),
            _ => None,
        })
}
