//! How many pages may come to a node in a window of time, and when its own pages are marked again.

use super::machine::Limits;

/// Of one node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Budget {
    window_end_ms: f64,
    came_pages: f64,
    busiest_pages: f64,
}

impl Budget {
    /// How many of these pages the node takes now. The first page after the end of a window opens
    /// the next one.
    pub fn admit(&mut self, limits: &Limits, is_limited: bool, now_ms: f64, pages: f64) -> f64 {
        if now_ms > self.window_end_ms {
            self.window_end_ms = now_ms + limits.window_ms;
            self.came_pages = 0.0;
        }
        let room = match is_limited {
            true => (limits.window_pages - self.came_pages).max(0.0),
            false => f64::INFINITY,
        };
        let admitted = pages.min(room);
        self.came_pages += admitted;
        self.busiest_pages = self.busiest_pages.max(self.came_pages);
        admitted
    }

    /// Whether the node's pages are not to be marked: faults would only want to move them.
    pub fn is_congested(&self, limits: &Limits, now_ms: f64) -> bool {
        self.came_pages >= limits.window_pages && now_ms <= self.window_end_ms + limits.no_mark_ms
    }

    /// The most that came in one window.
    pub fn busiest_pages(&self) -> f64 {
        self.busiest_pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_takes_no_more_than_its_budget() {
        let limits = Limits::default();
        let mut budget = Budget::default();
        let came: f64 = (0..100)
            .map(|number| budget.admit(&limits, true, 1.0 + f64::from(number), 512.0))
            .sum();
        assert_eq!(came, limits.window_pages);
        assert!(budget.is_congested(&limits, 1000.0), "a second longer");
        assert!(!budget.is_congested(&limits, 1102.0));
        assert_eq!(budget.admit(&limits, true, 102.0, 512.0), 512.0);
        assert_eq!(budget.busiest_pages(), limits.window_pages);
    }

    #[test]
    fn without_a_limit_all_may_come() {
        let mut budget = Budget::default();
        let admitted = budget.admit(&Limits::default(), false, 1.0, 1e9);
        assert_eq!(admitted, 1e9);
    }
}
