//! The table of all records: reporting into it, reading ready pages out of it, ageing it.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use crate::ffi::{self, HOT, LIVE, SWEEPING, UNTIL_SHIFT};
use crate::storage::Memory;
use crate::{
    Error, Format, InMemory, Nid, Pfn, Record, Report, Rule, SECTION_PAGES, Span, Storage, mirror,
};

mirror! {
    /// One access, as a source saw it.
    #[derive(Debug, Clone, Copy)]
    pub struct Access = "pghot_access" {
        /// The accessed page; of a large folio, its head page.
        pub pfn: Pfn,
        /// The node of the accessing CPU.
        pub nid: Nid,
    }
}

/// Whether a page is one of the samples by which latency is measured: one page in 64, always the
/// same ones, whoever sees it.
pub fn is_sampled(pfn: Pfn) -> bool {
    // SAFETY: a pure function of its argument.
    unsafe { ffi::pghot_is_sampled(pfn) != 0 }
}

/// What became of a bulk of reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BulkReport {
    /// Accesses now in records.
    pub recorded: u64,
    /// Of those, accesses that made a page ready.
    pub became_ready: u64,
    /// Not recorded after too many lost races.
    pub lost: u64,
    /// Pages without a record.
    pub not_tracked: u64,
}

/// A page whose record is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadyPage {
    /// The page.
    pub pfn: Pfn,
    /// Its record when it was read.
    pub record: Record,
}

/// What ageing did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Live sections that were read.
    pub sections: u64,
    /// Records cleared because their last access fell out of the window.
    pub expired: u64,
    /// Of those, pages that were ready and had not been moved.
    pub expired_ready: u64,
}

impl AddAssign for Swept {
    fn add_assign(&mut self, more: Swept) {
        self.sections += more.sections;
        self.expired += more.expired;
        self.expired_ready += more.expired_ready;
    }
}

/// One record per lower-tier page and one word per section.
///
/// Everything is lock-free and safe from any thread, also against BPF programs that write the
/// same memory. Cost: a report touches one record word and one section word; a pass over a node
/// touches 8 bytes per idle section and `SECTION_PAGES * record_bytes` per hot one.
pub struct Table {
    format: Format,
    span: Span,
    memory: Memory,
}

impl Table {
    /// A table over the given memory, which must be zero or hold records of the same shape.
    pub fn new(format: Format, span: Span, storage: Box<dyn Storage>) -> Result<Table, Error> {
        let needed = (Table::words_needed(format, &span), span.sections());
        let got = (storage.words().len(), storage.sections().len());
        if got.0 < needed.0 || got.1 < needed.1 {
            return Err(Error::Storage { needed, got });
        }
        Ok(Table {
            format,
            span,
            memory: Memory::new(storage),
        })
    }

    /// A table of its own memory, for simulation and tests.
    pub fn in_memory(format: Format, span: Span) -> Table {
        let words = Table::words_needed(format, &span);
        let storage = Box::new(InMemory::new(words, span.sections()));
        Table {
            format,
            span,
            memory: Memory::new(storage),
        }
    }

    fn words_needed(format: Format, span: &Span) -> usize {
        span.pages() as usize / format.records_per_word()
    }

    /// The format of the records.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The pages that have a record.
    pub fn span(&self) -> &Span {
        &self.span
    }

    /// The word that holds a page's record, and its first bit there.
    fn place(&self, pfn: Pfn) -> Option<(&AtomicU32, u32)> {
        let place = ffi::place(self.span.index(pfn)?, self.format.is_precision());
        let word = &self.memory.words()[place.word as usize / size_of::<AtomicU32>()];
        Some((word, place.shift as u32))
    }

    /// Reports one access of `pfn` by a CPU of `nid`. `rule` must be of the table's format.
    pub fn report(&self, pfn: Pfn, nid: Nid, when_ms: u64, rule: &Rule) -> Report {
        debug_assert_eq!(rule.format(), self.format);
        let Some(index) = self.span.index(pfn) else {
            return Report::NotTracked;
        };
        let words = self.memory.words().as_ptr().cast_mut().cast();
        let sections = self.memory.sections().as_ptr().cast_mut().cast();
        let (rule, precision) = (rule.raw(), self.format.is_precision() as i32);
        // SAFETY: there is a record and a section word for each index of the span (`new`); both are
        // live atomics, which the C side touches only with aligned volatile loads and
        // compare-and-swaps of the same size.
        let result =
            unsafe { ffi::pghot_report(words, sections, index, when_ms, nid, rule, precision) };
        Report::of_number(result).unwrap_or(Report::Lost)
    }

