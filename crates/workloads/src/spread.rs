//! The middle and the extremes of a number over several runs. There is no other median in pghot.

use serde::Serialize;

/// A number over several runs. Infinite is what was never reached; as JSON that is null.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Spread {
    /// The one in the middle, or the mean of the middle two.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of at least one number.
    pub fn of(numbers: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut numbers: Vec<f64> = numbers.into_iter().collect();
        numbers.sort_by(f64::total_cmp);
        let (last, upper) = (numbers.len().checked_sub(1)?, numbers.len() / 2);
        Some(Spread {
            median: (numbers[last / 2] + numbers[upper]) / 2.0,
            min: numbers[0],
            max: numbers[last],
        })
    }
}

/// The one in the middle, or the mean of the middle two; none of nothing.
pub fn median(numbers: impl IntoIterator<Item = f64>) -> Option<f64> {
    Spread::of(numbers).map(|spread| spread.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_of_the_runs() {
        let spread = Spread::of([3.0, 1.0, 2.0]).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (2.0, 1.0, 3.0));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert!(Spread::of([]).is_none());
    }

    #[test]
    fn never_is_larger_than_any_time() {
        const NEVER: f64 = f64::INFINITY;
        let spread = Spread::of([NEVER, 1.0, 0.5]).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (1.0, 0.5, NEVER));
        assert_eq!(Spread::of([NEVER, 1.0, NEVER]).unwrap().median, NEVER);
        let json = serde_json::to_value(spread).unwrap();
        assert!(json["max"].is_null());
    }
}
