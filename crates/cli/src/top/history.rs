//! The record of one rate over the last minutes.

use std::collections::VecDeque;

/// How long is remembered, in samples of about a second.
pub const SAMPLES: usize = 300;

/// Samples of about a second, the newest last; `None` where nothing is known.
#[derive(Debug, Clone, Default)]
pub struct History {
    samples: VecDeque<Option<f64>>,
    /// Samples ever pushed, so that columns of several samples do not shift at each push.
    pushed: usize,
}

impl History {
    /// Adds a sample.
    pub fn push(&mut self, sample: Option<f64>) {
        self.pushed += 1;
        self.samples.push_back(sample);
        if self.samples.len() > SAMPLES {
            self.samples.pop_front();
        }
    }

    /// Whether there is enough of it to be looked at.
    pub fn is_worth_showing(&self) -> bool {
        self.samples.len() > 2
    }

    /// The greatest sample.
    pub fn peak(&self) -> Option<f64> {
        self.samples.iter().flatten().copied().reduce(f64::max)
    }

    /// The samples in at most `width` columns: each is the greatest of those that it stands for.
    pub fn columns(&self, width: usize) -> Vec<Option<f64>> {
        if width == 0 {
            return Vec::new();
        }
        // One column more than needed, since the first and the last may be partly filled.
        let step = SAMPLES.div_ceil(width.max(2) - 1).max(1);
        let step = if width >= SAMPLES { 1 } else { step };
        let first = self.pushed - self.samples.len();
        let mut columns: Vec<(usize, Option<f64>)> = Vec::new();
        for (sample, at) in self.samples.iter().zip(first..) {
            match columns.last_mut() {
                Some((column, greatest)) if *column == at / step => {
                    // `None` is less than any number.
                    *greatest = if *sample > *greatest {
                        *sample
                    } else {
                        *greatest
                    };
                }
                _ => columns.push((at / step, *sample)),
            }
        }
        let left_out = columns.len().saturating_sub(width);
        let kept = columns.into_iter().skip(left_out);
        kept.map(|(_, greatest)| greatest).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_for_the_greatest_and_stay_in_place() {
        let mut history = History::default();
        (0..1000).for_each(|n| history.push(Some((n % 10) as f64)));
        for width in [1, 2, 7, 30, 61, 299, 300, 1000] {
            let columns = history.columns(width);
            assert!(columns.len() <= width, "{width}: {}", columns.len());
        }
        assert_eq!(history.columns(300).len(), SAMPLES);
        // Five samples a column: they were 0 to 4 and 5 to 9.
        let columns = history.columns(61);
        assert_eq!(columns[..4], [4.0, 9.0, 4.0, 9.0].map(Some));
        history.push(Some(0.0));
        let shifted = history.columns(61);
        assert_eq!(shifted[shifted.len() - 1], Some(0.0));
        assert_eq!(shifted[1..4], [9.0, 4.0, 9.0].map(Some));
        assert_eq!(history.peak(), Some(9.0));
        history.push(None);
        assert_eq!(history.columns(300).pop(), Some(None));
    }
}
