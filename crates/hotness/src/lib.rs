//! The hotness record: one small word per lower-tier page that says how often and how recently
//! the page was accessed.
//!
//! Every hotness source reports into a [`Table`]; the migrator reads the pages that became ready
//! out of it. The update rule and the ageing rule live in `include/hotness.h`, which the BPF
//! programs include too: the rule exists once. This crate adds what only the consumer needs:
//! which PFNs have records ([`Span`]), reading the ready pages of the hot sections, and ageing.
//!
//! It knows no clock, no kernel and no policy. Times are `CLOCK_MONOTONIC` milliseconds that the
//! caller passes in.
//!
//! ```
//! use pghot_hotness::{Format, PfnRange, Rule, Span, Table};
//!
//! let span = Span::new(&[PfnRange { start: 0x100000, end: 0x108000, nid: 2 }])?;
//! let table = Table::in_memory(Format::Default, span);
//! let rule = Rule::new(Format::Default, 2, 3000)?;
//! table.report(0x100042, 0, 1_000, &rule);
//! table.report(0x100042, 0, 1_500, &rule);
//! let mut ready = Vec::new();
//! table.ready_pages(2, &mut |page| ready.push(page.pfn));
//! assert_eq!(ready, [0x100042]);
//! # Ok::<(), pghot_hotness::Error>(())
//! ```

mod ffi;
mod hint_faults;
mod mirror;
mod rule;
mod span;
mod storage;
mod table;

pub use ffi::FAULT_CLASSES;
pub use ffi::{BORDER, Report};
pub use hint_faults::{FaultBlocks, HintFault, QuickFaults, fault_class, page_since_mark_ms};
pub use mirror::{Field, Mirror, Shape, bytes_of, bytes_of_mut, read, slice_of};
pub use rule::{Format, Record, Rule};
pub use span::{IndexedRange, PfnRange, RANGES_MAX, SECTION_PAGES, Span};
pub use storage::{InMemory, Storage};
pub use table::{Access, BulkReport, ReadyPage, Swept, Table, is_sampled};

/// A page frame number: physical address / 4096.
pub type Pfn = u64;
/// Records and section words lie in elements of so many bytes of the BPF arrays.
pub const CHUNK_BYTES: u64 = 4096;
/// A NUMA node id.
pub type Nid = u32;

/// What can be wrong with the parameters of a record table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// `freq_threshold` does not fit the format's frequency field.
    FreqThreshold {
        /// What was asked for.
        got: u32,
        /// The largest count that the format can hold.
        max: u32,
    },
    /// The window does not fit the format's time field.
    Window {
        /// What was asked for, in ms.
        got_ms: u32,
        /// The smallest and largest window of the format, in ms.
        range_ms: (u32, u32),
    },
    /// A PFN range is empty, not made of whole sections, or overlaps another one.
    Range(PfnRange),
    /// The storage does not hold as many records as the span has pages.
    Storage {
        /// 32-bit words and section words that the table needs.
        needed: (usize, usize),
        /// What the storage has.
        got: (usize, usize),
    },
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::FreqThreshold { got, max } => {
                write!(
                    f,
                    "freq_threshold {got} is outside 1 to {max}, which this mode can count"
                )
            }
            Error::Window {
                got_ms,
                range_ms: (min, max),
            } => {
                write!(
                    f,
                    "freq_window_ms {got_ms} is outside {min} to {max} for this mode"
                )
            }
            Error::Range(r) => write!(
                f,
                "PFN range {:#x}-{:#x} of node {} is empty, not made of whole sections of \
                 {SECTION_PAGES} pages, or overlaps another range",
                r.start, r.end, r.nid
            ),
            Error::Storage { needed, got } => write!(
                f,
                "record storage has {} words and {} sections, needs {} and {}",
                got.0, got.1, needed.0, needed.1
            ),
        }
    }
}

impl std::error::Error for Error {}
