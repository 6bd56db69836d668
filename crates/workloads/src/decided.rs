//! When a run with a known hot set has shown what there is to show.

/// Recall of a good run.
const RECALL: f64 = 0.95;

/// The share of the cold pages that must have been touched before anything is said of the others:
/// it takes some of the windows in which accesses are counted.
const SWEPT_MIN: f64 = 0.4;

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// Pages that are hot.
    pub hot_pages: u64,
    /// Of these, those on fast nodes.
    pub hot_fast: u64,
    /// Cold pages on fast nodes.
    pub cold_fast: u64,
    /// The share of the cold pages that has been touched; 1 if none are to be.
    pub swept: f64,
}

impl Standing {
    /// Precision at the end of the sweep, if the rest of the cold pages does as those so far did.
    /// None if nothing is on fast nodes.
    pub fn precision(&self) -> Option<f64> {
        let cold = self.cold_fast as f64 / self.swept.clamp(f64::MIN_POSITIVE, 1.0);
        let all = self.hot_fast as f64 + cold;
        (all > 0.0).then(|| self.hot_fast as f64 / all)
    }

    /// Whether the run is this precise and has found enough, and enough of it is over to say so.
    pub fn is_good(&self, precision: f64) -> bool {
        let recall = self.hot_fast as f64 / self.hot_pages.max(1) as f64;
        let is_precise = self.precision().is_some_and(|is| is >= precision);
        self.swept >= SWEPT_MIN && recall >= RECALL && is_precise
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: Standing = Standing {
        hot_pages: 1000,
        hot_fast: 960,
        cold_fast: 16,
        swept: 0.4,
    };

    #[test]
    fn what_is_cold_so_far_is_a_part_of_what_will_be() {
        assert_eq!(RUN.precision(), Some(960.0 / 1000.0));
        let whole = Standing { swept: 1.0, ..RUN };
        assert_eq!(whole.precision(), Some(960.0 / 976.0));
        let nothing = Standing {
            hot_fast: 0,
            cold_fast: 0,
            ..RUN
        };
        assert_eq!(nothing.precision(), None);
    }

    #[test]
    fn a_run_is_good_when_enough_of_it_is() {
        assert!(RUN.is_good(0.95));
        for bad in [
            Standing { swept: 0.3, ..RUN },
            Standing {
                hot_fast: 949,
                ..RUN
            },
            Standing {
                cold_fast: 21,
                ..RUN
            },
        ] {
            assert!(!bad.is_good(0.95), "{bad:?}");
        }
    }
}
