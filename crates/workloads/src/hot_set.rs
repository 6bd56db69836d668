//! Which pages of the region are hot: chosen once, from the seed, before any access.

use crate::random::XorShift;

/// How the hot pages lie among the cold ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Layout {
    /// Anywhere, as a hash table would have them.
    Scattered,
    /// One run from the start of the region, as an arena or a log would have them.
    Contiguous,
}

/// The hot pages of a region.
#[derive(Debug)]
pub struct HotSet {
    /// Page numbers, ascending.
    pages: Vec<u32>,
    /// For each page of the region, whether it is hot.
    is_hot: Vec<bool>,
}

impl HotSet {
    /// Chooses `percent` % of `region_pages` pages, rounded to the nearest count, at least one.
    ///
    /// Pages are chosen in units of `unit_pages` that move together (512 for a huge page):
    /// with 4 KiB choices nearly every huge page would be hot and precision would mean nothing.
    pub fn choose(
        region_pages: u32,
        percent: u32,
        layout: Layout,
        unit_pages: u32,
        seed: u64,
    ) -> Self {
        let units = region_pages / unit_pages;
        let hot_units = ((u64::from(units) * u64::from(percent) + 50) / 100).max(1) as usize;
        let mut unit_numbers: Vec<u32> = (0..units).collect();
        if layout == Layout::Scattered {
            shuffle_front(&mut unit_numbers, hot_units, seed);
        }
        unit_numbers.truncate(hot_units);
        unit_numbers.sort_unstable();

        let pages: Vec<u32> = unit_numbers
            .iter()
            .flat_map(|unit| unit * unit_pages..(unit + 1) * unit_pages)
            .collect();
        let mut is_hot = vec![false; region_pages as usize];
        for &page in &pages {
            is_hot[page as usize] = true;
        }
        Self { pages, is_hot }
    }

    /// Without the first page of each unit.
    pub fn without_first(mut self, unit_pages: u32) -> Self {
        let is_first = |page: u32| page.is_multiple_of(unit_pages);
        self.pages.retain(|&page| !is_first(page));
        for (page, hot) in (0..).zip(&mut self.is_hot) {
            *hot &= !is_first(page);
        }
        self
    }

    /// The hot pages' numbers, ascending.
    pub fn pages(&self) -> &[u32] {
        &self.pages
    }

    /// The cold pages' numbers, ascending.
    pub fn cold_pages(&self) -> Vec<u32> {
        (0..)
            .zip(&self.is_hot)
            .filter(|(_, hot)| !**hot)
            .map(|(page, _)| page)
            .collect()
    }

    /// For each page of the region, whether it is hot.
    pub fn is_hot(&self) -> &[bool] {
        &self.is_hot
    }

    /// Whether there is no cold page.
    pub fn is_everything(&self) -> bool {
        self.pages.len() == self.is_hot.len()
    }
}

/// Fisher-Yates, stopped after the first `count` places.
fn shuffle_front(items: &mut [u32], count: usize, seed: u64) {
    let mut random = XorShift::new(seed);
    for place in 0..count.min(items.len()) {
        let rest = (items.len() - place) as u32;
        items.swap(place, place + random.below(rest) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: u32 = 4096;

    fn scattered(percent: u32, seed: u64) -> Vec<u32> {
        HotSet::choose(PAGES, percent, Layout::Scattered, 1, seed).pages
    }

    #[test]
    fn same_seed_same_set() {
        assert_eq!(scattered(10, 7), scattered(10, 7));
        assert_ne!(scattered(10, 7), scattered(10, 8));
    }

    #[test]
    fn count_is_exact_and_pages_are_distinct() {
        for (percent, expected) in [(1, 41), (10, 410), (50, 2048), (100, 4096)] {
            let mut pages = scattered(percent, 1);
            assert_eq!(pages.len(), expected);
            pages.dedup();
            assert_eq!(pages.len(), expected);
        }
    }

    #[test]
    fn scattered_reaches_the_whole_region() {
        let pages = scattered(10, 1);
        for quarter in 0..4 {
            let range = quarter * PAGES / 4..(quarter + 1) * PAGES / 4;
            let inside = pages.iter().filter(|page| range.contains(page)).count();
            assert!(
                (60..150).contains(&inside),
                "quarter {quarter}: {inside} of 410"
            );
        }
    }

    #[test]
    fn contiguous_is_the_first_run() {
        let set = HotSet::choose(PAGES, 25, Layout::Contiguous, 1, 9);
        assert_eq!(set.pages, (0..1024).collect::<Vec<_>>());
        assert_eq!(set.cold_pages(), (1024..4096).collect::<Vec<_>>());
        assert!(!set.is_everything());
    }

    #[test]
    fn units_are_hot_as_a_whole() {
        let set = HotSet::choose(PAGES, 25, Layout::Scattered, 512, 3);
        assert_eq!(set.pages.len(), 1024);
        assert!(
            set.is_hot
                .chunks(512)
                .all(|unit| unit.iter().all(|hot| *hot == unit[0]))
        );
    }

    #[test]
    fn first_pages_can_be_left_out() {
        let set = HotSet::choose(PAGES, 100, Layout::Scattered, 512, 1).without_first(512);
        assert_eq!(set.pages.len(), 4096 - 8);
        assert!(!set.is_hot[512] && set.is_hot[513] && !set.pages.contains(&512));
    }

    #[test]
    fn all_hot_leaves_nothing_cold() {
        let set = HotSet::choose(PAGES, 100, Layout::Scattered, 1, 1);
        assert!(set.is_everything());
        assert!(set.cold_pages().is_empty());
    }
}
