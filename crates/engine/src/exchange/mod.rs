//! At what time scale pages change places, whether they should, and how many a second.
//!
//! Where the top tier is full, a page goes up for one that goes down, and that pays only if the two
//! can be told apart: what comes is touched within a time τ, what goes was not touched for longer.
//! At which scale they differ depends on the memory and on who uses it, from milliseconds to
//! seconds; so it is searched for. Its laws:
//!
//! - *Told apart.* Suppose that all pages are touched alike, at random. Then of the lower tier's
//!   hint faults within 2 τ of their marks a share h = 1 / (1 + e^-x) comes within τ, and a share
//!   e^-kx = (1/h - 1)^k of the top tier is idle for k τ, whatever x is. Only where clearly more is
//!   idle than that are there cold pages above and hot ones below; only then they change places.
//! - *The hottest first.* The scale is the narrowest at which hint faults leave a gap between hot
//!   and cold and the test does not fail. Two looks in a row must agree, at whatever scale each is.
//!   While far more pages are idle than wait, and to find them takes long, narrow scales are left
//!   out; where too few are, they come back. For pages that have been idle for longer than it takes
//!   to count accesses all may come.
//! - *Once in vain, a few first.* After moves in vain as many change places as it takes to see what
//!   comes of it; more when that is known to be worth it. For the longest idle that is no matter.
//! - *What comes back was a mistake.* A page that was promoted, went down and is hot again cost two
//!   moves for nothing. If a quarter of what would be promoted are such pages, the rate is halved;
//!   if there are fewer, it doubles, up to the limit.
//! - *What does not pay rests*: after the test has failed at all scales, or if of a sample of the
//!   pages that went up fewer than a quarter were touched again within 2 τ, as where somebody goes
//!   through memory, or not clearly more often than what could have gone for them; twice as long
//!   each time in a row. It has paid if they were, or, where no page of the sample can be looked
//!   at, if the pages that are left below are touched more rarely than before. Hint faults, which
//!   come anyway, tell when hot and cold have come much further apart at some scale; then a rest
//!   is over that followed from the test; after an alarm any is, if they leave a clear gap. Moves
//!   in vain at a narrow scale do not keep the longest idle from going.

mod news;
mod rest;
mod scales;
mod told;

use crate::{Gate, Settings};
use news::News;
use scales::{NARROW_SCALES, NARROW_TIMES, Scale, least_idle, limit_mbps, scales};

pub(crate) use news::NEWS_MS;
pub(crate) use rest::ALARM_MS;
pub use scales::{FAULT_CLASSES, FaultTimes, NARROWEST_MS};
pub(crate) use told::untouched_share;
pub use told::{Fates, Look, Outcomes, Rest, Round};

/// Where more than this share must be idle, it need not be asked whether it is.
const IDLE_MAX: f64 = 0.5;

/// A scale that has failed is tried again when hot and cold are so many times further apart.
const WIDER_GAP: f64 = 1.5;

/// While so many times more pages are idle than wait, the scale widens.
const PLENTY: u64 = 4;

/// Agings that take so many times longer than pages must be idle are worth a wider scale.
const COSTLY: u64 = 2;

/// How long a scale is left alone that was too wide, in ms.
const LEFT_ALONE_MS: u64 = 10_000;

/// Rounds in vain in a row before it rests, and rounds that fell short before a scale was too wide.
const ROUNDS: u32 = 3;
const ROUNDS_SHORT: u32 = 2;

/// Half of the time for which the rate is saved up, in ms.
const SAVED_MS: u64 = 500;

/// How long hint faults must have told nothing until who was idle for long may go, in ms.
const TRIED_MS: u64 = 2000;

/// While most of the top tier has been idle for long, hint faults of so many ms decide whether what
/// waits is hot.
const DOUBT_MS: u64 = 2 * NEWS_MS;

