//! A rate limit, held against what was done: however it was changed meanwhile, and whoever was
//! killed.

use std::collections::VecDeque;

use crate::machine::PAGES_PER_MIB;

/// What was done is remembered for so long.
const REMEMBERED_MS: u64 = 5000;

/// See the head of this file.
#[derive(Debug, Default)]
pub struct Limit {
    /// Now, and the largest of the time remembered.
    mbps: u64,
    largest_mbps: u64,
    changed_ms: u64,
    /// Pages since the start: (when, pages).
    done: VecDeque<(u64, u64)>,
}

/// How much more than its rate a limit allows at once.
#[derive(Debug, Clone, Copy)]
pub struct Slack {
    /// Time whose earnings may be saved, in ms.
    pub saved_ms: u64,
    /// Pages by which the savings may be overdrawn.
    pub overdrawn_pages: u64,
    /// How many save, each for itself.
    pub savers: u64,
}

impl Limit {
    /// MB a second.
    pub fn mbps(&self) -> u64 {
        self.mbps
    }

    /// It was changed. What was allowed before is allowed for as long as it is remembered.
    pub fn set(&mut self, mbps: u64) {
        self.mbps = mbps;
        self.largest_mbps = mbps.max(self.largest_mbps);
        self.changed_ms = self.done.back().map_or(0, |(ms, _)| *ms);
    }

    /// Somebody begins anew, with all that may be saved.
    pub fn forget(&mut self) {
        self.done.clear();
    }

    /// So many pages were moved up or down since the start. The error says in which time there were
    /// too many.
    pub fn look(&mut self, now_ms: u64, pages: u64, slack: Slack) -> Result<(), String> {
        self.done.push_back((now_ms, pages));
        let is_old = |(ms, _): &(u64, u64)| ms + REMEMBERED_MS < now_ms;
        while self.done.front().is_some_and(is_old) {
            self.done.pop_front();
        }
        if now_ms > self.changed_ms + REMEMBERED_MS {
            self.largest_mbps = self.mbps;
        }
        let per_ms = (self.largest_mbps * PAGES_PER_MIB) as f64 / 1000.0;
        for (ms, before) in &self.done {
            let ms = now_ms - ms;
            let limit = (ms + slack.saved_ms) as f64 * per_ms + slack.overdrawn_pages as f64;
            let limit = slack.savers as f64 * limit;
            let moved = pages - before;
            if moved as f64 > limit {
                return Err(format!(
                    "{moved} pages in {ms} ms, and the limit is {limit:.0}"
                ));
            }
        }
        Ok(())
    }
}
