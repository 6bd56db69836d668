//! Which hint faults tell enough at one look.

use crate::Settings;

/// Which hint faults make their page ready at one look: a page that is touched so soon after its
/// mark is touched often, and the scan may not come back to it within the window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuickFault {
    /// Those that come sooner than so many ms after the mark.
    pub within_ms: u32,
    /// Also those that many neighbours come with, whenever the marks were made: memory that was
    /// left alone is in use. But one look may be wrong, so not where a page must go down for each
    /// that comes up.
    pub in_bursts: bool,
}

impl QuickFault {
    /// As long as there is room.
    pub fn as_set(settings: &Settings) -> QuickFault {
        QuickFault {
            within_ms: settings.quick_fault_ms,
            in_bursts: settings.quick_fault_ms > 0,
        }
    }
}
