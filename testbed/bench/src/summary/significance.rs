//! Whether two sets of runs differ by more than chance, and by how much.

use pghot_workloads::random::XorShift;
use pghot_workloads::spread;

/// Resamples of an interval.
const RESAMPLES: usize = 2000;

/// How the times of one system compare with those of another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Compared {
    /// Median by median.
    pub ratio: f64,
    /// The ratio's 95 % interval.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// How likely ranks so far apart are if the systems do not differ.
    pub p: f64,
}

impl Compared {
    /// Of two sets that are not empty.
    pub fn new(times: &[f64], others: &[f64]) -> Compared {
        let (low, high) = interval(times, others);
        Compared {
            ratio: median(times) / median(others),
            low,
            high,
            p: p_value(times, others),
        }
    }

    /// What the first takes more than the second, in percent with its interval; single runs have
    /// none.
    pub fn in_percent(&self) -> String {
        let percent = |ratio: f64| 100.0 * (ratio - 1.0);
        if self.low == self.high {
            return format!("{:+.1} %", percent(self.ratio));
        }
        format!(
            "{:+.1} % ({:+.1} to {:+.1})",
            percent(self.ratio),
            percent(self.low),
            percent(self.high)
        )
    }
}

fn median(numbers: &[f64]) -> f64 {
    spread::median(numbers.iter().copied()).unwrap_or(f64::NAN)
}

/// The test of Mann and Whitney (1947), two-sided and exact: the share of all ways to deal the
/// pooled runs to two sets of these sizes in which the ranks lie at least as far apart. Equal runs
/// share their ranks.
fn p_value(times: &[f64], others: &[f64]) -> f64 {
    let mut pooled: Vec<(f64, bool)> = times.iter().map(|time| (*time, true)).collect();
    pooled.extend(others.iter().map(|time| (*time, false)));
    pooled.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Twice the rank, so that a shared one is an integer.
    let rank = |time: f64| {
        let below = pooled.iter().filter(|other| other.0 < time).count();
        let equal = pooled.iter().filter(|other| other.0 == time).count();
        2 * below + equal + 1
    };
    let ranks: Vec<usize> = pooled.iter().map(|run| rank(run.0)).collect();
    let chosen = times.len();
    let seen: usize = (ranks.iter().zip(&pooled))
        .filter(|(_, run)| run.1)
        .map(|(rank, _)| rank)
        .sum();
    // In how many ways so many ranks have that sum.
    let mut ways = vec![vec![0.0; ranks.iter().sum::<usize>() + 1]; chosen + 1];
    ways[0][0] = 1.0;
    for &rank in &ranks {
        for number in (1..=chosen).rev() {
            for sum in (rank..ways[number].len()).rev() {
                ways[number][sum] += ways[number - 1][sum - rank];
            }
        }
    }
    let expected = chosen * (ranks.len() + 1);
    let is_as_far = |sum: &usize| sum.abs_diff(expected) >= seen.abs_diff(expected);
    let ways = &ways[chosen];
    let far: f64 = (0..ways.len()).filter(is_as_far).map(|sum| ways[sum]).sum();
    far / ways.iter().sum::<f64>()
}

/// Where the ratio of the medians lies in 95 of 100 resamples of both sets (Efron 1979). The draws
/// are the same each time.
fn interval(times: &[f64], others: &[f64]) -> (f64, f64) {
    let mut random = XorShift::new(1);
    let mut resampled = |from: &[f64]| {
        let draw = |_| from[random.below(from.len() as u32) as usize];
        median(&(0..from.len()).map(draw).collect::<Vec<_>>())
    };
    let mut ratios: Vec<f64> = (0..RESAMPLES)
        .map(|_| resampled(times) / resampled(others))
        .collect();
    ratios.sort_by(f64::total_cmp);
    let at = |share: f64| ratios[(share * (RESAMPLES - 1) as f64).round() as usize];
    (at(0.025), at(0.975))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_is_that_of_the_tables() {
        // No overlap of five and five: 2 of the 252 ways; of three and three: 2 of 20.
        let five = p_value(&[1.0, 2.0, 3.0, 4.0, 5.0], &[6.0, 7.0, 8.0, 9.0, 10.0]);
        assert!((five - 2.0 / 252.0).abs() < 1e-12);
        let three = p_value(&[4.0, 5.0, 6.0], &[1.0, 2.0, 3.0]);
        assert!((three - 0.1).abs() < 1e-12, "three runs never tell");
        // U = 4 of 25: 0.0952 by the published tables.
        let near = p_value(&[1.0, 2.0, 3.0, 7.0, 8.0], &[4.0, 6.0, 9.0, 10.0, 11.0]);
        assert!((near - 0.0952).abs() < 1e-3, "{near}");
        assert_eq!(p_value(&[1.0, 1.0], &[1.0, 1.0]), 1.0);
    }

    #[test]
    fn the_interval_holds_the_ratio_and_grows_with_the_spread() {
        let others = [10.0, 10.0, 10.0, 10.0, 10.0];
        let sharp = Compared::new(&[5.0, 5.01, 5.02, 5.0, 4.99], &others);
        let wide = Compared::new(&[4.0, 5.0, 6.0, 5.5, 4.5], &others);
        for compared in [sharp, wide] {
            assert!(compared.low <= compared.ratio && compared.ratio <= compared.high);
        }
        assert!(sharp.high - sharp.low < wide.high - wide.low);
        assert_eq!(sharp, Compared::new(&[5.0, 5.01, 5.02, 5.0, 4.99], &others));
        assert!(sharp.in_percent().starts_with("-50.0 % (-50.1 to "));
        assert_eq!(Compared::new(&[5.0], &[10.0]).in_percent(), "-50.0 %");
    }
}
