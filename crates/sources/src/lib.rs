//! The hotness sources: whoever sees an access reports it into the record table.
//!
//! One folder per source, with its BPF program, its Rust half and a README: how it works, what it
//! costs, when it is blind. [`SOURCES`] lists them; adding one touches its folder and that list.
//! What can be changed of them is in [`tunables`].
//!
//! What a source decides is pure, and compiled by both of its hosts: the daemon, and the model of
//! the simulator ([`fake`]). What touches the kernel is in the modules named `kernel`, behind the
//! feature of that name; without it neither clang nor libbpf is needed.
//!
//! All sources write the same records, which on a kernel lie in BPF arrays that are mapped into the
//! daemon (`RecordMaps`). A source that this kernel lacks is `Availability::Unavailable`; the rest
//! runs on.

#![cfg_attr(
    not(feature = "kernel"),
    expect(
        dead_code,
        reason = "the model does not ask decisions for all that a kernel does"
    )
)]

pub mod app_hint;
mod budget;
mod bulk;
pub mod fake;
pub mod hint_fault;
pub mod hw_sample;
#[cfg(feature = "kernel")]
mod kernel;
pub mod mglru;
pub mod page_cache;
pub mod pgtscan;
#[cfg(feature = "kernel")]
pub mod recorder;
pub mod tunables;
mod young;

use std::sync::Arc;

use pghot_engine::Tunable;
use pghot_engine::arbiter::Candidate;
use pghot_hotness::{Pfn, Table};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(feature = "kernel")]
pub use kernel::{Availability, Error, OnKernel, RecordMaps, Source, SourceCost, Start};
pub use pghot_engine::QuickFault;
pub use pghot_engine::arbiter::{Config, Kind};

/// Every source, in the order of their bits in `enabled_sources`.
pub const SOURCES: &[Descriptor] = &[
    hint_fault::DESCRIPTOR,
    hw_sample::DESCRIPTOR,
    pgtscan::DESCRIPTOR,
    page_cache::DESCRIPTOR,
    mglru::DESCRIPTOR,
    app_hint::DESCRIPTOR,
];

/// A source, described once: for `enabled_sources`, `doctor`, `status` and the reference.
pub struct Descriptor {
    /// Its name in reports.
    pub name: &'static str,
    /// Its bit in `enabled_sources`.
    pub bit: u32,
    /// What it sees, in one sentence.
    pub doc: &'static str,
    /// What it learns accesses from, which decides who stands by for whom.
    pub kind: Kind,
    /// What an operator can change of it; its [`Config`] has the values.
    pub tunables: &'static [Tunable],
    /// Its stand-in on a modelled machine, which reports into the table.
    pub fake: fn(&Arc<Table>, &Config) -> Box<dyn fake::Fake>,
    /// Itself.
    #[cfg(feature = "kernel")]
    pub on_kernel: OnKernel,
}

impl Descriptor {
    /// What the arbiter knows of it.
    pub fn candidate(&self) -> Candidate {
        Candidate {
            name: self.name,
            bit: self.bit,
            kind: self.kind,
        }
    }
}

pghot_hotness::mirror! {
    /// Reports of one source, by what became of them: the first numbers of its program's `stats`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    pub struct SourceStats = "source_counters" {
        /// Accesses that are in records.
        pub recorded: u64,
        /// Base pages of those accesses: a large folio counts by its pages.
        pub recorded_pages: u64,
        /// Of the accesses, those that made a page ready.
        pub became_ready: u64,
        /// Accesses lost to 64 lost races in a row.
        pub lost: u64,
        /// Accesses of pages outside the lower tier.
        pub not_tracked: u64,
        /// Times at which the source could not tell the page.
        pub unreadable: u64,
    }
}

impl SourceStats {
    /// Both together.
    pub fn plus(self, other: SourceStats) -> SourceStats {
        SourceStats {
            recorded: self.recorded + other.recorded,
            recorded_pages: self.recorded_pages + other.recorded_pages,
            became_ready: self.became_ready + other.became_ready,
            lost: self.lost + other.lost,
            not_tracked: self.not_tracked + other.not_tracked,
            unreadable: self.unreadable + other.unreadable,
        }
    }
}

/// A sampled page became ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadySample {
    /// The page.
    pub pfn: Pfn,
    /// When, `CLOCK_MONOTONIC` ns.
    pub when_ns: u64,
}
