//! What does not pay rests: when, why, and for how long; and how many pages change places before
//! and after it is known whether it pays.

use super::scales::limit_mbps;
use super::{Exchange, Fates, Outcomes, Rest, WIDER_GAP};
use crate::{Gate, Settings};

/// First and longest rest, in ms.
pub(super) const REST_MS: (u64, u64) = (1000, 64_000);

/// A quarter of a rest lasts whatever comes, and at most so long, in ms.
const EARLIEST_MS: u64 = 2000;

/// A gap that is clearly narrower than the widest that is tried, of 0.5.
const CLEAR_GAP: f64 = 0.4;

/// How long an alarm lasts, in ms, and after which time most of the latest hint faults are of pages
/// that were marked after it.
pub(crate) const ALARM_MS: u64 = 2000;
const TOLD_MS: u64 = 300;

/// MB a second at the start.
pub(super) const USUAL_RATE_MBPS: u64 = 128;

/// The same after moves in vain, until it is known what comes of it: 2,048 pages at once. One in 16
/// of those that go up is looked at again, and 64 are enough to tell.
const TRIAL_RATE_MBPS: u64 = 8;

/// MB a second below which an exchange does not pay.
const TRICKLE_MBPS: u64 = 4;

/// How long outcomes are collected before they are judged, in ms, and how many there must be.
const JUDGED_MS: u64 = 500;
const JUDGED_PAGES: u64 = 64;

impl Exchange {
    /// Why it rests, if it does.
    pub fn resting(&self, now_ms: u64) -> Option<Rest> {
        self.resting
            .filter(|(until_ms, _)| now_ms < *until_ms)
            .map(|(_, why)| why)
    }

    /// By what it was last judged whether pages that went up were touched again.
    pub fn judged_fates(&self) -> Fates {
        self.judged_fates
    }

    /// If hot pages went up, those that are left are touched more rarely: then it was worth it, and
    /// the next rest is short.
    pub(super) fn note_gain(&mut self) {
        let is_wider = |before| self.gap(0) > WIDER_GAP * before;
        self.has_paid |= !self.sees_fates && self.gap_at_proof.is_some_and(is_wider);
    }

    /// Takes note of what became of pages that went up. If they were not touched again, and those
    /// that could have gone for them stayed idle, they went up too late. Then it rests until it can
    /// be known which pages have been idle for longest: each aging leaves one generation less to
    /// tell them by.
    pub fn note_fates(&mut self, now_ms: u64, fates: Fates, settings: &Settings) {
        self.fates.add(fates);
        let Some(is_worth_it) = self.fates.verdict() else {
            return;
        };
        let (others_stayed_idle, is_told) = (self.fates.stayed_idle(), self.fates.tells_of_idle());
        (self.judged_fates, self.sees_fates) = (std::mem::take(&mut self.fates), true);
        match is_worth_it {
            true => {
                // Where all are touched all the time they are touched again whatever goes.
                self.has_paid |= is_told;
                self.end_trial();
            }
            false if self.resting.is_none() => {
                self.has_paid = false;
                self.fails();
                self.rest(now_ms, Rest::NotTouchedAgain);
                if others_stayed_idle && let Some((until_ms, _)) = &mut self.resting {
                    *until_ms = (*until_ms).max(now_ms + Exchange::widest_idle_ms(settings));
                }
            }
            false => {}
        }
    }

    pub(super) fn end_rest(&mut self, now_ms: u64, settings: &Settings) {
        let Some((until_ms, why)) = self.resting else {
            return;
        };
        let is_over = now_ms >= until_ms || self.alarm_is_true(now_ms);
        if is_over {
            self.go_to(0, now_ms);
        }
        // Something else is in use now, which has not failed before; or so it seems.
        let is_changed =
            !is_over && why == Rest::NobodyIdle && self.is_changed(now_ms, until_ms, settings);
        if is_over || is_changed {
            self.resting = None;
        }
    }

