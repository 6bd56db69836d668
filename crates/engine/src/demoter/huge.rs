//! Huge pages change places by what their hint faults tell.
//!
//! A huge page in use is touched as often as all of its pages together, so hardly one is idle from
//! one aging to the next, however much colder it is than others. But how soon after its mark it is
//! touched tells how often. So while pages wait, agings tell nothing apart, and most of the node is
//! huge pages, the scanner marks those of the top tier as well. Its laws:
//!
//! - *By name.* Those that come sooner on average, of their last looks, change places with those
//!   that come later by more than chance: the soonest with the latest.
//! - *A few first.* Of many that are alike, some come sooner by chance. So after a few it waits for
//!   the next faults of those that moved, which tell without that choice whether those that went up
//!   are hotter than those that went down. If so, twice as many may follow.
//! - *What does not pay rests*, twice as long each time, and half as long after each time that it
//!   did. Meanwhile the top tier is not marked. But if clearly more pages of the lower tier come
//!   soon than when the rest began, others have become hot, and it is over.
//! - *Moving disturbs.* It holds up the program, so faults of that time come late and tell nothing.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use pghot_hotness::Nid;

use super::{Demoter, Exchanged, Reclaim, Target};
use crate::{HUGE_PAGES, Owner, Place, Settings};

/// By so many standard errors those must come later that go down, of the logarithm of the mean of
/// random times: after 2 looks at each that is three times as late, after 4 twice.
const ERRORS: f64 = 1.1;

/// After so many looks at each.
const LOOKS: f64 = 2.0;

/// Of so many looks and more the older ones count half.
const LOOKS_MAX: f64 = 4.0;

/// If the last two looks come so many times as soon as those before, the page has become hot, and
/// those before tell nothing: one late look would hide several that come soon. By chance one pair
/// of looks in 30 comes as soon after two or three others.
const BECAME_HOT: f64 = 8.0;

/// What a fault takes to be noticed, in us: nothing comes sooner.
const NOTICED_US: f64 = 1.0;

/// How long a look is good for, in ms: the scanner comes to all memory about once a second.
const KNOWN_MS: u64 = 4000;

/// Pages that are known at most: of 128 GiB.
const KNOWN: usize = 1 << 16;

/// Pairs that change places before it is known whether that pays.
const TRIAL: u32 = 16;

/// Of these half tell, so many of each kind at least; and so many times as soon those must come
/// that went up.
const JUDGED: f64 = 10.0;
const WORTH_IT: f64 = 1.75;

/// First and longest rest, in ms.
const REST_MS: (u64, u64) = (500, 64_000);

/// A rest is over if clearly more pages of the lower tier come soon than when it began, which is so
/// many times as soon as half of them came then. Beside it stands the share that does so by chance
/// after two looks, if all are alike.
const SOONER: [(f64, f64); 4] = [(4.0, 0.066), (8.0, 0.019), (16.0, 0.005), (32.0, 0.0013)];
/// Clearly more: by so many standard errors and so many pages, where so many and more are known. A
/// rest that ends by chance costs a trial.
const SURE: f64 = 2.0;
const MORE: f64 = 2.0;
const KNOWN_MIN: usize = 40;

/// How often that is looked at, in ms: it goes through all pages that are known.
const OTHERS_MS: u64 = 500;

/// In this time, in ms, those that moved must be touched again, or it did not pay.
const VERDICT_MS: u64 = 8000;

/// For so long after pages last waited, in ms, the top tier is marked: others may come at once.
const AGAIN_MS: u64 = 1000;

/// The share of a node that must be huge pages: all of it is marked then.
const MOSTLY: f64 = 0.5;

/// A hint fault of a huge page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HugeFault {
    /// Whose it is, and where.
    pub place: Place,
    /// The top-tier node that it is on; `None` in the lower tier.
    pub above: Option<Nid>,
    /// Since the scanner's mark, in us.
    pub since_mark_us: u64,
}

/// Times since the mark.
#[derive(Debug, Clone, Copy, Default)]
struct Times {
    looks: f64,
    sum_us: f64,
    last_us: f64,
}

impl Times {
    fn add(&mut self, us: f64) {
        self.looks += 1.0;
        self.sum_us += us;
        self.last_us = us;
    }

