//! The smallest size from which on a slowdown stays within a limit: a coarse look at the whole
//! range, then bisection to one point.
//!
//! A curve need not fall everywhere. So the bracket is always that of the largest size known to
//! fail and the smallest known one above it, and what was seen to rise is said.

use std::collections::BTreeMap;

use crate::Error;

/// Sizes between nothing and the working set that are looked at first. A cliff has two sides; in
/// which eighth it is, is all that bisection must be told.
pub const COARSE_STEPS: u32 = 8;

/// And beyond the working set, where only memory that nobody touches can be in the way.
const BEYOND_STEPS: u32 = 3;

/// A rise of the slowdown with the size that is less than this share of the limit is noise.
const RISE_SHARE: f64 = 0.25;

/// Slowdown by size, in points of the working set.
pub type Known = BTreeMap<u32, f64>;

/// The sizes of the coarse look, rising, the last one `max`.
pub fn coarse(steps: u32, max: u32) -> Vec<u32> {
    let inside = (1..=steps).map(|step| (100 * step).div_ceil(steps));
    let beyond = max.saturating_sub(100);
    let outside = (1..=BEYOND_STEPS).map(|step| 100 + (beyond * step).div_ceil(BEYOND_STEPS));
    let mut sizes: Vec<u32> = inside.chain(outside).filter(|size| *size < max).collect();
    sizes.push(max);
    sizes.dedup();
    sizes
}

/// The smallest size, in points, from which on all known sizes hold, to one point; `None` if even
/// the largest known one does not. `known` must hold a coarse look; `at` tells what is not known.
pub fn smallest(
    known: &mut Known,
    limit: f64,
    at: &mut dyn FnMut(u32) -> Result<f64, Error>,
) -> Result<Option<u32>, Error> {
    loop {
        let failing = known
            .iter()
            .rev()
            .find(|(_, slowdown)| holds_not(**slowdown, limit));
        // With no top tier at all nothing runs.
        let fails = failing.map_or(0, |(size, _)| *size);
        let Some((&holds, _)) = known.range(fails + 1..).next() else {
            return Ok(None);
        };
        if holds - fails <= 1 {
            return Ok(Some(holds));
        }
        let middle = fails + (holds - fails) / 2;
        known.insert(middle, at(middle)?);
    }
}

/// The same, beginning at a size that is likely near the answer: steps that double lead to its
/// other side. At most `runs` sizes are asked for; then the nearest known bound is the answer.
pub fn near(
    known: &mut Known,
    (from, max): (u32, u32),
    limit: f64,
    runs: u32,
    at: &mut dyn FnMut(u32) -> Result<f64, Error>,
) -> Result<Option<u32>, Error> {
    let (mut fails, mut holds) = (0, None::<u32>);
    let (mut size, mut step, mut left) = (from.clamp(1, max), 1, runs);
    loop {
        let slowdown = match known.get(&size) {
            Some(slowdown) => *slowdown,
            None if left == 0 => return Ok(holds.or((fails < max).then_some(fails + 1))),
            None => {
                left -= 1;
                let slowdown = at(size)?;
                known.insert(size, slowdown);
                slowdown
            }
        };
        match holds_not(slowdown, limit) {
            true => fails = fails.max(size),
            false => holds = Some(size),
        }
        size = match holds {
            None if fails == max => return Ok(None),
            None => (fails + step).min(max),
            Some(holds) if holds - fails <= 1 => return Ok(Some(holds)),
            Some(holds) if fails == 0 => holds.saturating_sub(step).max(1),
            Some(holds) => fails + (holds - fails) / 2,
        };
        step *= 2;
    }
}

/// Also of what is no number.
fn holds_not(slowdown: f64, limit: f64) -> bool {
    slowdown.is_nan() || slowdown > limit
}

