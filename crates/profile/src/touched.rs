//! A set of pages, as runs: how many pages lie before a run, and how long it is, one after the
//! other. Programs touch memory in runs, and a lone page takes two to four bytes on disk.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// A set of page numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Touched {
    /// Gap and length of each run, in turn; only the first gap may be 0, no length is.
    numbers: Vec<u32>,
}

impl Touched {
    /// Of ranges in any order, which may overlap.
    pub fn of(mut ranges: Vec<Range<u32>>) -> Touched {
        ranges.retain(|range| !range.is_empty());
        ranges.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<u32>> = Vec::new();
        for range in ranges {
            match merged.last_mut() {
                Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        let mut numbers = Vec::with_capacity(2 * merged.len());
        let mut end = 0;
        for range in merged {
            numbers.extend([range.start - end, range.end - range.start]);
            end = range.end;
        }
        Touched { numbers }
    }

    /// The runs, rising. Of a set that was not checked, up to the first that cannot be.
    pub fn runs(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        let mut end = 0u32;
        self.numbers.chunks_exact(2).map_while(move |run| {
            let start = end.checked_add(run[0])?;
            end = start.checked_add(run[1])?;
            Some(start..end)
        })
    }

    /// Pages of the set.
    pub fn pages(&self) -> u64 {
        self.runs().map(|run| run.len() as u64).sum()
    }

    /// The pages that are in one of two sets and not in both. The change from this set to another,
    /// applied to this set, gives the other. Of unchecked sets it is an unchecked set.
    pub(crate) fn change(&self, other: &Touched) -> Touched {
        // Where one of them alone begins or ends, so does the result.
        let (mut own, mut its) = (self.ends().peekable(), other.ends().peekable());
        let mut numbers = Vec::new();
        let mut last = 0;
        loop {
            let (first, second) = (own.peek(), its.peek());
            let is_own = match (first, second) {
                (Some(first), Some(second)) => first < second,
                _ => first.is_some(),
            };
            let is_both = first == second;
            let next = if is_own { own.next() } else { its.next() };
            let Some(end) = next else {
                return Touched { numbers };
            };
            if is_both {
                own.next();
            } else {
                numbers.push(end - last);
                last = end;
            }
        }
    }

    /// Where runs begin and end, in turn, rising.
    fn ends(&self) -> impl Iterator<Item = u32> + '_ {
        self.numbers.iter().scan(0u32, |end, number| {
            *end = end.checked_add(*number)?;
            Some(*end)
        })
    }

    /// Numbers that it takes in memory, of four bytes.
    pub(crate) fn numbers(&self) -> usize {
        self.numbers.len()
    }

    /// Bytes that it takes in a file, but for how many they are: seven bits of a number each.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = |number: &u32| u64::from((32 - number.leading_zeros()).div_ceil(7).max(1));
        self.numbers.iter().map(bytes).sum()
    }

    /// Whether all pages of another set are in it, too.
    pub(crate) fn contains(&self, other: &Touched) -> bool {
        let mut runs = self.runs();
        let mut run = runs.next();
        other.runs().all(|part| {
            while run.as_ref().is_some_and(|run| run.end <= part.start) {
                run = runs.next();
            }
            (run.as_ref()).is_some_and(|run| run.start <= part.start && part.end <= run.end)
        })
    }

    /// Says what is wrong, if anything is; pages end before `limit`.
    pub(crate) fn check(&self, limit: u32) -> Result<(), String> {
        if !self.numbers.len().is_multiple_of(2) {
            return Err("a run has no length".into());
        }
        for (run, number) in self.numbers.chunks_exact(2).zip(0..) {
            if run[1] == 0 || (run[0] == 0 && number > 0) {
                return Err(format!("run {number} is empty, or no run of its own"));
            }
        }
        if self.runs().count() * 2 != self.numbers.len() {
            return Err("page numbers overflow".into());
        }
        match self.runs().last() {
            Some(last) if last.end > limit => {
                Err(format!("page {} is behind the last block", last.end - 1))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_become_runs() {
        let touched = Touched::of(vec![5..7, 0..1, 6..9, 3..3, 9..10, 20..21]);
        let runs: Vec<_> = touched.runs().collect();
        assert_eq!(runs, [0..1, 5..10, 20..21]);
        assert_eq!(touched.pages(), 7);
        assert_eq!(touched.check(21), Ok(()));
        assert!(touched.check(20).unwrap_err().contains("page 20"));
        assert_eq!(Touched::default().check(0), Ok(()));
    }

    #[test]
    fn impossible_runs_are_told() {
        for numbers in [vec![1], vec![0, 0], vec![0, 1, 0, 1], vec![1, u32::MAX]] {
            let touched = Touched { numbers };
            assert!(touched.check(u32::MAX).is_err(), "{touched:?}");
            touched.pages();
        }
    }

    fn of(pages: &BTreeSet<u32>) -> Touched {
        Touched::of(pages.iter().map(|page| *page..page + 1).collect())
    }

    proptest! {
        #[test]
        fn a_change_is_what_one_of_two_sets_has_and_leads_back(
            one in prop::collection::btree_set(0u32..60, 0..40),
            other in prop::collection::btree_set(0u32..60, 0..40),
        ) {
            let different = &one ^ &other;
            let change = of(&one).change(&of(&other));
            prop_assert_eq!(&change, &of(&different));
            prop_assert_eq!(of(&one).change(&change), of(&other));
        }

        #[test]
        fn a_set_contains_its_parts_and_nothing_else(
            pages in prop::collection::btree_set(0u32..60, 0..40),
            others in prop::collection::btree_set(0u32..60, 0..4),
        ) {
            prop_assert_eq!(of(&pages).contains(&of(&others)), pages.is_superset(&others));
        }

        #[test]
        fn a_set_stays_what_it_is(pages in prop::collection::btree_set(0u32..500, 0..100)) {
            let touched = Touched::of(pages.iter().map(|page| *page..page + 1).collect());
            let again: BTreeSet<u32> = touched.runs().flatten().collect();
            prop_assert_eq!(&again, &pages);
            prop_assert_eq!(touched.check(500), Ok(()));
            prop_assert_eq!(touched.pages(), pages.len() as u64);
        }
    }
}
