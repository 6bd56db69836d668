//! How long it is until the next pass.

use super::{Demoter, QUIET_MS};
use crate::exchange::NEWS_MS;

/// The longest between two passes while pages wait, in ms, and the shortest.
const INTERVAL_MS: (u64, u64) = (100, 8);

/// Between two passes during a rest, in ms, and at most while pages are not told apart. Hint faults
/// may change that, and are counted for longer.
const REST_INTERVAL_MS: u64 = NEWS_MS / 2;

impl Demoter {
    /// In ms.
    pub(super) fn until_next_ms(&self, now_ms: u64) -> u64 {
        let below_ms = self.below.until_second_ms(now_ms);
        let until_ms = self.until_due_ms(now_ms);
        below_ms.map_or(until_ms, |ms| until_ms.min(ms.max(1)))
    }

    fn until_due_ms(&self, now_ms: u64) -> u64 {
        match self.report.is_wanted {
            true if self.report.resting.is_none() => {
                let second_ms = self.until_second_ms(now_ms);
                second_ms.unwrap_or_else(|| self.until_look_ms(now_ms))
            }
            // The marks lead to faults at once.
            _ if self.exchange.is_alarmed(now_ms) => INTERVAL_MS.0 / 2,
            true => REST_INTERVAL_MS,
            false if !self.report.has_room => INTERVAL_MS.0,
            false => QUIET_MS / 4,
        }
    }

    /// How long until the second of a pair of agings, if one is under way, in ms.
    fn until_second_ms(&self, now_ms: u64) -> Option<u64> {
        let idle_ms = self.report.idle_ms;
        let agings = self.agings.values();
        let until_ms = agings.filter_map(|agings| agings.until_second_ms(now_ms, idle_ms));
        until_ms.min().map(|ms| match ms {
            // It was to come in this pass, but something prevents it.
            0 => INTERVAL_MS.1,
            ms => ms.min(INTERVAL_MS.0),
        })
    }

    /// How long until there is something to do at some target, in ms: while pages are told apart
    /// soon, and while they are not when the next aging may come.
    fn until_look_ms(&self, now_ms: u64) -> u64 {
        let soon_ms = INTERVAL_MS.0 / 2;
        if self.exchange.may_look_often(now_ms) {
            return soon_ms;
        }
        let agings = self.agings.values();
        let until_ms = agings.map(|agings| agings.until_due_ms(now_ms, self.report.idle_ms, false));
        let until_ms = until_ms.min().unwrap_or(0);
        until_ms.clamp(soon_ms, REST_INTERVAL_MS)
    }
}