/// Where more memory was clearly slower: the two sizes that are furthest apart in slowdown, if any.
pub fn rise(known: &Known, limit: f64) -> Option<(u32, u32)> {
    let mut least: Option<(u32, f64)> = None;
    let mut worst: Option<(f64, u32, u32)> = None;
    for (&size, &slowdown) in known {
        if let Some((smaller, less)) = least {
            let by = slowdown - less;
            if by > RISE_SHARE * limit.max(1.0) && worst.is_none_or(|(most, ..)| by > most) {
                worst = Some((by, smaller, size));
            }
        }
        if least.is_none_or(|(_, less)| slowdown < less) {
            least = Some((size, slowdown));
        }
    }
    worst.map(|(_, smaller, larger)| (smaller, larger))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a search on a curve; the answer and how many sizes it asked for.
    fn searched(steps: u32, max: u32, curve: fn(u32) -> f64) -> (Option<u32>, usize) {
        let mut known: Known = coarse(steps, max)
            .into_iter()
            .map(|s| (s, curve(s)))
            .collect();
        let answer = smallest(&mut known, 2.0, &mut |size| Ok(curve(size))).unwrap();
        (answer, known.len())
    }

    #[test]
    fn the_answer_is_the_same_whatever_the_grid() {
        let slope = |size: u32| 20.0 - f64::from(size) * 0.27;
        let cliff = |size: u32| if size < 62 { 30.0 } else { 0.1 };
        let tail = |size: u32| 300.0 / f64::from(size) - 1.0;
        for (curve, answer) in [(slope as fn(u32) -> f64, 67), (cliff, 62), (tail, 100)] {
            for steps in [2, 4, 5, 8, 16, 50] {
                let (found, asked) = searched(steps, 120, curve);
                assert_eq!(found, Some(answer), "{steps} steps");
                assert!(asked <= steps as usize + 10, "{asked}");
            }
        }
        assert_eq!(searched(8, 120, |_| 3.0).0, None);
        assert_eq!(searched(8, 120, |_| f64::NAN).0, None);
        assert_eq!(searched(8, 120, |_| 1.0).0, Some(1));
    }

    #[test]
    fn of_a_curve_that_rises_again_the_last_fall_counts_and_it_is_said() {
        // Good from 20 to 40 points, then bad again up to 69.
        let curve = |size: u32| match size {
            20..=40 => 1.0,
            70.. => 0.5,
            _ => 5.0,
        };
        for steps in [8, 10, 16] {
            let (found, _) = searched(steps, 110, curve);
            assert_eq!(found, Some(70));
        }
        let known = coarse(8, 110).into_iter().map(|s| (s, curve(s))).collect();
        assert_eq!(rise(&known, 2.0), Some((25, 50)));
        let falling = (1..100).map(|s| (s, 10.0 - f64::from(s) * 0.1)).collect();
        assert_eq!(rise(&falling, 2.0), None);
        let noisy = Known::from([(10, 3.0), (20, 1.0), (30, 1.2)]);
        assert_eq!(rise(&noisy, 2.0), None, "noise");
    }

    #[test]
    fn a_search_from_nearby_finds_the_same_in_few_runs() {
        let curve = |size: u32| 20.0 - f64::from(size) * 0.27;
        for (from, most) in [(67, 2), (66, 2), (64, 5), (72, 7), (30, 12), (120, 13)] {
            let mut known = Known::new();
            let mut at = |size| Ok(curve(size));
            let found = near(&mut known, (from, 120), 2.0, 20, &mut at).unwrap();
            assert_eq!(found, Some(67), "from {from}");
            assert!(known.len() <= most, "from {from}: {}", known.len());
        }
        let mut at = |_| Ok(9.0);
        assert_eq!(
            near(&mut Known::new(), (5, 120), 2.0, 20, &mut at).unwrap(),
            None
        );
        let mut at = |_| Ok(0.0);
        assert_eq!(
            near(&mut Known::new(), (50, 120), 2.0, 20, &mut at).unwrap(),
            Some(1)
        );
        // Stopped early it errs on the side of what is known.
        let mut known = Known::new();
        let mut at = |size| Ok(curve(size));
        let bound = near(&mut known, (30, 120), 2.0, 3, &mut at).unwrap();
        assert_eq!((known.len(), bound), (3, Some(34)));
    }

    #[test]
    fn the_coarse_look_spans_the_range() {
        assert_eq!(
            coarse(8, 106),
            [13, 25, 38, 50, 63, 75, 88, 100, 102, 104, 106]
        );
        assert_eq!(coarse(4, 100), [25, 50, 75, 100]);
        assert_eq!(coarse(2, 400), [50, 100, 200, 300, 400]);
    }
}
