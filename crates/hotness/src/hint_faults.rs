//! What one hint fault tells, by the rule of `include/hint_faults.h`: for the program that sees
//! hint faults, and for a model of it.

use crate::ffi::{self, FAULT_BLOCKS, RawBlock, RawQuick};
use crate::{Rule, bytes_of, mirror};

mirror! {
    /// What a hint fault tells of its page.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum HintFault = "hint_fault", "HINT_FAULT_" {
        /// One access, like others.
        Counted,
        /// The same, but who reads accessed bits sees it too.
        Left,
        /// It came soon after the mark: its page is hot.
        Soon,
        /// It came not quite as soon: its page is ready as well, after those.
        Early,
        /// It came later, but in a burst: its page is hot.
        InBurst,
    }
}

/// Which hint faults tell at one look that their page is hot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuickFaults(RawQuick);

impl QuickFaults {
    /// Those that come within so many ms of the mark, of which the sooner ones fill their records,
    /// and those in bursts if wanted. `rule` is that of other accesses. With `only_quick`, other
    /// faults are left to who reads accessed bits.
    pub fn new(
        rule: &Rule,
        (soon_ms, within_ms): (u32, u32),
        in_bursts: bool,
        only_quick: bool,
    ) -> QuickFaults {
        QuickFaults(RawQuick {
            filling: *rule.at_one_look().raw(),
            sufficing: *rule.ready_at_one_look().raw(),
            soon_ms,
            within_ms,
            in_bursts: in_bursts.into(),
            only_quick: only_quick.into(),
        })
    }

    /// The bytes of `struct quick_faults`.
    pub fn bytes(&self) -> &[u8] {
        bytes_of(&self.0)
    }
}

/// The newest faults of a process by blocks of 2 MiB: what the program keeps of all processes.
pub struct FaultBlocks(Vec<RawBlock>);

impl Default for FaultBlocks {
    fn default() -> FaultBlocks {
        FaultBlocks(vec![RawBlock::default(); FAULT_BLOCKS])
    }
}

impl FaultBlocks {
    /// What a fault of a folio of 2^order pages tells; its first page is numbered in its process.
    /// Times are in ms, that since the mark by [`page_since_mark_ms`].
    pub fn note(
        &mut self,
        quick: &QuickFaults,
        (page, order): (u64, u32),
        since_mark_ms: u32,
        now_ms: u32,
    ) -> HintFault {
        // SAFETY: both are what the function takes, and there are as many blocks as it knows of.
        let kind = unsafe {
            let blocks = self.0.as_mut_ptr();
            ffi::pghot_hint_fault_kind(&quick.0, blocks, page, order, since_mark_ms, now_ms)
        };
        HintFault::of_number(kind).unwrap_or(HintFault::Counted)
    }
}

/// The time since the mark, in µs, for each page of a folio of 2^order pages, in ms: so many times
/// as long, because the folio is touched as often as all of them together.
pub fn page_since_mark_ms(since_mark_us: u64, order: u32) -> u32 {
    // SAFETY: a pure function of its arguments.
    unsafe { ffi::pghot_page_since_mark_ms(since_mark_us, order) }
}

