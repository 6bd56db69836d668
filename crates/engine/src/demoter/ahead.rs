//! Looks ahead: while a node fills up, it is aged now and then, so that when it is full it is known
//! which pages have been idle for long. Without it that is not known for the first seconds.

use pghot_hotness::Nid;

use super::reclaim::{Lruvec, Reclaim};
use super::{Demoter, Exchange};
use crate::Settings;

/// How soon a node must be full at the present pace for that to be worth the agings, in ms.
const SOON_MS: u64 = 8000;

/// How long promotions are counted, in ms.
const COUNTED_MS: u64 = 250;

/// How many pages go up a second, to all nodes together.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Filling {
    since_ms: u64,
    promoted: u64,
    pages_per_s: u64,
}

impl Filling {
    /// Takes note of all that was promoted since the start.
    pub fn note(&mut self, now_ms: u64, promoted: u64) {
        let spent_ms = now_ms.saturating_sub(self.since_ms);
        if spent_ms >= COUNTED_MS {
            let went = promoted.saturating_sub(self.promoted);
            self.pages_per_s = went.saturating_mul(1000) / spent_ms;
            (self.since_ms, self.promoted) = (now_ms, promoted);
        }
    }

    fn uses_up_soon(&self, room_pages: u64) -> bool {
        self.pages_per_s.saturating_mul(SOON_MS) / 1000 > room_pages
    }
}

impl Demoter {
    /// Ages a node that has room for what waits, if it will not have it for long.
    pub(super) fn look_ahead(
        &mut self,
        nid: Nid,
        room_pages: u64,
        settings: &Settings,
        machine: &mut dyn Reclaim,
    ) {
        let now_ms = machine.now_ms();
        let widest_idle_ms = Exchange::widest_idle_ms(settings);
        let agings = self.agings.entry(nid).or_default();
        let may_age = !agings.is_open() && agings.is_due(now_ms, widest_idle_ms, false);
        // While pages change places there is room now and then, and each aging leaves one
        // generation less to tell them by.
        let is_due = may_age
            && self.is_quiet(now_ms)
            && self.filling.uses_up_soon(room_pages)
            && !self.lists.is_early(nid, now_ms)
            && settings.demote_rate_limit_mbps > 0;
        if is_due && let Ok(lruvecs) = self.may_go(nid, settings, machine) {
            self.age_alone(nid, &lruvecs, machine);
        }
    }

    /// Ages these once, as no pair, if accessed bits may be cleared now; returns whether it did.
    pub(super) fn age_alone(
        &mut self,
        nid: Nid,
        lruvecs: &[Lruvec],
        machine: &mut dyn Reclaim,
    ) -> bool {
        let Some(_turn) = self.turns.begin() else {
            return false;
        };
        let began_ms = machine.now_ms();
        let ended_ms = self.open_generations(nid, lruvecs, machine);
        let agings = self.agings.entry(nid).or_default();
        agings.note_alone(began_ms, ended_ms);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_the_present_pace_it_is_full_soon_or_not() {
        let mut filling = Filling::default();
        filling.note(10_000, 0);
        filling.note(10_100, 500);
        assert!(!filling.uses_up_soon(0), "too early to tell");
        filling.note(10_250, 1000);
        assert!(filling.uses_up_soon(31_000) && !filling.uses_up_soon(33_000));
        filling.note(11_000, 1000);
        assert!(!filling.uses_up_soon(0), "nothing went up");
    }
}
