//! Makes room in the top tier for the pages that wait below: the other half of a promotion into a
//! full node.
//!
//! The kernel sorts the pages of a control group on a node (a *lruvec*) into *generations*, by when
//! they were last accessed. An *aging* looks at all accessed bits, takes what was accessed into the
//! youngest generation, and opens one that is younger still. So the pages of a generation have not
//! been touched from the moment when the next one was opened until the last aging; what was touched
//! since is found when its turn comes to go, and stays. The two youngest generations never go.
//!
//! ```text
//! what waits beyond the room there is → as much as the exchange allows → the longest idle first
//!   → if too few are idle: age, and look again one time scale later
//!   → if the rate or the room below allows less than was found: the rest in later passes
//! ```

mod agings;
mod ahead;
mod below;
mod demand;
mod huge;
mod lists;
mod longest;
mod pace;
mod reclaim;
mod report;
mod shares;
mod survey;

use std::collections::BTreeMap;
use std::sync::Arc;

use pghot_hotness::Nid;

use crate::exchange::{Exchange, Fates, Round};
use crate::{Gates, History, Settings, Turn, Turns, Waiting};
use agings::{Agings, Pair};
use ahead::Filling;
use below::Below;
use huge::Huge;
use lists::Lists;
use survey::Survey;

pub use demand::Demand;
pub use huge::HugeFault;
pub use reclaim::{Exchanged, Generation, Lruvec, Reclaim, Unable};
pub use report::{DemoterReport, Doing};
pub use shares::shares;

/// Fewer pages are not worth a call.
pub(crate) const PAGES_MIN: u64 = 32;

/// When nothing has waited for so long, in ms, there is room, and it is looked more rarely.
const QUIET_MS: u64 = 2000;

/// A top-tier node without room for what waits.
struct Target {
    nid: Nid,
    waiting: Waiting,
    /// As it was when the pass began.
    room_pages: u64,
}

/// Makes room in all top-tier nodes.
#[derive(Default)]
pub struct Demoter {
    exchange: Exchange,
    history: History,
    gates: Gates,
    report: DemoterReport,
    /// By target.
    agings: BTreeMap<Nid, Agings>,
    turns: Turns,
    /// Of pairs of agings under way.
    turn: BTreeMap<Nid, Turn>,
    /// Turns of recordings that had ended by the last pass.
    recorded: u64,
    lists: Lists,
    filling: Filling,
    below: Below,
    huge: Huge,
    /// When the longest idle pages may be tried again.
    longest_again_ms: u64,
    /// Until when they may not because that was in vain, and how long that is: twice as long each
    /// time in a row.
    longest_vain_ms: (u64, u64),
    /// When pages last waited for room.
    wanted_ms: u64,
    /// By the last pass.
    demoted: Vec<(Arc<str>, u64)>,
}

impl Demoter {
    /// One that knows what the migrators promote, keeps their limits with them, and waits for its
    /// turn to clear accessed bits.
    pub fn new(history: History, gates: Gates, turns: Turns) -> Demoter {
        Demoter {
            history,
            gates,
            turns,
            ..Demoter::default()
        }
    }

    /// What it does.
    pub fn report(&self) -> &DemoterReport {
        &self.report
    }

    /// Whose pages the last pass has demoted, by the paths of cgroups; of one several times.
    pub fn demoted(&self) -> &[(Arc<str>, u64)] {
        &self.demoted
    }

    /// If many more pages of the lower tier are in use than was usual, by the last pass: how many
    /// there are to mark.
    pub fn alarm(&self) -> Option<u64> {
        self.below.alarm
    }

    /// Whether room is made by this, so that promotion need not wake the kernel's own reclaim.
    pub fn is_able(&self) -> bool {
        self.report.unable.is_none()
    }

    /// Whether it looks so rarely, since nothing waited, that a migrator whose pages find no room
    /// ([`crate::PassReport::wants_room`]) is to wake it.
    pub fn is_to_be_woken(&self) -> bool {
        !self.report.is_wanted
    }

