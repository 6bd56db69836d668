//! A span: what a trace consists of.

/// Something that took time, in Unix time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// What was done.
    pub name: &'static str,
    /// The trace that it belongs to.
    pub trace: u128,
    /// Its own id.
    pub id: u64,
    /// The id of the span that it is a part of.
    pub parent: Option<u64>,
    /// When it began, in ns.
    pub started_ns: u64,
    /// When it ended.
    pub ended_ns: u64,
    /// Numbers that tell more.
    pub attributes: Vec<(String, u64)>,
}
