//! When a node is aged: in pairs, as far apart as pages must be idle, and then not before the time
//! that it took is a small share. If by then pages must be idle for longer than that, the second of
//! a pair is the first of the next. During a search for a time scale it always is, so a search
//! through all scales takes half a second at most; what its walks took is made up for afterwards.
//!
//! The time of a pair runs from the beginning of the first to the beginning of the second. Both
//! walk the same pages in the same order, so each page has about that long to be touched. Counted
//! from the end of the first, it would have longer by what a walk takes.

/// Agings may take one part in so many of the time until the next: while they tell pages apart, and
/// while they do not.
const SHARES: (u64, u64) = (8, 32);

/// The second of a pair is late where it has not come so long after its time, in ms: nothing waits
/// any more, or the exchange rests.
const LATE_MS: u64 = 1000;

/// The kernel tells the age of a generation to a jiffy, which is so many ms at most.
const JIFFY_MS: u64 = 10;

/// A pair of agings that was finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair {
    /// For how long the pages that it found idle had not been touched, in ms.
    pub apart_ms: u64,
    /// How old the generation that the first one opened is at least, in ms, as the kernel tells it.
    /// One that another aging opened in between is younger.
    pub opened_ago_ms: u64,
}

/// Of one node.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Agings {
    /// When the last one ended.
    last_ms: Option<u64>,
    /// When it began: what went up before has lost its accessed bits.
    began_ms: u64,
    /// It was the first of a pair, and the second is yet to come.
    is_open: bool,
    /// For how long pages were to be idle when it began, in ms.
    idle_ms: u64,
    took_ms: u64,
    /// The last pair found more idle than the rate or the room below allowed to go.
    pub is_cut_short: bool,
}

impl Agings {
    /// Whether the second of a pair is yet to come.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Forgets the first of a pair whose second did not come in time; returns whether there was
    /// one.
    pub fn give_up_late(&mut self, now_ms: u64, idle_ms: u64) -> bool {
        let is_late = |last_ms| now_ms.saturating_sub(last_ms) > 2 * idle_ms + LATE_MS;
        let gives_up = self.is_open && self.last_ms.is_some_and(is_late);
        self.is_open &= !gives_up;
        gives_up
    }

    /// What the present pair, or the last, took so far, in ms.
    pub fn took_ms(&self) -> u64 {
        self.took_ms
    }

    /// How long until the second of a pair, in ms, if one is under way.
    pub fn until_second_ms(&self, now_ms: u64, idle_ms: u64) -> Option<u64> {
        let second_ms = self.began_ms + idle_ms;
        self.is_open.then(|| second_ms.saturating_sub(now_ms))
    }

    /// Whether more may go without another look: what was found idle is idle for longer by now, and
    /// the kernel keeps what was touched.
    pub fn goes_on(&self) -> bool {
        self.is_cut_short && !self.is_open
    }

    /// Whether it is time, where pages must be idle for so long, and agings tell pages apart or do
    /// not.
    pub fn is_due(&self, now_ms: u64, idle_ms: u64, is_promising: bool) -> bool {
        self.until_due_ms(now_ms, idle_ms, is_promising) == 0
    }

    /// How long until it is time, in ms.
    pub fn until_due_ms(&self, now_ms: u64, idle_ms: u64, is_promising: bool) -> u64 {
        if let Some(until_ms) = self.until_second_ms(now_ms, idle_ms) {
            return until_ms;
        }
        let share = if is_promising { SHARES.0 } else { SHARES.1 };
        let rest_ms = idle_ms.max(self.took_ms * share);
        self.last_ms
            .map_or(0, |last_ms| (last_ms + rest_ms).saturating_sub(now_ms))
    }

    /// Takes note of one that is of no pair.
    pub fn note_alone(&mut self, began_ms: u64, ended_ms: u64) {
        (self.last_ms, self.began_ms) = (Some(ended_ms), began_ms);
        self.took_ms = ended_ms.saturating_sub(began_ms);
    }

    /// If one that begins now is the second of a pair: when the first began.
    pub fn first_of_pair_ms(&self, now_ms: u64, idle_ms: u64) -> Option<u64> {
        // Who was not touched since the last one may have been idle for a little longer.
        let since_ms = now_ms.saturating_sub(self.began_ms);
        let is_soon = self.last_ms.is_some() && (idle_ms..=2 * idle_ms).contains(&since_ms);
        // If the scale has become narrower meanwhile, it is too late: hardly any page is idle for
        // so many times longer, which says nothing about the scale.
        let is_late = idle_ms < self.idle_ms && since_ms > self.took_ms + 2 * idle_ms;
        (is_soon || (self.is_open && !is_late)).then_some(self.began_ms)
    }

    /// The second of the last pair becomes the first of another, for pages that are idle longer.
    pub fn reopen(&mut self) {
        self.is_open = true;
    }

