//! How often ready pages are counted that find no room.
//!
//! A pass reads each ready page, and where their target is full it finds what the pass before it
//! found: they wait. With tens of thousands of them that was most of what the daemon did. So looks
//! in vain may take one part in [`VAIN_SHARE`] of the time, but there is one every [`VAIN_MS`]. In
//! between a pass repeats what the last look saw. As soon as there is room each pass looks again.

use std::ops::Range;

use crate::PassReport;
use crate::demoter::PAGES_MIN;

/// See the head of this file: a quarter of a percent.
const VAIN_SHARE: u64 = 400;

/// The longest that nobody looks, in ms. No page moves late for it: what became hot meanwhile is
/// counted late.
const VAIN_MS: u64 = 1000;

/// The last look, if it was in vain.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// When another would be too early, in ns.
    early_ns: Range<u64>,
    saw: PassReport,
}

impl Looks {
    /// What the last look saw, where another one would only find the same: if the target has room
    /// for so many pages, or for an unknown number.
    pub fn in_vain(&self, room_pages: Option<u64>, now_ns: u64) -> Option<&PassReport> {
        let is_full = room_pages.is_some_and(|pages| pages < PAGES_MIN);
        (is_full && self.early_ns.contains(&now_ns)).then_some(&self.saw)
    }

    /// A look that began and ended at these times has seen this.
    pub fn note(&mut self, took_ns: Range<u64>, saw: &PassReport) {
        let is_vain = saw.wants_room() && saw.picked < PAGES_MIN;
        let rest_ns = match is_vain {
            true => {
                (took_ns.end.saturating_sub(took_ns.start) * VAIN_SHARE).min(VAIN_MS * 1_000_000)
            }
            false => 0,
        };
        self.early_ns = took_ns.end..took_ns.end.saturating_add(rest_ns);
        if rest_ns > 0 {
            self.saw.clone_from(saw);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Held;

    fn saw(picked: u64, held: Held) -> PassReport {
        PassReport {
            picked,
            held: [(held, 5000)].into(),
            ready: 5000 + picked,
            ..PassReport::default()
        }
    }

    #[test]
    fn looks_in_vain_take_a_quarter_of_a_percent_of_the_time() {
        let mut looks = Looks::default();
        assert_eq!(looks.in_vain(Some(0), 0), None, "nobody has looked");
        let full = saw(0, Held::NoRoom);
        looks.note(1_000_000..3_000_000, &full);
        assert_eq!(looks.in_vain(Some(31), 802_999_999), Some(&full));
        assert_eq!(looks.in_vain(Some(0), 803_000_000), None);
        assert_eq!(looks.in_vain(Some(32), 4_000_000), None, "there is room");
        assert_eq!(looks.in_vain(None, 4_000_000), None, "nobody knows");
    }

    #[test]
    fn a_look_comes_after_a_second_however_long_the_last_one_took() {
        let mut looks = Looks::default();
        looks.note(0..1_000_000_000, &saw(0, Held::NoRoom));
        assert!(looks.in_vain(Some(0), 1_999_999_999).is_some());
        assert!(looks.in_vain(Some(0), 2_000_000_000).is_none());
    }

    #[test]
    fn a_look_that_found_something_to_do_is_followed_by_another() {
        let mut looks = Looks::default();
        for saw in [saw(100, Held::NoRoom), saw(0, Held::RateLimit)] {
            looks.note(0..1_000_000, &saw);
            assert_eq!(looks.in_vain(Some(0), 1_000_000), None);
        }
    }
}