    /// Adds a look at a page, of which the latest tell most.
    fn add_latest(&mut self, us: f64) {
        let before = Times {
            looks: self.looks - 1.0,
            sum_us: self.sum_us - self.last_us,
            ..Times::default()
        };
        let last_two_us = (self.last_us + us) / 2.0;
        if before.looks >= LOOKS && last_two_us * BECAME_HOT <= before.mean_us() {
            (self.looks, self.sum_us) = (1.0, self.last_us);
        } else if self.looks >= LOOKS_MAX {
            self.looks /= 2.0;
            self.sum_us /= 2.0;
        }
        self.add(us);
    }

    /// Whether chance alone would hardly make the others come so much later.
    fn is_sooner_than(&self, late: &Times) -> bool {
        let error = (1.0 / self.looks + 1.0 / late.looks).sqrt();
        self.mean_us() * (ERRORS * error).exp() < late.mean_us()
    }

    fn mean_us(&self) -> f64 {
        self.sum_us / self.looks.max(1.0)
    }
}

/// What is known of a huge page.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    times: Times,
    at_ms: u64,
    above: Option<Nid>,
    /// Where it was told to go, if it has not been touched since.
    told: Option<Way>,
}

impl Seen {
    /// Whether enough is known of it where it is now.
    fn tells(&self, now_ms: u64) -> bool {
        self.times.looks >= LOOKS && self.told.is_none() && now_ms < self.at_ms + KNOWN_MS
    }
}

/// Where a page is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Up,
    Down,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Huge {
    seen: HashMap<Place, Seen>,
    /// The first faults of those that went up, and of those that went down.
    up: Times,
    down: Times,
    /// Pairs since it was last known whether it pays, and how many may be; 0 at first.
    on_trial: u32,
    trial: u32,
    /// Pages have just moved, which held up the program: the next faults came late.
    is_disturbed: bool,
    /// When a pair last moved, and when it was last asked for one.
    moved_ms: u64,
    asked_ms: Option<u64>,
    /// When what is not known any more was last dropped.
    dropped_ms: u64,
    rest_ms: u64,
    until_ms: u64,
    /// How soon the lower tier came when the rest began; `None` if too little was known.
    before: Option<Below>,
    /// When it is next seen whether others have become hot.
    others_ms: u64,
}

/// How soon the lower tier's known pages come: how many there are, how soon half of them come, and
/// how many come so much sooner.
#[derive(Debug, Clone, Copy)]
struct Below {
    pages: usize,
    median_us: f64,
    soon: [usize; SOONER.len()],
}

/// Pages that are to change places, as many of each kind.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Pairs {
    up: Vec<Place>,
    down: Vec<Place>,
}

impl Huge {
    /// Takes note of faults since the last call.
    pub fn note(&mut self, now_ms: u64, faults: &[HugeFault]) {
        if now_ms >= self.dropped_ms + KNOWN_MS {
            self.dropped_ms = now_ms;
            self.seen.retain(|_, seen| now_ms < seen.at_ms + KNOWN_MS);
        }
        if !faults.is_empty() && std::mem::take(&mut self.is_disturbed) {
            return;
        }
        for fault in faults {
            let is_full = self.seen.len() >= KNOWN && !self.seen.contains_key(&fault.place);
            if !is_full {
                self.note_one(now_ms, fault);
            }
        }
    }

    fn note_one(&mut self, now_ms: u64, fault: &HugeFault) {
        let us = fault.since_mark_us as f64 + NOTICED_US;
        let seen = self.seen.entry(fault.place).or_default();
        if let Some(way) = seen.told.take() {
            match (way, fault.above) {
                (Way::Up, Some(_)) => self.up.add(us),
                (Way::Down, None) => self.down.add(us),
                // It did not go.
                _ => {}
            }
            // What it was chosen for was partly chance.
            seen.times = Times::default();
        }
        if now_ms >= seen.at_ms + KNOWN_MS {
            seen.times = Times::default();
        }
        seen.times.add_latest(us);
        (seen.at_ms, seen.above) = (now_ms, fault.above);
    }

    /// Whether nothing changes places for now.
    pub fn rests(&mut self, now_ms: u64) -> bool {
        self.asked_ms = Some(now_ms);
        self.judge(now_ms);
        if now_ms < self.until_ms && now_ms >= self.others_ms {
            self.others_ms = now_ms + OTHERS_MS;
            if self.are_others_hot(now_ms) {
                self.until_ms = now_ms;
            }
        }
        now_ms < self.until_ms
    }

