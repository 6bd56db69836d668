//! The functions of the C headers as the compiler made them, and what crosses with them.

use crate::span::RANGES_MAX;
use crate::{Access, CHUNK_BYTES, IndexedRange, Mirror, Rule, SECTION_PAGES, Shape, mirror};

mirror! {
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct RawRule = "hotness_rule" {
        pub trust_ms: i64,
        pub span: u32,
        pub freq_threshold: u32,
        pub step: [u32; 8],
    }
}

mirror! {
    #[derive(Debug, Clone, Copy)]
    pub struct RawLayout = "hotness_layout" {
        pub unit_shift: u32,
        pub time_shift: u32,
        pub time_mask: u32,
        pub freq_shift: u32,
        pub freq_max: u32,
        pub nid_mask: u32,
        pub ready_shift: u32,
        pub mask: u32,
    }
}

mirror! {
    pub struct RawRangeView = "pghot_range_view" {
        pub words: *mut u8,
        pub sections: *mut u64,
        pub start_pfn: u64,
        pub pages: u64,
    }
}

mirror! {
    #[derive(Default)]
    pub struct RawCounts = "pghot_counts" {
        pub became_ready: u64,
        pub lost: u64,
        pub ends_with_sample: u64,
    }
}

mirror! {
    pub struct RawPlace = "hotness_place" {
        pub word: u64,
        pub section: u64,
        pub shift: u64,
    }
}

mirror! {
    /// What became of one report.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Report = "hotness_result", "HOTNESS_" {
        /// The access is in the record.
        Recorded,
        /// The access is in the record and made the page ready.
        BecameReady,
        /// Other CPUs won the record's word 64 times in a row: the access is not recorded.
        Lost,
        /// The page has no record: it is not in a lower tier.
        NotTracked,
    }
}

/// Classes of [`crate::fault_class`].
pub const FAULT_CLASSES: usize = 9;

/// Places for blocks, and the words of a block's pages.
pub(crate) const FAULT_BLOCKS: usize = 4096;
const BLOCK_WORDS: usize = 8;

/// Compared with C's.
const HINT_FAULT_NUMBERS: &crate::Shape = mirror!(names "hint_fault_numbers", "NR_" {
    FAULT_CLASSES, FAULT_BLOCKS, BLOCK_WORDS,
});

mirror! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct RawQuick = "quick_faults" {
        pub filling: RawRule,
        pub sufficing: RawRule,
        pub soon_ms: u32,
        pub within_ms: u32,
        pub in_bursts: u32,
        pub only_quick: u32,
    }
}

mirror! {
    #[derive(Debug, Clone, Copy, Default)]
    pub(crate) struct RawBlock = "fault_block" {
        key: u64,
        start_ms: u32,
        faults: u32,
        faulted: [u64; BLOCK_WORDS],
    }
}

pub const LATE_MS: u32 = 256;
pub const LIVE: u64 = 1;
pub const HOT: u64 = 2;
pub const SWEEPING: u64 = 4;
pub const UNTIL_SHIFT: u32 = 3;

/// All that crosses to C here.
pub const BORDER: &[&Shape] = &[
    RawRule::SHAPE,
    RawLayout::SHAPE,
    RawRangeView::SHAPE,
    RawCounts::SHAPE,
    RawPlace::SHAPE,
    RawQuick::SHAPE,
    RawBlock::SHAPE,
    Access::SHAPE,
    IndexedRange::SHAPE,
    Report::SHAPE,
    crate::HintFault::SHAPE,
    HINT_FAULT_NUMBERS,
    mirror!(names "hotness_numbers", "NR_" {
        LATE_MS, LIVE, HOT, SWEEPING, UNTIL_SHIFT, SECTION_PAGES, RANGES_MAX, CHUNK_BYTES,
    }),
];

unsafe extern "C" {
    pub fn pghot_report_bulk(
        accesses: *const Access,
        n: u64,
        view: *const RawRangeView,
        now_ms: u64,
        rule: *const RawRule,
        counts: *mut RawCounts,
        precision: i32,
    ) -> u64;
    pub fn pghot_report(
        words: *mut u8,
        sections: *mut u64,
        index: u64,
        now_ms: u64,
        nid: u32,
        rule: *const RawRule,
        precision: i32,
    ) -> u32;
    pub fn pghot_place(index: u64, precision: i32) -> RawPlace;
    #[cfg(test)]
    pub fn pghot_index(ranges: *const IndexedRange, nr: u32, pfn: u64) -> i64;
    pub fn pghot_is_sampled(pfn: u64) -> i32;
    pub fn pghot_hint_fault_kind(
        quick: *const RawQuick,
        blocks: *mut RawBlock,
        page: u64,
        order: u32,
        since_mark_ms: u32,
        now_ms: u32,
    ) -> u32;
    pub fn pghot_page_since_mark_ms(since_mark_us: u64, order: u32) -> u32;
    pub fn pghot_hint_fault_class(kind: u32, since_mark_ms: u32) -> u32;
    pub fn pghot_aged(
        rec: u32,
        now_ms: u64,
        trusted: i32,
        rule: *const RawRule,
        precision: i32,
    ) -> u32;
    pub fn pghot_late_age(rec: u32, now_ms: u64, precision: i32) -> u32;
    pub fn pghot_trusted(section: u64, now_ms: u64) -> i32;
    pub fn pghot_rule_init(rule: *mut RawRule, precision: i32, freq_threshold: u32, window_ms: u32);
    pub fn pghot_layout(precision: i32) -> RawLayout;
}

/// Where a record lies.
pub fn place(index: u64, precision: bool) -> RawPlace {
    // SAFETY: a pure function of its arguments.
    unsafe { pghot_place(index, precision.into()) }
}

pub fn aged(rec: u32, now_ms: u64, trusted: bool, rule: &Rule) -> u32 {
    let precision = rule.format().is_precision();
    // SAFETY: the function reads the rule behind the reference and nothing else.
    unsafe { pghot_aged(rec, now_ms, trusted as i32, rule.raw(), precision as i32) }
}

pub fn trusted(section: u64, now_ms: u64) -> bool {
    // SAFETY: a pure function of its arguments.
    unsafe { pghot_trusted(section, now_ms) != 0 }
}
