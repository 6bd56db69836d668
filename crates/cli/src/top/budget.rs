//! How often something that costs is done: so that it takes a small share of one CPU, whatever it
//! costs on this machine.

use std::time::{Duration, Instant};

/// The work takes one part in so many of the time: 0.2 % of one CPU.
const PARTS: u32 = 500;

/// When some work is due again.
#[derive(Debug, Default)]
pub struct Budget {
    due: Option<Instant>,
}

impl Budget {
    /// Whether it is time.
    pub fn is_due(&self, now: Instant) -> bool {
        self.due.is_none_or(|due| due <= now)
    }

    /// The work was done just now and took so long.
    pub fn spent(&mut self, now: Instant, took: Duration, every: Duration) {
        self.due = Some(now + every.max(took * PARTS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_costs_more_is_done_less_often() {
        let (now, every) = (Instant::now(), Duration::from_secs(2));
        let mut budget = Budget::default();
        assert!(budget.is_due(now));
        budget.spent(now, Duration::from_micros(10), every);
        assert!(!budget.is_due(now + Duration::from_millis(1999)));
        assert!(budget.is_due(now + every));
        budget.spent(now, Duration::from_millis(40), every);
        assert!(!budget.is_due(now + Duration::from_secs(19)));
        assert!(budget.is_due(now + Duration::from_secs(20)));
    }
}
