//! Notices that other pages of the lower tier are in use than before, without a hint fault.
//!
//! While few hint faults lead to promotions few are asked for, and the scanner, which goes through
//! memory in turn, needs seconds to come to a hot set that has moved. A pair of agings of a
//! lower-tier node takes no fault, and tells how many of its pages are touched within
//! [`APART_MS`]: many more than was usual are an *alarm*, and all of the lower tier is marked. If
//! hardly any page goes up after it, it is looked more rarely, twice as long each time in a row.
//! Which pages they are it does not tell: a hot set that takes the place of another one, as large
//! and in the lower tier as well, is left to the scanner.

use std::collections::BTreeMap;

use pghot_hotness::Nid;

use super::agings::Agings;
use super::reclaim::{Lruvec, Reclaim};
use super::{Demand, Demoter, PAGES_MIN};
use crate::Turn;
use crate::exchange::untouched_share;
use crate::marking::FAULTS_PER_PROMOTION;

/// How far apart the two agings of a pair are, in ms.
const APART_MS: u64 = 16;

/// Between two pairs, in ms: at least, and at most after alarms in vain.
const AGAIN_MS: (u64, u64) = (500, 64_000);

/// Agings, and reading the lists, may take one part in so many of the time.
const SHARE: u64 = 256;

/// An alarm takes so many more pages in use: as many of the node's that to mark them all costs no
/// more hint faults than their promotion may; and so many at least.
const NEW_ONE_IN: u64 = FAULTS_PER_PROMOTION;
const NEW_PAGES: u64 = 512;

/// A control group with fewer than one in so many of the node's pages is left out: there may be
/// thousands, and each costs a call.
const SMALL_ONE_IN: u64 = 64;

/// Where so many are in use as a rule that there could be no alarm, it is looked so many times more
/// rarely: only to see whether they are fewer by now.
const RARELY: u64 = 4;

/// If fewer than one in so many of the pages that were new went up within so many ms, it was in
/// vain.
const WENT_UP_ONE_IN: u64 = 8;
const JUDGED_MS: u64 = 4000;

/// By one part in so many, what is usual follows what is seen, up and down. Down sooner: when a hot
/// set has gone up, the next one is to be seen.
const USUAL: (f64, f64) = (4.0, 2.0);

/// What is known of one lower-tier node.
#[derive(Debug, Default)]
struct Watched {
    agings: Agings,
    turn: Option<Turn>,
    /// What the present pair took so far, in ms.
    took_ms: u64,
    /// When the last look ended, and how long until the next.
    looked_ms: u64,
    rest_ms: u64,
    /// How many times a second a page is touched, on average, if all are touched alike.
    usual_per_s: Option<f64>,
}

/// An alarm whose outcome is not known yet.
#[derive(Debug)]
struct Raised {
    at_ms: u64,
    new_pages: u64,
    promoted: u64,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Below {
    nodes: BTreeMap<Nid, Watched>,
    raised: Option<Raised>,
    /// Until when it is not looked, and for how long, after alarms in vain.
    vain_ms: (u64, u64),
    /// If there was an alarm in the last pass, the pages of the nodes where it was.
    pub alarm: Option<u64>,
}

/// Pages of a node that were touched between two agings, and all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct InUse {
    pages: u64,
    of: u64,
    apart_ms: u64,
}

impl InUse {
    /// By the list after the second: it opened the youngest generation, and took what was touched
    /// since the first to the one before.
    fn new(lruvecs: &[Lruvec], apart_ms: u64) -> InUse {
        let touched = |lruvec: &Lruvec| {
            let mut youngest_first = lruvec.generations.iter().rev();
            youngest_first.nth(1).map_or(0, |it| it.pages)
        };
        InUse {
            pages: lruvecs.iter().map(touched).fold(0, u64::saturating_add),
            of: pages(lruvecs),
            apart_ms,
        }
    }

    /// How many times a second they are touched, on average, if all are touched alike: of pages
    /// touched at random a share e^-rt is not touched in a time t.
    fn per_s(&self) -> f64 {
        let share = untouched_share(self.pages, self.of);
        -share.ln() * 1000.0 / self.apart_ms.max(1) as f64
    }

    /// How many would have been touched at such a rate.
    fn usual_pages(&self, per_s: f64) -> u64 {
        let share = 1.0 - (-per_s * self.apart_ms as f64 / 1000.0).exp();
        (share * self.of as f64) as u64
    }
}

fn pages(lruvecs: &[Lruvec]) -> u64 {
    let pages = lruvecs.iter().map(Lruvec::pages);
    pages.fold(0, u64::saturating_add)
}

/// Those whose pages could make a difference.
pub(super) fn without_small(mut lruvecs: Vec<Lruvec>) -> Vec<Lruvec> {
    let least = pages(&lruvecs) / SMALL_ONE_IN;
    lruvecs.retain(|lruvec| lruvec.pages() >= least);
    lruvecs
}

impl Watched {
    fn until_next_ms(&self, now_ms: u64) -> u64 {
        (self.looked_ms + self.rest_ms).saturating_sub(now_ms)
    }