    /// Other pages of the lower tier are in use than before, and are being marked: a rest, which
    /// followed from those of before, is over as soon as their hint faults say so.
    pub fn note_alarm(&mut self, now_ms: u64) {
        self.alarmed_until_ms = now_ms + ALARM_MS;
    }

    /// Whether hint faults that came after an alarm leave a clear gap between hot pages and cold,
    /// while it rests because of what came before them.
    fn alarm_is_true(&self, now_ms: u64) -> bool {
        let told_ms = (self.alarmed_until_ms + TOLD_MS).saturating_sub(ALARM_MS);
        let is_told = (told_ms..self.alarmed_until_ms).contains(&now_ms);
        is_told && self.rest_began_ms < told_ms && self.gap(0) < CLEAR_GAP
    }

    /// Whether agings may take more of the time than in a search in vain.
    pub fn may_look_often(&self, now_ms: u64) -> bool {
        self.is_promising() || self.is_alarmed(now_ms)
    }

    /// Whether there was an alarm lately.
    pub fn is_alarmed(&self, now_ms: u64) -> bool {
        now_ms < self.alarmed_until_ms
    }

    /// Whether pages below are touched twice as often as when some scale failed, or clearly often
    /// enough for one whose gap was too wide to be tried. Of pages that are touched x times in τ,
    /// at random, the gap is e^-x. Where they are hardly touched, twice as often may be chance, so
    /// it must be as clear as during a search.
    ///
    /// Not as soon as the rest has begun: what changes all the time would never rest.
    fn is_changed(&self, now_ms: u64, until_ms: u64, settings: &Settings) -> bool {
        let least_ms = (until_ms.saturating_sub(self.rest_began_ms) / 4).min(EARLIEST_MS);
        if now_ms < self.rest_began_ms + least_ms {
            return false;
        }
        let limit = |failed: f64| (failed * failed).min(failed / WIDER_GAP).min(CLEAR_GAP);
        self.open_scale(limit, settings).is_some()
    }

    pub(super) fn judge_outcomes(&mut self, now_ms: u64, all: Outcomes, settings: &Settings) {
        let promoted = all.promoted.saturating_sub(self.judged.promoted);
        let returned = all.returned.saturating_sub(self.judged.returned);
        let seen = promoted + returned;
        if now_ms.saturating_sub(self.judged_ms) < JUDGED_MS || seen < JUDGED_PAGES {
            return;
        }
        (self.judged, self.judged_ms) = (all, now_ms);
        if self.resting.is_some() {
            return;
        }
        if returned * 4 >= seen {
            self.rate_mbps /= 2;
            if self.rate_mbps < TRICKLE_MBPS {
                self.rest(now_ms, Rest::TheyCameBack);
            }
        } else if self.is_proven && !(self.is_on_trial && self.takes_counted(settings)) {
            // What went into free memory tells nothing of an exchange, nor what went for the
            // longest idle of one at a narrow scale.
            self.rate_mbps = (self.rate_mbps * 2).min(limit_mbps(settings));
        }
    }

    /// What waits need not wait any longer.
    fn end_trial(&mut self) {
        if std::mem::take(&mut self.is_on_trial) && self.rate_mbps < USUAL_RATE_MBPS {
            (self.rate_mbps, self.gate) = (USUAL_RATE_MBPS, Gate::default());
        }
    }

    pub(super) fn rest(&mut self, now_ms: u64, why: Rest) {
        if std::mem::take(&mut self.has_paid) {
            self.rest_ms = REST_MS.0;
        }
        self.gap_at_proof = None;
        (self.resting, self.rest_began_ms) = (Some((now_ms + self.rest_ms, why)), now_ms);
        self.rest_ms = (self.rest_ms * 2).min(REST_MS.1);
        if why.is_of_vain_moves() {
            (self.rate_mbps, self.is_on_trial) = (TRIAL_RATE_MBPS, true);
        }
        (self.is_proven, self.likely) = (false, None);
    }
}
