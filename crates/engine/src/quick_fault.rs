//! Which hint faults tell enough at one look.

use crate::exchange::NARROWEST_MS;
use crate::{HUGE_PAGES, Kept, Kind, Settings, Tunable};

/// Its tunable.
pub(crate) const QUICK_FAULT_MS: Tunable = Tunable {
    name: "quick_fault_ms",
    unit: "ms",
    kind: Kind::Number,
    doc: "A hint fault makes its page ready if it comes within this time of the kernel's mark: a \
          page that is touched so soon is touched often. So a page of a large process, which the \
          kernel's scan comes to less than once per window, is found hot at one look. Of a large \
          folio the time counts as many times as it has pages, and must be within 8 ms: a huge \
          page is hot within 16 us. While the \
          top tier is full and pages change places, it is the limit of a shorter time that follows \
          from what goes; while it has room, or pages that were idle for seconds, faults that many \
          neighbours come with are as good. 0 counts every fault once.",
    // A page that is swept once in 20 s is touched so soon after a mark in 0.6 % of cases.
    default: |_| 125,
    range: |_| (0, 60_000),
    kept: Kept::InField(
        |s| s.quick_fault_ms as u64,
        |s, v| s.quick_fault_ms = v as u32,
    ),
};

/// Which hint faults make their page ready at one look: a page that is touched so soon after its
/// mark is touched often, and the scan may not come back to it within the window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuickFault {
    /// Those that come sooner than so many ms after the mark.
    pub within_ms: u32,
    /// Of those the ones that come so soon are hotter than the others: they go first, and when
    /// pages change places they still count.
    pub soon_ms: u32,
    /// Also those that many neighbours come with, whenever the marks were made: memory that was
    /// left alone is in use. But one look may be wrong, so not where a page must go down for each
    /// that comes up, unless it has been idle for long.
    pub in_bursts: bool,
}

impl QuickFault {
    /// How soon after its mark a huge page must be touched: it is touched as often as all of its
    /// pages together, and must be as hot as those that come soonest.
    pub fn huge_within_us(&self) -> u32 {
        let of_page_us = self.soon_ms.min(self.within_ms).saturating_mul(1000);
        of_page_us.div_ceil(HUGE_PAGES as u32)
    }

    /// As long as there is room.
    pub fn as_set(settings: &Settings) -> QuickFault {
        QuickFault {
            within_ms: settings.quick_fault_ms,
            soon_ms: settings.quick_fault_ms.min(NARROWEST_MS),
            in_bursts: settings.quick_fault_ms > 0,
        }
    }
}