/// See the head of this file.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// Place of the present scale among [`scales`].
    scale: usize,
    /// The narrowest that is searched.
    floor: usize,
    /// By scale, the gap with which too few were idle.
    failed: [f64; NARROW_SCALES],
    /// The narrowest gap since this scale was chosen or told pages apart.
    tried: f64,
    since_ms: u64,
    /// When pages were last told apart.
    told_ms: u64,
    /// Whether pages are told apart at this scale.
    is_proven: bool,
    /// The last look, at this scale or another, if they were told apart.
    likely: Option<Look>,
    /// Hint faults.
    news: News,
    rounds_in_vain: u32,
    rounds_short: u32,
    /// A scale at which too few were idle, and until when it is left alone.
    too_wide: Option<(usize, u64)>,
    rate_mbps: u64,
    /// Whether it is not known yet what comes of it.
    is_on_trial: bool,
    gate: Gate,
    resting: Option<(u64, Rest)>,
    rest_ms: u64,
    /// When the last rest began.
    rest_began_ms: u64,
    /// Until when hint faults may end a rest at once.
    alarmed_until_ms: u64,
    /// The narrowest gap when pages were first told apart since the last rest.
    gap_at_proof: Option<f64>,
    /// Of the pages that went up, since the last verdict.
    fates: Fates,
    judged_fates: Fates,
    /// Whether there ever was a verdict.
    sees_fates: bool,
    /// Whether the exchange has paid since the last rest.
    has_paid: bool,
    judged: Outcomes,
    judged_ms: u64,
}

impl Default for Exchange {
    fn default() -> Exchange {
        Exchange {
            scale: 0,
            floor: 0,
            failed: [f64::INFINITY; NARROW_SCALES],
            tried: f64::INFINITY,
            since_ms: 0,
            told_ms: 0,
            is_proven: false,
            likely: None,
            news: News::default(),
            rounds_in_vain: 0,
            rounds_short: 0,
            too_wide: None,
            rate_mbps: rest::USUAL_RATE_MBPS,
            is_on_trial: false,
            gate: Gate::default(),
            resting: None,
            rest_ms: rest::REST_MS.0,
            rest_began_ms: 0,
            alarmed_until_ms: 0,
            gap_at_proof: None,
            fates: Fates::default(),
            judged_fates: Fates::default(),
            sees_fates: false,
            has_paid: false,
            judged: Outcomes::default(),
            judged_ms: 0,
        }
    }
}

impl Exchange {
    fn scale(&self, settings: &Settings) -> Scale {
        let scales = scales(settings);
        scales[self.scale.min(scales.len() - 1)]
    }

    /// How soon after its mark a fault must come for its page to be hot enough, in ms.
    pub fn touched_ms(&self, settings: &Settings) -> u32 {
        self.scale(settings).touched_ms
    }

    /// For how long a page must not have been touched to go, in ms.
    pub fn idle_ms(&self, settings: &Settings) -> u64 {
        self.scale(settings).idle_ms.into()
    }

    /// For how long a page must not have been touched to go for one that was counted, in ms.
    pub fn widest_idle_ms(settings: &Settings) -> u64 {
        scales(settings)
            .last()
            .map_or(0, |scale| scale.idle_ms.into())
    }

    /// Whether pages may come that no quick fault told of, but several accesses within the window.
    pub fn takes_counted(&self, settings: &Settings) -> bool {
        self.scale + 1 >= scales(settings).len()
    }

    /// Whether pages are told apart at this scale.
    pub fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// Whether the last look told pages apart, at this scale or another.
    pub fn is_promising(&self) -> bool {
        self.is_proven || self.likely.is_some()
    }

    /// MB that may change places a second.
    pub fn rate_mbps(&self) -> u64 {
        self.rate_mbps
    }

    /// Takes note of what came since the last call: hint faults, and outcomes. All numbers only
    /// grow.
    pub fn note(
        &mut self,
        now_ms: u64,
        faults: FaultTimes,
        outcomes: Outcomes,
        settings: &Settings,
    ) {
        self.news.note(now_ms, faults);
        self.end_rest(now_ms, settings);
        self.note_gain();
        self.judge_outcomes(now_ms, outcomes, settings);
    }

    /// Takes note of whether the scanner rests, so that no hint faults come whatever is touched.
    pub fn note_scanner(&mut self, now_ms: u64, rests: bool) {
        self.news.note_scanner(now_ms, rests);
    }

    /// What the latest hint faults leave of a gap at a narrow scale; none if they are few.
    fn gap(&self, scale: usize) -> f64 {
        self.news.gap(scale).unwrap_or(f64::INFINITY)
    }

    /// Whether most pages that are marked are touched soon, and at no scale some so much sooner
    /// than others that hot pages could be told from cold ones.
    pub fn are_all_hot(&self, settings: &Settings) -> bool {
        let narrow = scales(settings).len() - 1;
        let tells = |gap| least_idle(gap, NARROW_TIMES) < IDLE_MAX;
        let mut gaps = (0..narrow).filter_map(|scale| self.news.gap(scale));
        self.news.come_soon() && !gaps.any(tells)
    }

