//! What an exchange is told: of idle pages, of rounds, and of what became of the pages that went
//! up; and why it rests.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::scales::least_idle;

/// Fewer pages that were looked at tell nothing. By so many it is decided, sure or not.
const LOOKED_MIN: u64 = 64;
const LOOKED_MAX: u64 = 128;

/// If at most one in so many idle pages is touched, hardly any is.
const IDLE_ONE_IN: u64 = 64;

/// If fewer than one in so many were touched, it was not worth it. Of pages that are touched once
/// in τ or more often e^-2 are not touched within 2 τ, so then three in ten at most were as hot as
/// they looked. Not more is asked for, because a few hot pages pay for many moves: one that is
/// touched a thousand times a second saves 150 µs each second, and an exchange takes 4.
const TOUCHED_ONE_IN: u64 = 4;

/// And they must be touched so many times a second more than those that could go for them: an
/// exchange takes 4 µs, and 27 accesses that are 150 ns quicker pay for it in ten seconds.
const MORE_PER_S: f64 = 2.7;

/// And by more than chance, in standard deviations. Where all pages are alike they are touched as
/// often; where a program goes through memory, those that waited longest come next.
const SURE: f64 = 2.0;

/// Why nothing is exchanged for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rest {
    /// The pages of the top tier are as hot as those that wait.
    NobodyIdle,
    /// Too many of the promoted pages were back in the lower tier, and hot again.
    TheyCameBack,
    /// Too few of them were touched again.
    NotTouchedAgain,
}

impl Rest {
    /// Whether pages that went up had better stayed.
    pub fn is_of_vain_moves(self) -> bool {
        matches!(self, Rest::TheyCameBack | Rest::NotTouchedAgain)
    }

    /// Why, as a sentence for an operator.
    pub fn sentence(self) -> &'static str {
        match self {
            Rest::NobodyIdle => "the pages of the top tier are touched as often as those that wait",
            Rest::TheyCameBack => "pages that were promoted went down and became hot again",
            Rest::NotTouchedAgain => {
                "promoted pages were not touched again, or no more often than others"
            }
        }
    }
}

/// A look at a top tier: how much of it was idle, how much had to be, and what went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Look {
    /// When (`CLOCK_MONOTONIC`, ms).
    pub at_ms: u64,
    /// Within which time what waits was touched, in ms.
    pub touched_ms: u32,
    /// For how long the idle pages had not been touched, in ms.
    pub idle_ms: u64,
    /// Their share of the node's pages in use, 0 to 1.
    pub idle_share: f64,
    /// More than this share must be idle for pages to be told apart.
    pub least_share: f64,
    /// Pages that were to go, of those that had been idle.
    pub wanted_pages: u64,
    /// And that went: the others had been touched by then, or could not go.
    pub went_pages: u64,
}

impl Look {
    /// The share that would have to be idle with such a gap between hot and cold.
    pub(super) fn least_idle(&self, gap: f64) -> f64 {
        least_idle(gap, self.idle_ms as f64 / f64::from(self.touched_ms))
    }

    /// As a sentence for an operator.
    pub fn sentence(&self) -> String {
        let went = match self.wanted_pages {
            0 => String::new(),
            wanted => format!(
                "; of {wanted} pages that were to go {} went",
                self.went_pages
            ),
        };
        format!(
            "{:.1} % of the top tier was idle for {} ms; to exchange it for pages touched within \
             {} ms, more than {:.1} % must be{went}",
            self.idle_share * 100.0,
            self.idle_ms,
            self.touched_ms,
            self.least_share * 100.0
        )
    }
}

/// Pages that went up, and that were to go up a second time, since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Promoted.
    pub promoted: u64,
    /// Hot in the lower tier soon after they had been promoted.
    pub returned: u64,
}

/// One round of demotion, in pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Round {
    /// Waited below.
    pub waited: u64,
    /// Were idle above.
    pub idle: u64,
    /// Were to go.
    pub wanted: u64,
    /// Went.
    pub went: u64,
    /// How long the agings of the round took, in ms.
    pub aging_ms: u64,
}

/// If fewer than one in so many idle pages go, a round is in vain. To find that a page was touched
/// takes the kernel 0.1 µs, and to move two takes 4: up to here the search is the smaller part.
const WENT_ONE_IN: u64 = 8;

impl Round {
    /// Whether at least half of what was to go went.
    pub fn is_served(&self) -> bool {
        self.went * 2 >= self.wanted
    }

    /// Whether nothing waited, or hardly any of the idle pages that were to go did. Most of them
    /// may have been touched while others went: where all are touched every 12 ms, half are after
    /// 8. Those that went are colder still.
    pub fn is_in_vain(&self) -> bool {
        self.waited == 0 || self.went * WENT_ONE_IN < self.wanted.min(self.idle)
    }
}

