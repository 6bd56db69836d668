//! How far an answer may be off, and who needs clearly less than whom.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// By what factor the accesses that the lower tier serves differ between the model and real
/// kernels, by system: seven of eight measurements in `docs/data/model.json` differ by less. There
/// a measurement is one half of one run in a guest, and the share that the witness counted is put
/// against that of the model; shares below [`FAR_SHARE_MIN`] in both are left out. Without
/// balancing nothing moves, so the model does not err there.
pub const MODEL_FACTORS: [(&str, f64); 3] = [("none", 1.0), ("numab2", 1.35), ("pghot", 1.9)];

/// Of such a small share a factor tells nothing: it is 25 ms of five seconds.
pub const FAR_SHARE_MIN: f64 = 0.005;

/// How far the lower tier's latency may be from what was assumed, as a factor: what CXL expanders
/// are sold with lies between 200 and 300 ns, and loaded memory is slower than idle memory.
pub const LATENCY_BAND: f64 = 1.2;

/// The model's factor of a system.
pub fn model_factor(system: &str) -> f64 {
    let known = MODEL_FACTORS.iter().find(|(name, _)| *name == system);
    known.map_or(1.0, |(_, factor)| *factor)
}

/// Sizes in points of the working set, the smallest and the largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Band {
    /// The smallest.
    pub low: u32,
    /// The largest.
    pub high: u32,
}

impl Band {
    /// Of these sizes and the answer itself.
    pub fn of(answer: u32, others: impl IntoIterator<Item = u32>) -> Band {
        let one = Band {
            low: answer,
            high: answer,
        };
        others.into_iter().fold(one, |band, size| Band {
            low: band.low.min(size),
            high: band.high.max(size),
        })
    }
}

/// Bands that have nothing to do with each other, as one around the answer: deviations add up as
/// their squares do. `wider` stretches the result.
pub fn together(answer: u32, bands: &[Band], max: u32, wider: f64) -> Band {
    let sum = |side: fn(&Band) -> u32| {
        let off = bands
            .iter()
            .map(|band| f64::from(side(band)) - f64::from(answer));
        off.map(|off| off * off).sum::<f64>().sqrt()
    };
    // What nothing is known of is off by a point, the step of the search.
    let stretched = |off: f64| {
        if wider > 1.0 {
            off.max(1.0) * wider
        } else {
            off
        }
    };
    let (below, above) = (
        stretched(sum(|band| band.low)),
        stretched(sum(|band| band.high)),
    );
    let low = (f64::from(answer) - below).floor().max(1.0) as u32;
    let high = (f64::from(answer) + above).ceil().min(f64::from(max)) as u32;
    Band { low, high }
}

/// Whose answer is the one to give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing needs clearly less than no balancing at all.
    LeaveOff,
    /// The kernel's `numa_balancing=2` does as well as pghot.
    Kernel,
    /// pghot needs clearly less than both.
    Pghot,
}

impl Verdict {
    /// By what each needs; `None` where no size suffices. Clearly less is what lies below the
    /// other's whole interval with all of one's own. The latency is not in these intervals: it is
    /// the same for all.
    pub fn of(none: Option<Band>, kernel: Option<Band>, pghot: Option<Band>) -> Verdict {
        let is_less = |one: Option<Band>, other: Option<Band>| match (one, other) {
            (Some(one), Some(other)) => one.high < other.low,
            (one, other) => one.is_some() && other.is_none(),
        };
        let (pghot_saves, kernel_saves) = (is_less(pghot, none), is_less(kernel, none));
        if pghot_saves && is_less(pghot, kernel) {
            Verdict::Pghot
        } else if kernel_saves || (pghot_saves && kernel.is_some()) {
            Verdict::Kernel
        } else {
            Verdict::LeaveOff
        }
    }

    /// The system whose answer it is.
    pub fn system(self) -> &'static str {
        match self {
            Verdict::LeaveOff => "none",
            Verdict::Kernel => "numab2",
            Verdict::Pghot => "pghot",
        }
    }

    /// What to do, as a sentence.
    pub fn sentence(self) -> &'static str {
        match self {
            Verdict::LeaveOff => {
                "Leave pghot off, and the kernel's balancing too: neither needs clearly less \
                 memory than none."
            }
            Verdict::Kernel => {
                "Leave pghot off: the kernel's own tiering (numa_balancing=2) needs no more, as \
                 far as the model can tell."
            }
            Verdict::Pghot => {
                "Switch pghot on: it needs clearly less than no balancing and than the kernel's \
                 own tiering (numa_balancing=2)."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn band(low: u32, high: u32) -> Option<Band> {
        Some(Band { low, high })
    }

    #[test]
    fn deviations_add_up_as_squares_and_stay_in_the_range() {
        let bands = [Band { low: 37, high: 43 }, Band { low: 36, high: 44 }];
        assert_eq!(together(40, &bands, 110, 1.0), Band { low: 35, high: 45 });
        assert_eq!(together(40, &bands, 42, 1.0), Band { low: 35, high: 42 });
        assert_eq!(together(40, &bands, 110, 2.0), Band { low: 30, high: 50 });
        assert_eq!(together(3, &bands[..0], 110, 1.0), Band { low: 3, high: 3 });
        assert_eq!(together(3, &bands[..0], 110, 3.0), Band { low: 1, high: 6 });
        // Never narrower than one of them.
        let one = Band::of(50, [44, 57]);
        let both = together(50, &[one, Band::of(50, [])], 110, 1.0);
        assert_eq!(both, one);
    }

    #[test]
    fn pghot_is_switched_on_only_where_it_needs_clearly_less() {
        let verdict = Verdict::of;
        assert_eq!(
            verdict(band(90, 92), band(60, 70), band(40, 50)),
            Verdict::Pghot
        );
        assert_eq!(
            verdict(band(90, 92), band(50, 70), band(40, 50)),
            Verdict::Kernel,
            "touching"
        );
        assert_eq!(
            verdict(band(90, 92), band(70, 95), band(60, 80)),
            Verdict::Kernel
        );
        assert_eq!(
            verdict(band(90, 92), band(40, 50), band(91, 99)),
            Verdict::Kernel
        );
        assert_eq!(
            verdict(band(90, 92), band(85, 99), band(85, 99)),
            Verdict::LeaveOff
        );
        assert_eq!(
            verdict(band(50, 52), band(90, 99), band(60, 70)),
            Verdict::LeaveOff
        );
        assert_eq!(verdict(None, None, band(60, 70)), Verdict::Pghot);
        assert_eq!(verdict(None, None, None), Verdict::LeaveOff);
        assert_eq!(verdict(band(90, 92), None, band(60, 70)), Verdict::Pghot);
    }
}
