//! The two record formats, a record taken apart, and the rule that reports apply.

use std::sync::LazyLock;

use crate::ffi::{self, RawLayout, RawRule};
use crate::{Error, Nid, bytes_of};

/// How much a record remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One byte a page: frequency up to 3, time in 256 ms, target node from the tunable.
    Default,
    /// Four bytes a page: frequency up to 7, time in 2 ms, the accessing node.
    Precision,
}

impl Format {
    /// Bytes per page.
    pub fn record_bytes(self) -> usize {
        match self {
            Format::Default => 1,
            Format::Precision => 4,
        }
    }

    /// Records in one 32-bit word, the unit of compare-and-swap.
    pub(crate) fn records_per_word(self) -> usize {
        4 / self.record_bytes()
    }

    /// The largest frequency, and so the largest `freq_threshold`.
    pub fn freq_max(self) -> u32 {
        self.layout().freq_max
    }

    /// The windows that this format can keep apart from older accesses, in ms (as the kernel
    /// proposal's ranges at HZ=1000).
    pub fn window_range_ms(self) -> (u32, u32) {
        match self {
            Format::Default => (1000, 3968),
            Format::Precision => (1000, 16383),
        }
    }

    /// Resolution of the record's time, in ms.
    pub fn unit_ms(self) -> u32 {
        1 << self.layout().unit_shift
    }

    pub(crate) fn is_precision(self) -> bool {
        self == Format::Precision
    }

    /// Asked of the header once: a pass looks at it for each ready page.
    pub(crate) fn layout(self) -> &'static RawLayout {
        static DEFAULT: LazyLock<RawLayout> = LazyLock::new(|| layout(Format::Default));
        static PRECISION: LazyLock<RawLayout> = LazyLock::new(|| layout(Format::Precision));
        match self {
            Format::Default => &DEFAULT,
            Format::Precision => &PRECISION,
        }
    }

    /// The ready bits of all records in one word.
    pub(crate) fn ready_mask(self) -> u32 {
        let first = 1 << self.layout().ready_shift;
        (0..self.records_per_word()).fold(0, |mask, i| mask | first << (8 * i))
    }
}

fn layout(format: Format) -> RawLayout {
    // SAFETY: a pure function of its argument.
    unsafe { ffi::pghot_layout(format.is_precision() as i32) }
}

/// The parameters of the update rule: `freq_threshold` accesses within the window make a page
/// ready. Made from the tunables, handed to BPF as bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    raw: RawRule,
    format: Format,
    window_ms: u32,
}

impl Rule {
    /// Checks the two tunables against what `format` can hold.
    pub fn new(format: Format, freq_threshold: u32, window_ms: u32) -> Result<Rule, Error> {
        let max = format.freq_max();
        if !(1..=max).contains(&freq_threshold) {
            return Err(Error::FreqThreshold {
                got: freq_threshold,
                max,
            });
        }
        let range_ms = format.window_range_ms();
        if !(range_ms.0..=range_ms.1).contains(&window_ms) {
            return Err(Error::Window {
                got_ms: window_ms,
                range_ms,
            });
        }
        let mut raw = RawRule::default();
        let precision = format.is_precision() as i32;
        // SAFETY: `raw` is a valid place for the struct that the function fills.
        unsafe { ffi::pghot_rule_init(&mut raw, precision, freq_threshold, window_ms) };
        Ok(Rule {
            raw,
            format,
            window_ms,
        })
    }

    /// The format that the rule was made for.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The window in ms. An access older than this never counts.
    pub fn window_ms(&self) -> u32 {
        self.window_ms
    }

    /// How long after its last ageing a section's records are unambiguous, in ms.
    pub fn trust_ms(&self) -> u64 {
        self.raw.trust_ms as u64
    }

    /// How often live sections should be aged: twice within [`Rule::trust_ms`], so that one late
    /// pass costs no history.
    pub fn ageing_interval_ms(&self) -> u64 {
        self.trust_ms() / 2
    }

    /// The threshold: accesses within the window that make a page ready.
    pub fn freq_threshold(&self) -> u32 {
        self.raw.freq_threshold
    }

    /// The same for accesses of which one tells enough: it fills the record's frequency, and so
    /// makes its page ready.
    pub fn at_one_look(&self) -> Rule {
        let mut rule = *self;
        rule.raw.step = [self.raw.step[self.format.freq_max() as usize]; 8];
        rule
    }

    /// The same for accesses of which one makes its page ready, and no more: it counts as one, or
    /// as many as that takes, and fills no record. Where only a full record makes its page ready,
    /// it fills it.
    pub fn ready_at_one_look(&self) -> Rule {
        let full = self.format.freq_max();
        let threshold = self.raw.freq_threshold;
        if threshold == full {
            return self.at_one_look();
        }
        let mut rule = *self;
        let last = full as usize - 2;
        for (freq, step) in rule.raw.step.iter_mut().enumerate() {
            // After one more access than these.
            let from = freq.max(threshold as usize - 1).min(last);
            *step = self.raw.step[from];
        }
        rule
    }

    /// The same for accesses that only count, beside those by [`Rule::at_one_look`]: they fill no
    /// record, and make a full one count as the next less. So a full record tells that the last
    /// access was enough by itself. Where only a full record makes its page ready, nothing changes.
    pub fn counting(&self) -> Rule {
        let full = self.format.freq_max();
        let mut rule = *self;
        if self.raw.freq_threshold < full {
            let before = self.raw.step[full as usize - 2];
            rule.raw.step[full as usize - 1..].fill(before);
        }
        rule
    }

    /// The bytes of `struct hotness_rule`, as the BPF programs read them.
    pub fn bytes(&self) -> &[u8] {
        bytes_of(&self.raw)
    }

    pub(crate) fn raw(&self) -> &RawRule {
        &self.raw
    }
}

/// One record, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    bits: u32,
    format: Format,
}

impl Record {
    pub(crate) fn new(bits: u32, format: Format) -> Record {
        Record { bits, format }
    }

    /// The record as it is stored.
    pub fn bits(self) -> u32 {
        self.bits
    }

    /// No access within the window.
    pub fn is_empty(self) -> bool {
        self.bits == 0
    }

    /// Accesses counted in the current window, saturating at [`Format::freq_max`].
    pub fn freq(self) -> u32 {
        let l = self.format.layout();
        (self.bits >> l.freq_shift) & l.freq_max
    }

    /// The threshold was reached and the page is waiting for the migrator.
    pub fn is_ready(self) -> bool {
        self.bits & (1 << self.format.layout().ready_shift) != 0
    }

    /// The node of the last accessing CPU; `None` in default mode, which does not keep it.
    pub fn nid(self) -> Option<Nid> {
        match self.format {
            Format::Default => None,
            Format::Precision => Some(self.bits & self.format.layout().nid_mask),
        }
    }

    /// Time since the last access, in ms: a multiple of [`Format::unit_ms`], exact only for
    /// sections that are aged in time.
    pub fn age_ms(self, now_ms: u64) -> u32 {
        let precision = self.format.is_precision() as i32;
        // SAFETY: a pure function of its arguments.
        let age = unsafe { ffi::pghot_late_age(self.bits, now_ms, precision) };
        let units = age >> self.format.layout().time_shift;
        (units * self.format.unit_ms()).saturating_sub(ffi::LATE_MS)
    }

    /// The last access lies surely within the rule's window.
    pub fn is_fresh(self, now_ms: u64, rule: &Rule) -> bool {
        ffi::aged(self.bits, now_ms, true, rule) != 0
    }
}
