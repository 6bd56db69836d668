//! A rate limit, held against what was done: however it was changed meanwhile, and whoever was
//! killed.

use std::collections::VecDeque;

use crate::machine::PAGES_PER_MIB;

/// What was done is remembered for so long.
const REMEMBERED_MS: u64 = 5000;

/// A tunable that was changed. What was allowed before is allowed for as long as it is remembered.
#[derive(Debug, Default)]
pub struct Bound {
    now: u64,
    largest: u64,
    changed_ms: u64,
}

impl Bound {
    /// As it is now.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// It was changed.
    pub fn set(&mut self, now_ms: u64, value: u64) {
        self.largest = value.max(self.largest(now_ms));
        (self.now, self.changed_ms) = (value, now_ms);
    }

    /// The largest of the time remembered.
    pub fn largest(&self, now_ms: u64) -> u64 {
        match now_ms > self.changed_ms + REMEMBERED_MS {
            true => self.now,
            false => self.largest,
        }
    }
}

/// See the head of this file.
#[derive(Debug, Default)]
pub struct Limit {
    mbps: Bound,
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
}

impl Limit {
    /// MB a second.
    pub fn mbps(&self) -> u64 {
        self.mbps.now()
    }

    /// It was changed.
    pub fn set(&mut self, now_ms: u64, mbps: u64) {
        self.mbps.set(now_ms, mbps);
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
        let per_ms = (self.mbps.largest(now_ms) * PAGES_PER_MIB) as f64 / 1000.0;
        for (ms, before) in &self.done {
            let ms = now_ms - ms;
            let limit = (ms + slack.saved_ms) as f64 * per_ms + slack.overdrawn_pages as f64;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_allowed_before_is_forgotten() {
        let mut bound = Bound::default();
        bound.set(0, 9);
        bound.set(10_000, 1);
        assert_eq!((bound.now(), bound.largest(10_000 + REMEMBERED_MS)), (1, 9));
        assert_eq!(bound.largest(10_001 + REMEMBERED_MS), 1);
    }
}
