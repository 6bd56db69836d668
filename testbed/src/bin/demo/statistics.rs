//! Middle and extremes of a few values, of which some may be "never".

/// Sorted, with "never" as the largest.
fn sorted(mut values: Vec<Option<f64>>) -> Vec<Option<f64>> {
    let key = |value: &Option<f64>| value.unwrap_or(f64::INFINITY);
    values.sort_by(|a, b| key(a).total_cmp(&key(b)));
    values
}

/// The middle value, or the mean of the middle two; never if a middle one is never.
pub fn median(values: Vec<Option<f64>>) -> Option<f64> {
    let values = sorted(values);
    let upper = *values.get(values.len() / 2)?;
    let lower = *values.get(values.len().saturating_sub(1) / 2)?;
    Some((lower? + upper?) / 2.0)
}

/// The smallest and the largest value.
pub fn spread(values: Vec<Option<f64>>) -> (Option<f64>, Option<f64>) {
    let values = sorted(values);
    (
        values.first().copied().flatten(),
        values.last().copied().flatten(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_and_even_counts() {
        assert_eq!(median(vec![Some(3.0), Some(1.0), Some(2.0)]), Some(2.0));
        assert_eq!(
            median(vec![Some(4.0), Some(1.0), Some(2.0), Some(3.0)]),
            Some(2.5)
        );
        assert_eq!(median(vec![]), None);
    }

    #[test]
    fn never_is_larger_than_any_time() {
        assert_eq!(median(vec![None, Some(1.0), Some(2.0)]), Some(2.0));
        assert_eq!(median(vec![None, Some(1.0), None]), None);
        assert_eq!(spread(vec![None, Some(1.0), Some(0.5)]), (Some(0.5), None));
    }
}