    /// All is tried anew.
    fn go_to(&mut self, scale: usize, now_ms: u64) {
        self.scale = scale;
        self.tried = f64::INFINITY;
        self.floor = 0;
        self.failed = [f64::INFINITY; NARROW_SCALES];
        self.since_ms = now_ms;
        (self.rounds_in_vain, self.rounds_short) = (0, 0);
        (self.is_proven, self.likely) = (false, None);
    }

    /// Some pages have been idle for so long that any that waits may go for them.
    pub fn go_to_widest(&mut self, now_ms: u64, settings: &Settings) {
        let widest = scales(settings).len() - 1;
        if self.scale != widest || self.resting.is_some() {
            self.resting = None;
            self.go_to(widest, now_ms);
        }
    }

    /// There is no scale to try. If some have failed, that is an answer; if not, hint faults tell
    /// nothing, and only who has been idle for long may go, and is found out. Returns whether there
    /// is something to look for: while the scanner rests it is too early to say.
    pub fn give_up(&mut self, now_ms: u64, settings: &Settings) -> bool {
        if self.news.is_deaf(now_ms) {
            return false;
        }
        let has_failed = self.failed.iter().any(|gap| gap.is_finite());
        match has_failed {
            true => self.rest(now_ms, Rest::NobodyIdle),
            false => self.go_to_widest(now_ms, settings),
        }
        !has_failed
    }

    /// Goes to the narrowest scale at which hint faults leave room for a gap: the hottest first,
    /// whatever is told apart at another scale. Returns whether there is one; to look costs
    /// nothing, so nobody need rest from it.
    pub fn search(&mut self, settings: &Settings) -> bool {
        if self.awaits_second_look(settings) {
            return true;
        }
        let Some((scale, gap)) = self.open_scale(|failed| failed / WIDER_GAP, settings) else {
            return false;
        };
        if scale != self.scale {
            (self.scale, self.tried) = (scale, f64::INFINITY);
            // Where agings take long, faults may name another scale at each look.
            self.is_proven = false;
        }
        if !self.is_promising() {
            self.tried = self.tried.min(gap);
        }
        true
    }

    /// Whether the last look was the first to tell pages apart, at this scale, and still would.
    fn awaits_second_look(&self, settings: &Settings) -> bool {
        let (touched_ms, gap) = (self.touched_ms(settings), self.gap(self.scale));
        let would = |it: Look| it.touched_ms == touched_ms && it.idle_share > it.least_idle(gap);
        !self.is_proven && self.likely.is_some_and(would)
    }

    /// The narrowest scale whose gap is narrower than a limit that follows from the one with which
    /// it failed, and its gap. It must make a difference to how many must be idle.
    fn open_scale(&self, limit: fn(f64) -> f64, settings: &Settings) -> Option<(usize, f64)> {
        let narrow = scales(settings).len() - 1;
        let open = |scale: usize| {
            let gap = self.news.gap(scale)?;
            let least = |gap| least_idle(gap, NARROW_TIMES);
            let before = least(limit(self.failed[scale]));
            (least(gap) < before.min(IDLE_MAX)).then_some((scale, gap))
        };
        (self.floor..narrow).find_map(open)
    }

    /// Of the top tier a share, 0 to 1, was idle for so long, which is at least what the scale asks
    /// for. Returns what was made of it, if hint faults told how much had to be idle.
    pub fn note_idle(
        &mut self,
        now_ms: u64,
        idle: f64,
        for_ms: u64,
        settings: &Settings,
    ) -> Option<Look> {
        if self.resting.is_some() {
            return None;
        }
        let (scale, narrow) = (self.scale(settings), scales(settings).len() - 1);
        let fault_class = self.scale.min(narrow.saturating_sub(1));
        let gap = self.news.gap(fault_class);
        let Some(gap) = gap.filter(|_| scale.touched_ms > 0) else {
            // Without hint faults only what was idle for long may go.
            let is_tried = now_ms.saturating_sub(self.since_ms) >= TRIED_MS;
            self.is_proven |= self.takes_counted(settings) && is_tried;
            return None;
        };
        let mut look = Look {
            at_ms: now_ms,
            touched_ms: scale.touched_ms,
            idle_ms: for_ms,
            idle_share: idle,
            ..Look::default()
        };
        look.least_share = look.least_idle(gap);
        self.judge(look, settings);
        Some(look)
    }