    /// One pass over all targets; returns the ms until the next.
    pub fn pass(&mut self, demand: &Demand, settings: &Settings, machine: &mut dyn Reclaim) -> u64 {
        let now_ms = machine.now_ms();
        self.demoted.clear();
        let Demand {
            faults, outcomes, ..
        } = *demand;
        self.exchange.note_scanner(now_ms, demand.scanner_rests);
        self.exchange.note(now_ms, faults, outcomes, settings);
        self.report.is_wanted = false;
        self.forget_pairs(now_ms, settings);
        self.filling.note(now_ms, outcomes.promoted);
        self.huge.note(now_ms, &demand.huge_faults);
        for (&nid, waiting) in &demand.waiting {
            let room_pages = machine.room_pages(nid);
            if room_pages < waiting.pages() {
                self.report.is_wanted = true;
                self.wanted_ms = now_ms;
                let target = Target {
                    nid,
                    waiting: *waiting,
                    room_pages,
                };
                self.make_room(&target, settings, machine);
                self.exchange_huge(&target, settings, machine);
            } else {
                self.look_ahead(nid, room_pages, settings, machine);
            }
        }
        self.report.marks_above = self.huge.marks_above(now_ms);
        self.report.huge_rest = self.huge.is_resting(now_ms);
        self.watch_below(demand, machine);
        self.report.has_room = self.is_quiet(now_ms);
        self.report.all_hot = self.exchange.are_all_hot(settings);
        self.report.resting = self.exchange.resting(machine.now_ms());
        self.report.judged = self.exchange.judged_fates();
        self.report.touched_ms = self.exchange.touched_ms(settings);
        self.report.idle_ms = self.exchange.idle_ms(settings);
        self.report.is_proven = self.exchange.is_proven();
        self.report.rate_mbps = self.exchange.rate_mbps();
        self.report.note_change(now_ms);
        self.until_next_ms(machine.now_ms())
    }

    fn is_quiet(&self, now_ms: u64) -> bool {
        now_ms >= self.wanted_ms + QUIET_MS
    }

    /// Agings before a recording tell nothing, nor does a pair that was not finished in time: no
    /// recording waits for it.
    fn forget_pairs(&mut self, now_ms: u64, settings: &Settings) {
        let before = std::mem::replace(&mut self.recorded, self.turns.recorded());
        if self.recorded != before {
            self.agings.clear();
            self.below.forget_pairs();
        }
        let idle_ms = self.exchange.idle_ms(settings);
        for (nid, agings) in &mut self.agings {
            if agings.give_up_late(now_ms, idle_ms) {
                self.turn.remove(nid);
            }
        }
    }

    fn make_room(&mut self, target: &Target, settings: &Settings, machine: &mut dyn Reclaim) {
        let now_ms = machine.now_ms();
        let resting = self.exchange.resting(now_ms);
        let may_try_longest = now_ms >= self.longest_again_ms.max(self.longest_vain_ms.0)
            && !resting.is_some_and(|rest| self.was_vain_for_longest(rest, settings));
        if resting.is_some() && !may_try_longest {
            return;
        }
        let nid = target.nid;
        let is_narrow = !may_try_longest && !self.exchange.takes_counted(settings);
        if is_narrow && !self.search(now_ms, settings) {
            return;
        }
        let is_due = !is_narrow || self.is_due(target, now_ms, settings);
        // The second of a pair must come in time.
        let is_open = self.agings.get(&nid).is_some_and(Agings::is_open);
        if !is_due || (self.lists.is_early(nid, now_ms) && !is_open) {
            return;
        }
        let lruvecs = match settings.demote_rate_limit_mbps {
            0 => Err(Unable::SwitchedOff),
            _ => self.may_go(nid, settings, machine),
        };
        let lruvecs = match lruvecs {
            Ok(lruvecs) => lruvecs,
            Err(unable) => {
                self.report.unable = Some(unable);
                return;
            }
        };
        self.report.unable = None;
        // The longest idle first: who has not been touched for longer than it takes to count
        // accesses may go for all that wait.
        let lruvecs = match may_try_longest {
            true => self.try_longest(target, lruvecs, settings, machine),
            false => lruvecs,
        };
        if self.exchange.resting(now_ms).is_some() {
            return;
        }
        if !is_narrow {
            let for_ms = Exchange::widest_idle_ms(settings);
            let longest = Survey::new(&lruvecs, for_ms);
            if self.exchange.takes_counted(settings) && longest.is_known {
                let idle = longest.idle_share();
                let look = (self.exchange).note_idle(machine.now_ms(), idle, for_ms, settings);
                self.report.note_look(look);
                let round = self.serve(target, longest, settings, machine);
                self.note_longest(machine.now_ms(), round);
                return self.exchange.note_round(machine.now_ms(), round, settings);
            }
            if !self.search(now_ms, settings) {
                return;
            }
        }
        if let Some((pair, fates)) = self.age(nid, &lruvecs, settings, machine)
            && let Ok(after) = self.may_go(nid, settings, machine)
            && self.note_fates(machine.now_ms(), fates, [&lruvecs, &after], settings)
        {
            self.judge(target, pair, &after, settings, machine);
        } else if self.agings.get(&nid).is_some_and(Agings::goes_on) {
            // Nothing is learnt from it.
            let survey = Survey::new(&lruvecs, self.exchange.idle_ms(settings));
            self.serve(target, survey, settings, machine);
        }
    }

