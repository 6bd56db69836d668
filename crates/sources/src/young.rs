//! What a look at accessed bits brought, by which readers of them decide how often to look.

/// What was seen of pages of the lower tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Young {
    /// Base pages that were accessed since the look before, reported or not.
    pub young_pages: u64,
    /// Reports of this look that made their page or folio ready.
    pub ready: u64,
}