    fn judge(&mut self, look: Look, settings: &Settings) {
        if look.idle_share > look.least_share {
            self.told_ms = look.at_ms;
            self.tried = f64::INFINITY;
            // One look may err: a page whose translation is still in a TLB looks idle. And what is
            // as hot as this scale wants begins to wait only now.
            match self.is_promising() {
                true => self.gap_at_proof = self.gap_at_proof.or(self.news.gap(0)),
                false => self.rounds_in_vain = 0,
            }
            (self.is_proven, self.likely) = (self.is_promising(), Some(look));
            return;
        }
        if self.takes_counted(settings) {
            if look.idle_share >= IDLE_MAX && look.at_ms < self.told_ms + DOUBT_MS {
                // Nothing below seems hot for the moment. To age would lose sight of the longest
                // idle.
                (self.is_proven, self.likely) = (false, None);
                return;
            }
            // No, or no more: to look costs little.
            self.go_to(0, look.at_ms);
            return;
        }
        self.fails();
        if !self.search(settings) {
            self.rest(look.at_ms, Rest::NobodyIdle);
        } else if self.idle_ms(settings) <= look.idle_ms
            || look.idle_share <= least_idle(self.gap(self.scale), NARROW_TIMES)
        {
            // It decides this scale as well: a longer time leaves no more pages idle.
            let for_ms = look.idle_ms.max(self.idle_ms(settings));
            self.note_idle(look.at_ms, look.idle_share, for_ms, settings);
        }
    }

    /// This scale is left alone until hot and cold are further apart than at any time while it was
    /// tried in vain. The gap of this moment may be wider than the one that it was chosen for.
    fn fails(&mut self) {
        let gap = self.gap(self.scale).min(self.tried);
        if let Some(failed) = self.failed.get_mut(self.scale).filter(|_| gap.is_finite()) {
            *failed = gap;
        }
        (self.is_proven, self.likely) = (false, None);
    }

    /// A round at this scale is over, if there was one.
    pub fn note_round(&mut self, now_ms: u64, round: Option<Round>, settings: &Settings) {
        let Some(round) = round else { return };
        let is_served = round.is_served();
        let grown = |rounds: u32, grows: bool| if grows { rounds + 1 } else { 0 };
        // Nobody ages for who has been idle for long, so nobody learns that few of them are left.
        let is_in_vain = round.is_in_vain() || (self.takes_counted(settings) && !is_served);
        self.rounds_in_vain = grown(self.rounds_in_vain, is_in_vain);
        self.rounds_short = grown(self.rounds_short, !is_served);
        let narrow = scales(settings).len() - 1;
        let wider = self.scale + 1;
        let may_widen = wider < narrow
            && (self.too_wide).is_none_or(|(scale, until)| wider < scale || now_ms >= until);
        let is_costly = round.aging_ms > COSTLY * self.idle_ms(settings);
        if is_served && round.idle >= PLENTY * round.waited && may_widen && is_costly {
            (self.scale, self.floor) = (wider, wider);
            self.tried = f64::INFINITY;
            self.rounds_in_vain = 0;
        } else if self.rounds_short >= ROUNDS_SHORT && self.floor > 0 {
            self.too_wide = Some((self.floor, now_ms + LEFT_ALONE_MS));
            self.floor -= 1;
            (self.rounds_in_vain, self.rounds_short) = (0, 0);
        } else if self.rounds_in_vain >= ROUNDS {
            match self.takes_counted(settings) {
                true => self.go_to(0, now_ms),
                false => {
                    self.fails();
                    self.rest(now_ms, Rest::NobodyIdle);
                }
            }
        }
    }

    /// How many pages may go now, of those that have been told apart.
    pub fn refill(&mut self, now_ms: u64, settings: &Settings) -> u64 {
        let saved_pages = self.saved_pages(now_ms, settings);
        match self.is_proven && self.resting(now_ms).is_none() {
            true => saved_pages,
            false => 0,
        }
    }

    /// Earns what the time since the last call allows, at most for a second, and returns it.
    pub fn saved_pages(&mut self, now_ms: u64, settings: &Settings) -> u64 {
        let limit_mbps = limit_mbps(settings);
        self.rate_mbps = self.rate_mbps.min(limit_mbps);
        let rate_mbps = match self.is_on_trial && self.takes_counted(settings) {
            true => rest::USUAL_RATE_MBPS.min(limit_mbps),
            false => self.rate_mbps,
        };
        self.gate.refill(now_ms, rate_mbps, SAVED_MS);
        self.gate.tokens_pages()
    }

    /// So many pages went down, of those that were allowed.
    pub fn spend(&mut self, now_ms: u64, pages: u64) {
        let pages = u32::try_from(pages).unwrap_or(u32::MAX);
        // Nothing is allowed while the gate is closed.
        let _ = self.gate.admit(pages, now_ms);
    }
}

#[cfg(test)]
mod tests;
