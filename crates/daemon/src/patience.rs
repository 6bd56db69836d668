//! What is done when somebody else changes a setting that a source needs.
//!
//! Most who do so do not mean pghot: `sysctl --system` after an update, a tuning profile that is
//! loaded late. So the setting is taken back, and their value is what it goes back to at the end.
//! Who changes it again soon means it, or is a program that would do so for ever: then the source
//! gives way, and others see what they can.

use std::time::{Duration, Instant};

/// Who changes a setting again within so much time means it.
const AGAIN_WITHIN: Duration = Duration::from_secs(600);

/// What is done about a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The setting is set again.
    TakeBack,
    /// The source that needs it stops.
    GiveWay,
}

/// Remembers the last change.
#[derive(Debug, Default)]
pub struct Patience {
    last: Option<Instant>,
}

impl Patience {
    /// What is done about a change that is seen now.
    pub fn answer(&mut self, now: Instant) -> Answer {
        let last = self.last.replace(now);
        match last.is_some_and(|last| now.duration_since(last) < AGAIN_WITHIN) {
            true => Answer::GiveWay,
            false => Answer::TakeBack,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_insists_has_their_way() {
        let (mut patience, start) = (Patience::default(), Instant::now());
        assert_eq!(patience.answer(start), Answer::TakeBack);
        let soon = start + Duration::from_secs(599);
        assert_eq!(patience.answer(soon), Answer::GiveWay);
        let later = soon + Duration::from_secs(600);
        assert_eq!(patience.answer(later), Answer::TakeBack);
    }
}