    /// Reports accesses of one moment, `CLOCK_MONOTONIC` ms; the same as one [`Table::report`]
    /// each, at less than half the cost: accesses in one range of pages take one lookup and one
    /// call together. Calls `ready_sample` for each page that became ready and [`is_sampled`].
    pub fn report_bulk(
        &self,
        accesses: &[Access],
        when_ms: u64,
        rule: &Rule,
        mut ready_sample: impl FnMut(Pfn),
    ) -> BulkReport {
        debug_assert_eq!(rule.format(), self.format);
        let precision = (self.format == Format::Precision) as i32;
        let (mut counts, mut sum) = (ffi::RawCounts::default(), BulkReport::default());
        let mut rest = accesses;
        while let Some(first) = rest.first() {
            let Some(view) = self.view(first.pfn) else {
                sum.not_tracked += 1;
                rest = &rest[1..];
                continue;
            };
            // SAFETY: the view covers one range of this table's live atomics, which the C side
            // touches only with aligned volatile loads and compare-and-swaps of their size; it
            // reads no more than `rest.len()` accesses.
            let n = unsafe {
                let (first, n) = (rest.as_ptr(), rest.len() as u64);
                let rule = rule.raw();
                ffi::pghot_report_bulk(first, n, &view, when_ms, rule, &mut counts, precision)
            };
            sum.recorded += n;
            let (reported, left) = rest.split_at(n as usize);
            if std::mem::take(&mut counts.ends_with_sample) != 0
                && let Some(last) = reported.last()
            {
                ready_sample(last.pfn);
            }
            rest = left;
        }
        sum.recorded -= counts.lost;
        sum.became_ready = counts.became_ready;
        sum.lost = counts.lost;
        sum
    }

    /// The range around a page, as the C side walks it.
    fn view(&self, pfn: Pfn) -> Option<ffi::RawRangeView> {
        let mut ranges = self.span.ranges();
        let (range, base) = ranges.find(|(r, _)| (r.start..r.end).contains(&pfn))?;
        let place = ffi::place(base, self.format.is_precision());
        let words = &self.memory.words()[place.word as usize / size_of::<AtomicU32>()..];
        let sections = &self.memory.sections()[place.section as usize / size_of::<AtomicU64>()..];
        Some(ffi::RawRangeView {
            words: words.as_ptr().cast_mut().cast(),
            sections: sections.as_ptr().cast_mut().cast(),
            start_pfn: range.start,
            pages: range.end - range.start,
        })
    }

    /// The record of a page; `None` if the page is in no lower tier.
    pub fn get(&self, pfn: Pfn) -> Option<Record> {
        let (word, shift) = self.place(pfn)?;
        Some(self.record(word.load(Relaxed), shift))
    }

    fn record(&self, word: u32, shift: u32) -> Record {
        Record::new((word >> shift) & self.format.layout().mask, self.format)
    }

    /// Clears a page's record and returns what it held: the page moved, or is gone.
    pub fn take(&self, pfn: Pfn) -> Option<Record> {
        let (word, shift) = self.place(pfn)?;
        let old = word.fetch_and(!(self.format.layout().mask << shift), AcqRel);
        Some(self.record(old, shift))
    }

    /// Calls `f` for each ready page of the node's hot sections, in PFN order, and returns how
    /// many sections were hot. Records are left as they are.
    pub fn ready_pages(&self, nid: Nid, f: &mut dyn FnMut(ReadyPage)) -> u64 {
        let mut hot_sections = 0;
        for (first, count, start_pfn) in self.span.sections_of(nid) {
            for (i, mark) in self.memory.sections()[first..first + count]
                .iter()
                .enumerate()
            {
                if mark.load(Relaxed) & HOT == 0 {
                    continue;
                }
                hot_sections += 1;
                // Cleared before reading: a page that becomes ready behind us marks it again.
                mark.fetch_and(!HOT, AcqRel);
                let pfn = start_pfn + i as u64 * SECTION_PAGES;
                if self.ready_in_section(first + i, pfn, f) {
                    mark.fetch_or(HOT, AcqRel);
                }
            }
        }
        hot_sections
    }

    fn section_words(&self, section: usize) -> &[AtomicU32] {
        let words = SECTION_PAGES as usize / self.format.records_per_word();
        &self.memory.words()[section * words..(section + 1) * words]
    }