    /// Whether pages of the lower tier have become hot since the rest began.
    fn are_others_hot(&self, now_ms: u64) -> bool {
        let Some(before) = self.before else {
            return false;
        };
        let means = self.means_below_us(now_ms);
        let times = means.len() as f64 / before.pages as f64;
        let is_more = |((sooner, chance), then): ((f64, f64), usize)| {
            let usual = (then as f64 * times).max(chance * means.len() as f64);
            let soon = within(&means, before.median_us / sooner);
            soon as f64 > usual + SURE * usual.sqrt() + MORE
        };
        // What is known first may be a part of the memory that is unlike the rest.
        times >= 0.5 && SOONER.into_iter().zip(before.soon).any(is_more)
    }

    /// How soon the lower tier comes.
    fn below(&self, now_ms: u64) -> Option<Below> {
        let mut means = self.means_below_us(now_ms);
        let pages = means.len();
        if pages < KNOWN_MIN {
            return None;
        }
        let median_us = *means.select_nth_unstable_by(pages / 2, f64::total_cmp).1;
        let soon = SOONER.map(|(sooner, _)| within(&means, median_us / sooner));
        Some(Below {
            pages,
            median_us,
            soon,
        })
    }

    /// Of the lower tier's pages of which enough is known.
    fn means_below_us(&self, now_ms: u64) -> Vec<f64> {
        let below = (self.seen.values()).filter(|seen| seen.above.is_none() && seen.tells(now_ms));
        below.map(|seen| seen.times.mean_us()).collect()
    }

    /// Whether the scanner is to mark the top tier as well.
    pub fn marks_above(&self, now_ms: u64) -> bool {
        self.is_wanted(now_ms) && now_ms >= self.until_ms
    }

    /// Whether pairs would be wanted, but nothing changes places for now.
    pub fn is_resting(&self, now_ms: u64) -> bool {
        self.is_wanted(now_ms) && now_ms < self.until_ms
    }

    fn is_wanted(&self, now_ms: u64) -> bool {
        let is_lately = |asked_ms: u64| now_ms < asked_ms + AGAIN_MS;
        self.asked_ms.is_some_and(is_lately)
    }

    fn judge(&mut self, now_ms: u64) {
        let judged = JUDGED.max(f64::from(self.on_trial) / 2.0);
        let is_known = self.up.looks >= judged && self.down.looks >= judged;
        let is_late = self.on_trial > 0 && now_ms >= self.moved_ms + VERDICT_MS;
        if !is_known && !is_late {
            return;
        }
        let pays = is_known && self.up.mean_us() * WORTH_IT <= self.down.mean_us();
        (self.up, self.down, self.on_trial) = (Times::default(), Times::default(), 0);
        if pays {
            self.trial = self.trial().saturating_mul(2);
            self.rest_ms /= 2;
        } else {
            self.trial = 0;
            self.rest_ms = (2 * self.rest_ms).clamp(REST_MS.0, REST_MS.1);
            self.until_ms = now_ms + self.rest_ms;
            self.before = self.below(now_ms);
            self.seen.clear();
        }
    }

    fn trial(&self) -> u32 {
        self.trial.max(TRIAL)
    }

    /// Of a node, those that are to change places now, so many pairs at most, of owners who let
    /// them.
    fn pairs(
        &self,
        now_ms: u64,
        nid: Nid,
        most: usize,
        may_move: &mut dyn FnMut(Owner) -> bool,
    ) -> Pairs {
        let most = most.min(self.trial().saturating_sub(self.on_trial) as usize);
        let mut let_them = HashMap::new();
        let mut known = |above: Option<Nid>| -> Vec<(Times, Place)> {
            let seen = self.seen.iter().filter(|(place, seen)| {
                seen.above == above
                    && seen.tells(now_ms)
                    && *let_them
                        .entry(place.owner)
                        .or_insert_with(|| may_move(place.owner))
            });
            seen.map(|(place, seen)| (seen.times, *place)).collect()
        };
        let below = first(known(None), most, by_time);
        let above = first(known(Some(nid)), most, |a, b| by_time(b, a));
        let pairs = below.into_iter().zip(above);
        let pairs = pairs.take_while(|((soon, _), (late, _))| soon.is_sooner_than(late));
        let (up, down) = pairs.map(|((_, up), (_, down))| (up, down)).unzip();
        Pairs { up, down }
    }