    /// Judges what a pair of agings found idle, and demotes of it at once: soon the others will
    /// have been touched as well.
    fn judge(
        &mut self,
        target: &Target,
        pair: Pair,
        after: &[Lruvec],
        settings: &Settings,
        machine: &mut dyn Reclaim,
    ) {
        let survey = Survey::new(after, pair.opened_ago_ms);
        let (now_ms, idle) = (machine.now_ms(), survey.idle_share());
        let look = (self.exchange).note_idle(now_ms, idle, pair.apart_ms, settings);
        self.report.note_look(look);
        let round = self.serve(target, survey, settings, machine);
        self.exchange.note_round(machine.now_ms(), round, settings);
        self.reopen(target.nid, pair.apart_ms, machine.now_ms(), settings);
    }

    /// If pages were not told apart, and those of the next scale must be idle for longer than the
    /// last pair was apart, its second aging is the first of the next pair.
    fn reopen(&mut self, nid: Nid, apart_ms: u64, now_ms: u64, settings: &Settings) {
        let is_wider = self.exchange.idle_ms(settings) > apart_ms;
        let is_searching = !self.exchange.is_promising() && !self.exchange.takes_counted(settings);
        let may_go_on = is_searching && is_wider && self.exchange.resting(now_ms).is_none();
        if may_go_on && let Some(turn) = self.turns.begin() {
            self.turn.insert(nid, turn);
            self.agings.entry(nid).or_default().reopen();
        }
    }

    /// Looks for a time scale at which hint faults leave a gap; returns whether it does not rest,
    /// and there is something to find one by.
    fn search(&mut self, now_ms: u64, settings: &Settings) -> bool {
        let is_searching = !self.exchange.is_proven() || self.exchange.takes_counted(settings);
        if !self.exchange.search(settings) && is_searching {
            return self.exchange.give_up(now_ms, settings);
        }
        self.exchange.resting(now_ms).is_none()
    }

    /// Whether it is time to look at this node, or its last round may go on.
    fn is_due(&self, target: &Target, now_ms: u64, settings: &Settings) -> bool {
        let Some(agings) = self.agings.get(&target.nid) else {
            return true;
        };
        let has_room = self.waited(target, settings) < target.room_pages + PAGES_MIN;
        if self.exchange.is_proven() && has_room && !agings.is_open() {
            // A look would be for nothing.
            return false;
        }
        let idle_ms = self.exchange.idle_ms(settings);
        agings.goes_on() || agings.is_due(now_ms, idle_ms, self.exchange.may_look_often(now_ms))
    }

    /// What waits of those that are hot enough for the present scale.
    fn waited(&self, target: &Target, settings: &Settings) -> u64 {
        match self.exchange.takes_counted(settings) {
            true => target.waiting.pages(),
            false => target.waiting.quick_pages,
        }
    }

