//! Skewed choices: item of rank r is chosen in proportion to 1 / r^exponent, as keys of real caches
//! are.

use crate::random::XorShift;

/// A distribution over `0..items`, whose popular items lie anywhere among the others.
pub struct Zipf {
    /// Up to and with this rank, the share of all choices.
    shares: Vec<f64>,
    /// Which item has this rank.
    items: Vec<u32>,
}

impl Zipf {
    /// With an exponent of 0 all items are alike; 0.99 is what benchmarks of caches use.
    pub fn new(items: u32, exponent: f64, seed: u64) -> Self {
        let mut sum = 0.0;
        let weight = |rank: u32| f64::from(rank).powf(-exponent);
        let sums = (1..=items).map(|rank| {
            sum += weight(rank);
            sum
        });
        let mut shares: Vec<f64> = sums.collect();
        shares.iter_mut().for_each(|share| *share /= sum);
        Self {
            shares,
            items: shuffled(items, seed),
        }
    }

    /// The next item.
    pub fn choose(&self, random: &mut XorShift) -> u32 {
        const MANTISSA_BITS: u32 = 53;
        let share =
            (random.next_bits() >> (64 - MANTISSA_BITS)) as f64 / (1u64 << MANTISSA_BITS) as f64;
        let rank = self.shares.partition_point(|&upto| upto <= share);
        // The last share may be a little less than 1.
        self.items[rank.min(self.items.len() - 1)]
    }
}

/// All items in a random order (Fisher and Yates).
fn shuffled(items: u32, seed: u64) -> Vec<u32> {
    let mut random = XorShift::new(seed);
    let mut order: Vec<u32> = (0..items).collect();
    for last in (1..items).rev() {
        order.swap(last as usize, random.below(last + 1) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(exponent: f64) -> Vec<u32> {
        let zipf = Zipf::new(1000, exponent, 7);
        let mut random = XorShift::new(1);
        let mut counts = vec![0; 1000];
        for _ in 0..100_000 {
            counts[zipf.choose(&mut random) as usize] += 1;
        }
        counts.sort_unstable_by(|a, b| b.cmp(a));
        counts
    }

    #[test]
    fn the_second_is_chosen_half_as_often_as_the_first() {
        let counts = counts(1.0);
        // H(1000) is 7.485: the first has 13.4 % of all.
        assert!((13_000..13_800).contains(&counts[0]), "{counts:?}");
        assert!((6_400..7_000).contains(&counts[1]), "{counts:?}");
    }

    #[test]
    fn without_an_exponent_all_are_alike() {
        let counts = counts(0.0);
        assert!(counts[0] < 150 && counts[999] > 50, "{counts:?}");
    }

    #[test]
    fn every_item_has_one_rank() {
        let mut order = shuffled(100, 3);
        assert_ne!(order, (0..100).collect::<Vec<u32>>());
        order.sort_unstable();
        assert_eq!(order, (0..100).collect::<Vec<u32>>());
    }
}
