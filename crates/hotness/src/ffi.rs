//! The functions of `hotness.h` as the C compiler made them.

use crate::{Access, Rule};

/// Mirror of `struct hotness_rule`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RawRule {
    pub trust_ms: i64,
    pub span: u32,
    pub freq_threshold: u32,
    pub step: [u32; 8],
}

/// Mirror of `struct hotness_layout`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RawLayout {
    pub unit_shift: u32,
    pub time_shift: u32,
    pub time_mask: u32,
    pub freq_shift: u32,
    pub freq_max: u32,
    pub nid_mask: u32,
    pub ready_shift: u32,
    pub mask: u32,
}

/// Mirror of `struct pghot_range_view`.
#[repr(C)]
pub struct RawRangeView {
    pub words: *mut u8,
    pub sections: *mut u64,
    pub start_pfn: u64,
    pub pages: u64,
}

/// Mirror of `struct pghot_counts`.
#[repr(C)]
#[derive(Default)]
pub struct RawCounts {
    pub became_ready: u64,
    pub lost: u64,
}

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
    pub fn pghot_report_default(
        word: *mut u32,
        shift: u32,
        section: *mut u64,
        now_ms: u64,
        nid: u32,
        rule: *const RawRule,
    ) -> i32;
    pub fn pghot_report_precision(
        word: *mut u32,
        shift: u32,
        section: *mut u64,
        now_ms: u64,
        nid: u32,
        rule: *const RawRule,
    ) -> i32;
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

pub const LATE_MS: u32 = 256;
pub const LIVE: u64 = 1;
pub const HOT: u64 = 2;
pub const SWEEPING: u64 = 4;
pub const UNTIL_SHIFT: u32 = 3;

/// What became of one report (the return value of `hotness_report`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// The access is in the record.
    Recorded,
    /// The access is in the record and made the page ready.
    BecameReady,
    /// Other CPUs won the record's word 64 times in a row: the access is not recorded.
    Lost,
    /// The page has no record: it is not in a lower tier.
    NotTracked,
}

impl Report {
    pub(crate) fn from_result(result: i32) -> Report {
        match result {
            0 => Report::Recorded,
            1 => Report::BecameReady,
            _ => Report::Lost,
        }
    }
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