    /// Demotes of what was found idle what is wanted; `None` where pages are not told apart.
    fn serve(
        &mut self,
        target: &Target,
        survey: Survey,
        settings: &Settings,
        machine: &mut dyn Reclaim,
    ) -> Option<Round> {
        let now_ms = machine.now_ms();
        let nid = target.nid;
        let waited = self.waited(target, settings);
        let allowed = self.exchange.refill(now_ms, settings);
        if !self.exchange.is_proven() {
            return None;
        }
        let idle = survey.cold_pages();
        let missing = waited.saturating_sub(target.room_pages);
        let mut wanted = missing.min(allowed);
        let mut went = 0;
        if wanted >= PAGES_MIN {
            // Each page that goes up leaves room for another, so a little is enough.
            wanted = wanted.min(machine.lower_room_pages(nid) / 2);
            self.report.rounds_lower_tier_full += u64::from(wanted < PAGES_MIN);
        }
        if wanted < PAGES_MIN {
            wanted = 0;
        } else {
            let by_cgroup = survey.demote(nid, wanted, &settings.policies, machine);
            went = by_cgroup.iter().map(|(_, pages)| pages).sum();
            self.demoted.extend(by_cgroup);
        }
        self.report.demoted_pages += went;
        self.exchange.spend(now_ms, went);
        let agings = self.agings.entry(nid).or_default();
        let round = Round {
            waited,
            idle,
            wanted,
            went,
            aging_ms: agings.took_ms(),
        };
        agings.is_cut_short = round.is_served() && missing >= went + PAGES_MIN;
        self.report.note_round(&round);
        Some(round)
    }

    /// Takes note of what became of pages that went up, and of those that could have gone by the
    /// lists before and after an aging. Returns whether exchanges go on.
    fn note_fates(
        &mut self,
        now_ms: u64,
        mut fates: Fates,
        lists: [&[Lruvec]; 2],
        settings: &Settings,
    ) -> bool {
        if fates.looked == 0 {
            return true;
        }
        (fates.idle, fates.idle_touched) = survey::no_more_idle(lists);
        self.report.looked_pages += fates.looked;
        self.report.touched_again_pages += fates.touched;
        self.report.idle_pages += fates.idle;
        self.report.idle_touched_pages += fates.idle_touched;
        self.exchange.note_fates(now_ms, fates, settings);
        self.exchange.resting(now_ms).is_none()
    }

    /// Opens a younger generation in all lruvecs, if it is time. If it was the second of a pair,
    /// returns the pair, and what became of pages that went up before the first.
    fn age(
        &mut self,
        nid: Nid,
        lruvecs: &[Lruvec],
        settings: &Settings,
        machine: &mut dyn Reclaim,
    ) -> Option<(Pair, Fates)> {
        let idle_ms = self.exchange.idle_ms(settings);
        let began_ms = machine.now_ms();
        let agings = self.agings.entry(nid).or_default();
        if !agings.is_due(began_ms, idle_ms, self.exchange.may_look_often(began_ms)) {
            return None;
        }
        if !agings.is_open() {
            self.turn.insert(nid, self.turns.begin()?);
        }
        let mut fates = Fates::default();
        if let Some(first_ms) = agings.first_of_pair_ms(began_ms, idle_ms) {
            // The bits that the first one cleared, before this one clears them again.
            let sample = self.history.take_sample(nid, first_ms);
            if self.exchange.is_proven() && !sample.is_empty() {
                fates = machine.look_at(&sample);
            }
        }
        let now_ms = self.open_generations(nid, lruvecs, machine);
        let agings = self.agings.entry(nid).or_default();
        let pair = agings.note(began_ms, now_ms, idle_ms)?;
        fates.within_ms = pair.apart_ms;
        self.turn.remove(&nid);
        Some((pair, fates))
    }

    /// Ages all lruvecs; returns when that has ended.
    fn open_generations(&mut self, nid: Nid, lruvecs: &[Lruvec], machine: &mut dyn Reclaim) -> u64 {
        let began_ms = machine.now_ms();
        for lruvec in lruvecs {
            if let Some(youngest) = lruvec.generations.last() {
                machine.age(nid, lruvec.memcg_id, youngest.seq);
                self.report.agings += 1;
            }
        }
        let ended_ms = machine.now_ms();
        let took_ms = ended_ms.saturating_sub(began_ms);
        self.report.aging_ms_max = self.report.aging_ms_max.max(took_ms);
        ended_ms
    }

    /// The lruvecs of a node, but for those that a policy keeps where they are.
    fn may_go(
        &mut self,
        nid: Nid,
        settings: &Settings,
        machine: &mut dyn Reclaim,
    ) -> Result<Vec<Lruvec>, Unable> {
        let began_ms = machine.now_ms();
        let mut lruvecs = machine.lruvecs(nid)?;
        self.lists.note(nid, began_ms, machine.now_ms());
        lruvecs.retain(|lruvec| settings.policies.may_go(&lruvec.cgroup));
        Ok(lruvecs)
    }
}

#[cfg(test)]
mod tests;