/// What became of pages that went up, of those that could be looked at; and in the same time, of
/// those that could have gone for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fates {
    /// The longest time in which they were seen touched or not, in ms.
    pub within_ms: u64,
    /// Were looked at.
    pub looked: u64,
    /// Had been touched again.
    pub touched: u64,
    /// Had been idle, in the top tier.
    pub idle: u64,
    /// Were idle no more.
    pub idle_touched: u64,
}

/// The share of pages that were not touched, with half a page more of each kind, so that none is
/// not nothing: its logarithm is finite.
pub(crate) fn untouched_share(touched: u64, of: u64) -> f64 {
    let of = of as f64;
    (of - touched as f64 + 0.5) / (of + 1.0)
}

impl Fates {
    /// Adds more of them.
    pub fn add(&mut self, more: Fates) {
        self.within_ms = self.within_ms.max(more.within_ms);
        self.looked += more.looked;
        self.touched += more.touched;
        self.idle += more.idle;
        self.idle_touched += more.idle_touched;
    }

    /// Whether hardly any of the pages that could have gone were touched.
    pub(super) fn stayed_idle(self) -> bool {
        self.idle >= LOOKED_MIN && self.idle_touched * IDLE_ONE_IN <= self.idle
    }

    /// Whether enough were touched, once so many were looked at that it can be said.
    pub(super) fn verdict(self) -> Option<bool> {
        if self.looked < LOOKED_MIN {
            return None;
        }
        let is_hot = self.touched * TOUCHED_ONE_IN >= self.looked;
        let (hotter, by_chance) = self.are_hotter();
        match is_hot && hotter {
            // More of them may tell.
            true if by_chance && self.looked < LOOKED_MAX => None,
            true => Some(!by_chance),
            false => Some(false),
        }
    }

    /// Whether they were touched more often than those that could have gone for them. Of pages that
    /// are touched at random, r times a second, a share u = e^-rt is not touched in a time t: so
    /// the rates differ by ln(u' / u) / t. By chance ln u varies by sqrt((1 - u) / (u n)) if n
    /// pages are looked at (the delta method).
    ///
    /// Returns whether they were, by so much that it pays, and whether that may be chance.
    fn are_hotter(self) -> (bool, bool) {
        if !self.tells_of_idle() {
            return (true, false);
        }
        let untouched = |touched: u64, of: u64| {
            let share = untouched_share(touched, of);
            (share, (1.0 - share) / (share * of as f64))
        };
        let (share, variance) = untouched(self.touched, self.looked);
        let (idle_share, idle_variance) = untouched(self.idle_touched, self.idle);
        let by_chance = SURE * (variance + idle_variance).sqrt();
        let at_least = MORE_PER_S * self.within_ms as f64 / 1000.0;
        let difference = (idle_share / share).ln();
        (difference >= at_least, difference < by_chance)
    }

    /// Of idle pages hardly any are left where all of them went: these tell nothing.
    pub(super) fn tells_of_idle(self) -> bool {
        self.idle >= LOOKED_MIN
    }

    /// As a part of a sentence for an operator.
    pub(crate) fn phrase(&self) -> String {
        let idle = match self.tells_of_idle() {
            true => format!(", and {} of {} idle ones", self.idle_touched, self.idle),
            false => String::new(),
        };
        format!(
            "{} of {} that were looked at were touched within {} ms{idle}",
            self.touched, self.looked, self.within_ms
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Six in ten of what could have gone are touched, so an exchange pays if a few more are; in a
    /// long time it takes more to pay.
    #[test]
    fn a_difference_must_be_sure_and_must_pay() {
        let verdict = |within_ms, looked, touched| {
            let fates = Fates {
                within_ms,
                looked,
                touched,
                idle: 10_000,
                idle_touched: 6000,
            };
            fates.verdict()
        };
        assert_eq!(verdict(16, 100, 65), None, "perhaps by chance");
        assert_eq!(verdict(16, 600, 370), Some(false), "by chance");
        assert_eq!(verdict(16, 1000, 650), Some(true), "surely");
        assert_eq!(
            verdict(250, 1000, 650),
            Some(false),
            "half a touch a second"
        );
        assert_eq!(verdict(250, 1000, 800), Some(true), "2.8 touches a second");
        let phrase = Fates {
            within_ms: 16,
            looked: 64,
            touched: 3,
            ..Fates::default()
        }
        .phrase();
        assert_eq!(
            phrase,
            "3 of 64 that were looked at were touched within 16 ms"
        );
    }

    /// Seen in a guest whose exchange was worth it.
    #[test]
    fn a_few_idle_pages_that_are_left_tell_nothing() {
        let few = Fates {
            within_ms: 16,
            looked: 783,
            touched: 685,
            idle: 25,
            idle_touched: 19,
        };
        assert_eq!(few.verdict(), Some(true));
        let many = Fates {
            idle: 250,
            idle_touched: 219,
            ..few
        };
        assert_eq!(many.verdict(), Some(false), "as often");
        let cold = Fates {
            touched: 100,
            ..few
        };
        assert_eq!(cold.verdict(), Some(false));
    }
}