    /// Takes note of one; returns the pair if it was the second.
    pub fn note(&mut self, began_ms: u64, ended_ms: u64, idle_ms: u64) -> Option<Pair> {
        let first_ms = self.first_of_pair_ms(began_ms, idle_ms);
        let opened_ms = self.last_ms.unwrap_or(ended_ms);
        let pair = first_ms.map(|first_ms| Pair {
            apart_ms: began_ms.saturating_sub(first_ms),
            opened_ago_ms: ended_ms.saturating_sub(opened_ms + JIFFY_MS),
        });
        let before_ms = if self.is_open { self.took_ms } else { 0 };
        self.took_ms = before_ms + ended_ms.saturating_sub(began_ms);
        (self.last_ms, self.began_ms) = (Some(ended_ms), began_ms);
        self.idle_ms = idle_ms;
        self.is_open = pair.is_none();
        pair
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ages whenever it is due for a minute, each time for 20 ms; returns the share of the time.
    fn share(agings: &mut Agings, now_ms: &mut u64, is_promising: bool) -> f64 {
        let end_ms = *now_ms + 60_000;
        let mut took_ms = 0;
        while *now_ms < end_ms {
            if agings.is_due(*now_ms, 16, is_promising) {
                agings.note(*now_ms, *now_ms + 20, 16);
                (*now_ms, took_ms) = (*now_ms + 20, took_ms + 20);
            }
            *now_ms += 1;
        }
        took_ms as f64 / 60_000.0
    }

    #[test]
    fn those_that_tell_nothing_apart_are_rarer() {
        let (mut agings, mut now_ms) = (Agings::default(), 1000);
        let in_vain = share(&mut agings, &mut now_ms, false);
        assert!((1.0 / 36.0..1.0 / 30.0).contains(&in_vain), "{in_vain}");
        let telling = share(&mut agings, &mut now_ms, true);
        assert!((1.0 / 10.0..1.0 / 8.0).contains(&telling), "{telling}");
    }

    #[test]
    fn a_pair_that_is_not_finished_in_time_is_none() {
        let mut agings = Agings::default();
        assert!(agings.note(1000, 1020, 16).is_none());
        assert!(!agings.give_up_late(2020, 16) && agings.is_open());
        assert!(agings.give_up_late(2053, 16) && !agings.is_open());
        assert_eq!(agings.note(2060, 2080, 16), None, "the first of another");
    }

    #[test]
    fn the_first_of_a_wide_pair_is_none_of_a_narrow_one() {
        let mut agings = Agings::default();
        assert_eq!(agings.note(1000, 1010, 250), None);
        assert!(agings.is_due(1120, 16, false));
        assert_eq!(agings.note(1120, 1130, 16), None, "the first of another");
        let pair = agings.note(1136, 1146, 16);
        assert_eq!(pair.map(|pair| pair.apart_ms), Some(16));
        // Where a walk or a list takes long, pairs are that far apart.
        assert_eq!(agings.note(2000, 2100, 16), None);
        let pair = agings.note(2150, 2250, 16);
        assert_eq!(pair.map(|pair| pair.apart_ms), Some(150));
    }

    #[test]
    fn how_far_apart_a_pair_is_does_not_depend_on_how_long_a_walk_takes() {
        for (took_ms, idle_ms, apart_ms) in [(2, 16, 16), (12, 16, 16), (100, 16, 100)] {
            let mut agings = Agings::default();
            let first_ms = 1000;
            assert_eq!(agings.note(first_ms, first_ms + took_ms, idle_ms), None);
            let now_ms = first_ms + took_ms;
            let until_ms = agings.until_second_ms(now_ms, idle_ms);
            assert_eq!(until_ms, Some(idle_ms.saturating_sub(took_ms)));
            let second_ms = now_ms + until_ms.unwrap_or_default();
            assert!(agings.is_due(second_ms, idle_ms, false));
            let pair = agings.note(second_ms, second_ms + took_ms, idle_ms);
            let pair = pair.unwrap();
            assert_eq!(pair.apart_ms, apart_ms, "{took_ms}");
            // The first walk ended, and opened a generation, as long before the second ended.
            assert_eq!(pair.opened_ago_ms, apart_ms - JIFFY_MS, "{took_ms}");
            assert_eq!(agings.until_second_ms(second_ms, idle_ms), None);
        }
    }

    #[test]
    fn a_search_costs_one_walk_a_scale_and_all_of_them_count() {
        let mut agings = Agings::default();
        assert!(agings.note(1000, 1010, 16).is_none() && agings.note(1016, 1026, 16).is_some());
        agings.reopen();
        assert!(!agings.is_due(1047, 32, false) && agings.is_due(1048, 32, false));
        let apart_ms = agings.note(1048, 1058, 32).map(|pair| pair.apart_ms);
        assert_eq!((apart_ms, agings.took_ms()), (Some(32), 30));
        assert!(!agings.is_due(1058 + 30 * 31, 32, false));
    }

    #[test]
    fn a_change_of_mind_counts_at_once() {
        let mut agings = Agings::default();
        assert!(agings.note(1000, 1020, 16).is_none() && agings.note(1036, 1056, 16).is_some());
        assert!(!agings.is_due(1056 + 40 * 8, 16, false));
        assert!(agings.is_due(1056 + 40 * 8, 16, true));
    }
}