    /// Takes note of pairs that were told to change places.
    fn note_told(&mut self, now_ms: u64, pairs: &Pairs) {
        self.moved_ms = now_ms;
        self.is_disturbed = true;
        self.on_trial += u32::try_from(pairs.up.len()).unwrap_or(u32::MAX);
        let up = pairs.up.iter().map(|place| (place, Way::Up));
        for (place, way) in up.chain(pairs.down.iter().map(|place| (place, Way::Down))) {
            if let Some(seen) = self.seen.get_mut(place) {
                seen.told = Some(way);
            }
        }
    }
}

fn within(means_us: &[f64], us: f64) -> usize {
    means_us.iter().filter(|mean| **mean <= us).count()
}

fn by_time(a: &(Times, Place), b: &(Times, Place)) -> Ordering {
    let by_time = a.0.mean_us().total_cmp(&b.0.mean_us());
    by_time.then(a.1.cmp(&b.1))
}

/// The first so many, in order, without sorting the rest.
fn first<T>(mut all: Vec<T>, most: usize, order: impl Fn(&T, &T) -> Ordering) -> Vec<T> {
    if most < all.len() {
        all.select_nth_unstable_by(most, &order);
        all.truncate(most);
    }
    all.sort_by(order);
    all
}

/// Whether no policy keeps its pages where they are.
fn may_move(owner: Owner, settings: &Settings, machine: &mut dyn Reclaim) -> bool {
    let policies = &settings.policies;
    let Owner::Process(pid) = owner else {
        return false;
    };
    if policies.is_empty() {
        return true;
    }
    let program = machine.program(pid);
    program.is_some_and(|program| {
        let policy = policies.of(&program);
        policies.may_go(&program.cgroup) && !policy.is_some_and(|policy| policy.exclude)
    })
}

impl Demoter {
    /// Has the huge pages of a full node marked, and exchanges them.
    pub(super) fn exchange_huge(
        &mut self,
        target: &Target,
        settings: &Settings,
        machine: &mut dyn Reclaim,
    ) {
        let (now_ms, nid) = (machine.now_ms(), target.nid);
        // Where groups have weights, these say whose pages go down.
        let may_exchange = settings.demote_rate_limit_mbps > 0
            && self.report.unable.is_none()
            && !self.exchange.is_proven()
            && !settings.policies.has_weights();
        if !may_exchange || machine.huge_share(nid) < MOSTLY || self.huge.rests(now_ms) {
            return;
        }
        let most = self.huge_pages_most(nid, settings, machine);
        let mut may_move = |owner| may_move(owner, settings, machine);
        let pairs = (self.huge).pairs(now_ms, nid, most as usize, &mut may_move);
        if pairs.up.is_empty() {
            return;
        }
        let Exchanged {
            down_pages,
            up_pages,
        } = machine.exchange_huge(nid, &pairs.down, &pairs.up);
        self.huge.note_told(now_ms, &pairs);
        self.exchange.spend(now_ms, down_pages);
        let up = u32::try_from(up_pages).unwrap_or(u32::MAX);
        // Nothing goes while the gate is closed.
        let _ = (self.gates).with(nid, now_ms, settings, |gate| gate.admit(up, now_ms));
        self.demoted.push((Arc::default(), down_pages));
        self.report.demoted_pages += down_pages;
        self.report.huge_demoted_pages += down_pages;
        self.report.huge_promoted_pages += up_pages;
    }

    /// As many as both limits and the lower tier allow now.
    fn huge_pages_most(&mut self, nid: Nid, settings: &Settings, machine: &mut dyn Reclaim) -> u64 {
        let now_ms = machine.now_ms();
        self.gates.refill(Some(nid), now_ms, settings);
        let up_pages = (self.gates).with(nid, now_ms, settings, |gate| match gate.closed(now_ms) {
            Some(_) => 0,
            None => gate.tokens_pages(),
        });
        let down_pages = self.exchange.saved_pages(now_ms, settings);
        let room = machine.lower_room_pages(nid) / HUGE_PAGES;
        // The last one may overdraw a limit, as with any move.
        room.min(up_pages.min(down_pages).div_ceil(HUGE_PAGES))
    }
}

#[cfg(test)]
mod tests;