    fn ready_in_section(&self, section: usize, pfn: Pfn, f: &mut dyn FnMut(ReadyPage)) -> bool {
        let mask = self.format.ready_mask();
        let per_word = self.format.records_per_word() as u64;
        let mut found = false;
        // A cache line at a time: most lines of a hot section hold nothing ready, and this loop
        // should run at memory speed over them.
        for (line, words) in self.section_words(section).chunks_exact(16).enumerate() {
            if words.iter().fold(0, |any, w| any | w.load(Relaxed)) & mask == 0 {
                continue;
            }
            for (i, word) in words.iter().enumerate() {
                let word = word.load(Relaxed);
                if word & mask == 0 {
                    continue;
                }
                let first = pfn + (line * 16 + i) as u64 * per_word;
                for slot in 0..per_word {
                    let record = self.record(word, slot as u32 * 8);
                    if record.is_ready() {
                        found = true;
                        f(ReadyPage {
                            pfn: first + slot,
                            record,
                        });
                    }
                }
            }
        }
        found
    }

    /// Ages the node's live sections that were last aged `interval_ms` ago or longer: clears the
    /// records whose last access has left the window, and the sections that hold nothing more.
    /// May run while ready pages are read and taken.
    pub fn sweep(&self, nid: Nid, now_ms: u64, interval_ms: u64, rule: &Rule) -> Swept {
        let mut swept = Swept::default();
        for (first, count, _) in self.span.sections_of(nid) {
            for section in first..first + count {
                let mark = &self.memory.sections()[section];
                let word = mark.load(Relaxed);
                let aged_ms = (word >> UNTIL_SHIFT).saturating_sub(rule.trust_ms());
                let due = now_ms.saturating_sub(aged_ms) >= interval_ms;
                if word & (LIVE | HOT) != 0 && due {
                    self.sweep_section(section, mark, now_ms, rule, &mut swept);
                }
            }
        }
        swept
    }

    fn sweep_section(
        &self,
        section: usize,
        mark: &AtomicU64,
        now_ms: u64,
        rule: &Rule,
        swept: &mut Swept,
    ) {
        swept.sections += 1;
        // Reports that arrive from here on mark the section live again.
        let swap = |w: u64| Some((w | SWEEPING) & !LIVE);
        let before = mark.fetch_update(AcqRel, Acquire, swap).unwrap_or_default();
        let trusted = ffi::trusted(before, now_ms);
        let mut left = false;
        for word in self.section_words(section) {
            if word.load(Relaxed) != 0 {
                left |= self.age_word(word, now_ms, trusted, rule, swept);
            }
        }
        let until = (now_ms + rule.trust_ms()) << UNTIL_SHIFT;
        let done = |w: u64| match (w & (LIVE | HOT), left) {
            (flags, true) => Some(until | flags | LIVE),
            // Emptied, unless a report marked it meanwhile: then its record is just as young.
            (flags, false) if flags & LIVE != 0 => Some(until | flags),
            (_, false) => Some(0),
        };
        mark.fetch_update(AcqRel, Acquire, done).ok();
    }

    /// Ages the records of one word; true if something is left in it.
    fn age_word(
        &self,
        word: &AtomicU32,
        now_ms: u64,
        trusted: bool,
        rule: &Rule,
        swept: &mut Swept,
    ) -> bool {
        let l = self.format.layout();
        let mut old = word.load(Relaxed);
        loop {
            let (mut new, mut expired, mut expired_ready) = (0, 0, 0);
            for slot in 0..self.format.records_per_word() as u32 {
                let rec = (old >> (slot * 8)) & l.mask;
                let kept = if rec == 0 {
                    0
                } else {
                    ffi::aged(rec, now_ms, trusted, rule)
                };
                new |= kept << (slot * 8);
                expired += (kept != rec) as u64;
                expired_ready += (kept != rec && rec >> l.ready_shift & 1 != 0) as u64;
            }
            if new == old {
                return new != 0;
            }
            match word.compare_exchange_weak(old, new, AcqRel, Relaxed) {
                Ok(_) => {
                    swept.expired += expired;
                    swept.expired_ready += expired_ready;
                    return new != 0;
                }
                Err(seen) => old = seen,
            }
        }
    }

    /// Sections of a node that hold records, and of those the hot ones.
    pub fn live_sections(&self, nid: Nid) -> (u64, u64) {
        let (mut live, mut hot) = (0, 0);
        for (first, count, _) in self.span.sections_of(nid) {
            for mark in &self.memory.sections()[first..first + count] {
                let word = mark.load(Relaxed);
                live += (word & LIVE != 0) as u64;
                hot += (word & HOT != 0) as u64;
            }
        }
        (live, hot)
    }

    /// Bytes of all records and of all section words.
    pub fn bytes(&self) -> (u64, u64) {
        let records = self.span.pages() * self.format.record_bytes() as u64;
        (records, self.span.sections() as u64 * 8)
    }
}