/// The class of a fault by its time since the mark: below 8 ms, 16 ms, and so on; the last of
/// [`FAULT_CLASSES`] is for all later ones. Those in a burst are in one of the last two.
pub fn fault_class(kind: HintFault, since_mark_ms: u32) -> usize {
    // SAFETY: a pure function of its arguments.
    unsafe { ffi::pghot_hint_fault_class(kind as u32, since_mark_ms) as usize }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;

    fn quick(within_ms: u32, in_bursts: bool) -> QuickFaults {
        let rule = Rule::new(Format::Default, 2, 3000).unwrap();
        QuickFaults::new(&rule, (within_ms, within_ms), in_bursts, false)
    }

    /// How many of the faults are in bursts that come once in so many ms.
    fn in_bursts(each_ms: f64, page_of: impl Fn(u64) -> u64) -> usize {
        let (mut blocks, quick) = (FaultBlocks::default(), quick(0, true));
        let is_in_burst = |i: &u64| {
            let now_ms = 1000 + (*i as f64 * each_ms) as u32;
            blocks.note(&quick, (page_of(*i), 0), 5000, now_ms) == HintFault::InBurst
        };
        (0..4096).filter(is_in_burst).count()
    }

    #[test]
    fn a_fault_is_of_the_class_of_its_time() {
        let classes = |kind| {
            let times = [0, 7, 8, 15, 16, 31, 32, 511, 512, 1023, 1024, u32::MAX];
            times.map(|ms| fault_class(kind, ms))
        };
        let by_time = [0, 0, 1, 1, 2, 2, 3, 6, 7, 7, 8, 8];
        for kind in [HintFault::Counted, HintFault::Left, HintFault::Soon] {
            assert_eq!(classes(kind), by_time);
        }
        // In a burst the mark's age tells nothing of how often a page is touched.
        assert_eq!(
            classes(HintFault::InBurst),
            by_time.map(|class| class.max(7))
        );
    }

    #[test]
    fn many_neighbours_at_once_are_a_burst() {
        // All pages of a block, far from each other at first.
        let scattered = |i: u64| i / 512 * 512 + ((i % 512) << 55).reverse_bits();
        assert_eq!(in_bursts(0.02, scattered), 4096 / 512 * (512 - 24));
        assert_eq!(in_bursts(2.0, scattered), 0, "too slow");
        assert_eq!(in_bursts(0.1, |i| i * 512), 0, "far from each other");
        assert_eq!(in_bursts(0.1, |i| i), 0, "once over memory");
        assert_eq!(in_bursts(0.1, |i| (1 << 20) - i), 0, "backwards");
        // Twice over memory, at two places, with every fifth page in use beside it.
        let beside = |i: u64| match i % 3 {
            0 => i / 3,
            1 => i / 3 + 256,
            _ => i / 3 / 5 * 5,
        };
        assert_eq!(in_bursts(0.2, beside), 0);
    }

    /// A part of a block comes into use: its pages fault in any order.
    #[test]
    fn most_of_a_small_hot_set_is_a_burst() {
        // 83 and 200 have no divisor in common, so each page comes once.
        let came = in_bursts(0.03, |i| i / 200 * 512 + i % 200 * 83 % 200);
        assert!(came > 4096 * 3 / 4, "{came} of 4096");
    }

    #[test]
    fn a_fault_is_quick_for_its_time_or_its_neighbours() {
        let mut blocks = FaultBlocks::default();
        let mut kind = |quick, since_ms| blocks.note(&quick, (7, 0), since_ms, 1000);
        assert_eq!(kind(quick(0, false), 0), HintFault::Counted);
        assert_eq!(kind(quick(8, false), 7), HintFault::Soon);
        assert_eq!(kind(quick(8, false), 8), HintFault::Counted);
        assert_eq!(kind(quick(8, true), 8), HintFault::Counted);
        let rule = Rule::new(Format::Default, 2, 3000).unwrap();
        let only = QuickFaults::new(&rule, (8, 16), false, true);
        assert_eq!(kind(only, 7), HintFault::Soon);
        assert_eq!(kind(only, 8), HintFault::Early);
        assert_eq!(kind(only, 16), HintFault::Left);
    }

    /// Of a huge page each page is touched a 512th as often.
    #[test]
    fn a_huge_page_is_hot_if_its_pages_are() {
        assert_eq!(page_since_mark_ms(5999, 0), 5);
        assert_eq!(page_since_mark_ms(15, 9), 7);
        assert_eq!(page_since_mark_ms(16, 9), 8);
        assert_eq!(page_since_mark_ms(1 << 40, 9), u32::MAX);
        let mut blocks = FaultBlocks::default();
        let rule = Rule::new(Format::Default, 2, 3000).unwrap();
        let mut kind = |only_quick, since_ms| {
            let quick = QuickFaults::new(&rule, (8, 16), true, only_quick);
            blocks.note(&quick, (512, 9), since_ms, 1000)
        };
        assert_eq!(kind(false, 7), HintFault::Soon);
        assert_eq!(kind(false, 8), HintFault::Counted, "it is never just early");
        assert_eq!(kind(true, 8), HintFault::Left);
    }
}
