//! Whose turn it is to clear accessed bits.
//!
//! Who clears a bit after somebody else has, and before he reads it, takes an access away from him.
//! A scan of `pgtscan` clears those of one process; the kernel, when the demoter or the source
//! `mglru` has it age pages, those of a node. A recording clears those of all processes, so it goes
//! alone: while it waits or has its turn nobody else begins, and what has begun ends first.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shared by all that clear accessed bits.
#[derive(Debug, Clone, Default)]
pub struct Turns(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Scans and agings between clearing and reading.
    others: usize,
    /// Recordings that wait or have their turn.
    recordings: usize,
    /// Turns of recordings that have ended.
    recorded: u64,
}

impl Turns {
    /// The turn of a scan or of a pair of agings, until it is dropped; `None` while there is a
    /// recording.
    pub fn begin(&self) -> Option<Turn> {
        let mut state = self.lock();
        if state.recordings > 0 {
            return None;
        }
        state.others += 1;
        Some(Turn(self.clone()))
    }

    /// The turn of a recording, until it is dropped: it begins when [`RecordingTurn::has_begun`].
    pub fn ask(&self) -> RecordingTurn {
        self.lock().recordings += 1;
        RecordingTurn(self.clone())
    }

    /// Turns of recordings that have ended: who clears now and then looks whether there was one.
    pub fn recorded(&self) -> u64 {
        self.lock().recorded
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See [`Turns::begin`].
#[derive(Debug)]
pub struct Turn(Turns);

/// One more part of it: it ends when all are dropped.
impl Clone for Turn {
    fn clone(&self) -> Turn {
        self.0.lock().others += 1;
        Turn(self.0.clone())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.lock().others -= 1;
    }
}

/// See [`Turns::ask`].
#[derive(Debug)]
pub struct RecordingTurn(Turns);

impl RecordingTurn {
    /// Whether all that had begun before has ended.
    pub fn has_begun(&self) -> bool {
        self.0.lock().others == 0
    }
}

impl Drop for RecordingTurn {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.recordings -= 1;
        state.recorded += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_goes_alone() {
        let turns = Turns::default();
        let scans = [turns.begin(), turns.clone().begin()];
        let scans = scans.map(|scan| scan.clone());
        assert!(scans.iter().all(Option::is_some));
        let recording = turns.ask();
        assert!(!recording.has_begun(), "scans are under way");
        assert!(turns.begin().is_none(), "no other may begin");
        drop(scans);
        assert!(recording.has_begun() && turns.begin().is_none());
        drop(recording);
        assert!(turns.begin().is_some());
        assert_eq!(turns.recorded(), 1);
    }
}