    /// Takes note of what is in use; returns how many pages are new if that is an alarm.
    fn note(&mut self, in_use: InUse) -> Option<u64> {
        let per_s = in_use.per_s();
        let Some(usual_per_s) = self.usual_per_s else {
            self.usual_per_s = Some(per_s);
            return None;
        };
        let usual_pages = in_use.usual_pages(usual_per_s);
        let new = in_use.pages.saturating_sub(usual_pages);
        let least = NEW_PAGES.max(in_use.of / NEW_ONE_IN);
        let is_alarm = new >= least;
        if usual_pages + least > in_use.of {
            self.rest_ms *= RARELY;
        }
        let follows = if per_s > usual_per_s {
            USUAL.0
        } else {
            USUAL.1
        };
        self.usual_per_s = Some(match is_alarm {
            true => per_s,
            false => usual_per_s + (per_s - usual_per_s) / follows,
        });
        is_alarm.then_some(new)
    }
}

impl Below {
    /// How long until a pair of agings is to be begun or ended, in ms, if one is under way.
    pub fn until_second_ms(&self, now_ms: u64) -> Option<u64> {
        let nodes = self.nodes.values();
        let until_ms = nodes.filter_map(|it| it.agings.until_second_ms(now_ms, APART_MS));
        until_ms.min()
    }

    /// Forgets pairs under way.
    pub fn forget_pairs(&mut self) {
        for watched in self.nodes.values_mut() {
            (watched.agings, watched.turn) = (Agings::default(), None);
        }
    }

    /// Judges the last alarm by what was promoted since.
    fn judge(&mut self, now_ms: u64, promoted: u64) {
        let is_due = |raised: &Raised| now_ms >= raised.at_ms + JUDGED_MS;
        let Some(raised) = self.raised.take_if(|raised| is_due(raised)) else {
            return;
        };
        let went_up = promoted.saturating_sub(raised.promoted);
        self.vain_ms = match went_up >= raised.new_pages / WENT_UP_ONE_IN {
            true => (0, 0),
            false => {
                let (least_ms, most_ms) = AGAIN_MS;
                let rest_ms = (2 * self.vain_ms.1).clamp(4 * least_ms, most_ms);
                (now_ms + rest_ms, rest_ms)
            }
        };
    }
}

impl Demoter {
    /// Looks at the nodes of the lower tier if it is time.
    pub(super) fn watch_below(&mut self, demand: &Demand, machine: &mut dyn Reclaim) {
        let now_ms = machine.now_ms();
        let promoted = demand.outcomes.promoted;
        self.below.alarm = None;
        self.below.judge(now_ms, promoted);
        if demand.marks_enough || now_ms < self.below.vain_ms.0 || self.below.raised.is_some() {
            self.below.forget_pairs();
            return;
        }
        for &nid in &demand.lower_tier {
            let Some(in_use) = self.look_below(nid, machine) else {
                continue;
            };
            self.report.looks_below += 1;
            let watched = self.below.nodes.entry(nid).or_default();
            if let Some(new_pages) = watched.note(in_use) {
                let usual_pages = in_use.pages - new_pages;
                (self.report).note_alarm(now_ms, nid, in_use.pages, usual_pages);
                self.exchange.note_alarm(now_ms);
                *self.below.alarm.get_or_insert_default() += in_use.of;
                // Several nodes may raise one at once.
                let raised = self.below.raised.get_or_insert(Raised {
                    at_ms: now_ms,
                    new_pages: 0,
                    promoted,
                });
                raised.new_pages += new_pages;
            }
        }
    }

    /// Ages a node if it is time; if it was the second of a pair, returns what was in use.
    fn look_below(&mut self, nid: Nid, machine: &mut dyn Reclaim) -> Option<InUse> {
        let began_ms = machine.now_ms();
        let watched = self.below.nodes.entry(nid).or_default();
        if watched.agings.give_up_late(began_ms, APART_MS) {
            watched.turn = None;
        }
        let until_ms = watched.agings.until_second_ms(began_ms, APART_MS);
        if until_ms.unwrap_or(watched.until_next_ms(began_ms)) > 0 {
            return None;
        }
        if until_ms.is_none() {
            (watched.turn, watched.took_ms) = (Some(self.turns.begin()?), 0);
        }
        // Where there is none, reclaim swaps, and needs the generations.
        let has_room = machine.room_pages(nid) >= PAGES_MIN;
        let lruvecs = has_room.then(|| machine.lruvecs(nid).ok()).flatten();
        let Some(lruvecs) = lruvecs.map(without_small) else {
            (watched.looked_ms, watched.rest_ms) = (began_ms, AGAIN_MS.0);
            (watched.agings, watched.turn) = (Agings::default(), None);
            return None;
        };
        let aged_ms = machine.now_ms();
        let ended_ms = self.open_generations(nid, &lruvecs, machine);
        let watched = self.below.nodes.entry(nid).or_default();
        let pair = watched.agings.note(aged_ms, ended_ms, APART_MS);
        let after = pair.and_then(|_| machine.lruvecs(nid).ok());
        let after = after.map(without_small);
        let now_ms = machine.now_ms();
        watched.took_ms += now_ms - began_ms;
        let apart_ms = pair?.apart_ms;
        watched.turn = None;
        watched.looked_ms = now_ms;
        watched.rest_ms = AGAIN_MS.0.max(watched.took_ms * SHARE);
        let in_use = InUse::new(&after?, apart_ms);
        (in_use.of > 0).then_some(in_use)
    }
}
