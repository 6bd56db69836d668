//! What a demoter does and why, for `status` and `explain`.

use std::collections::VecDeque;

use pghot_hotness::Nid;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::reclaim::Unable;
use crate::exchange::{Exchange, Fates, Look, Rest, Round};
use crate::marking::Worth;
use crate::{QuickFault, Settings};

/// What a demoter does, for reports.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DemoterReport {
    /// Pages demoted since the start.
    pub demoted_pages: u64,
    /// Pages promoted since the start as parts of huge pages that changed places with others by
    /// their hint faults; migrators promoted the rest.
    pub huge_promoted_pages: u64,
    /// Of those demoted, parts of such huge pages; the kernel's counters of demotion lack them.
    pub huge_demoted_pages: u64,
    /// Whether huge pages of the top tier are marked as well.
    pub marks_above: bool,
    /// Whether huge pages do not change places for now, because the last that did were not worth
    /// it.
    pub huge_rest: bool,
    /// Agings asked for.
    pub agings: u64,
    /// The longest that one aging took, in ms.
    pub aging_ms_max: u64,
    /// Of the pages that went up for others, those that were looked at again.
    pub looked_pages: u64,
    /// Of those, the ones that had been touched again.
    pub touched_again_pages: u64,
    /// Pages of the top tier that had been idle, in the times between which those were looked at.
    pub idle_pages: u64,
    /// Of those, the ones that were touched meanwhile.
    pub idle_touched_pages: u64,
    /// By what it was last judged whether pages that went up were touched again.
    pub judged: Fates,
    /// Within which time what goes up was touched, in ms.
    pub touched_ms: u32,
    /// For how long what goes down was not touched, in ms.
    pub idle_ms: u64,
    /// Whether hot pages below and cold ones above are told apart at this scale.
    pub is_proven: bool,
    /// MB that may change places a second.
    pub rate_mbps: u64,
    /// Whether pages wait that do not fit.
    pub is_wanted: bool,
    /// Whether none have waited for some time: what an exchange leaves free for a moment is no
    /// room.
    pub has_room: bool,
    /// Whether the latest hint faults come soon after their marks and tell no page from another:
    /// all that is marked is equally hot.
    pub all_hot: bool,
    /// Why nothing is exchanged for now.
    pub resting: Option<Rest>,
    /// Why nothing can be.
    pub unable: Option<Unable>,
    /// Rounds that were left out because the lower tier has no room.
    pub rounds_lower_tier_full: u64,
    /// Pairs of agings of lower-tier nodes, to see how much of them is in use.
    pub looks_below: u64,
    /// How often so many more of them were in use than was usual that all were marked.
    pub alarms: u64,
    /// The last changes of mind, and when (`CLOCK_MONOTONIC`, ms).
    pub changes: VecDeque<(u64, String)>,
    /// The last looks at a top tier.
    pub looks: VecDeque<Look>,
}

/// What a demoter does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// It cannot demote.
    Unable,
    /// Nothing waits that does not fit.
    NotNeeded,
    /// Nothing changes places for now.
    Resting,
    /// It looks for pages to be told apart.
    Looking,
    /// Pages change places.
    Exchanging,
}

/// Where there is room and all that is marked is equally hot, a page may come that is touched
/// within so many ms of its mark: nothing hotter is known, and free memory is of no use.
const ALL_HOT_MS: u32 = 1000;

/// Changes of mind that are kept, and looks.
const KEPT: usize = 32;

impl DemoterReport {
    /// What it does.
    pub fn doing(&self) -> Doing {
        match self {
            it if it.unable.is_some() => Doing::Unable,
            it if !it.is_wanted => Doing::NotNeeded,
            it if it.marks_above => Doing::Exchanging,
            it if it.huge_rest || it.resting.is_some() => Doing::Resting,
            it if !it.is_proven => Doing::Looking,
            _ => Doing::Exchanging,
        }
    }

    /// What it does and why, as a sentence for an operator.
    pub fn sentence(&self) -> String {
        match self.doing() {
            Doing::Unable => self.unable.map_or("", Unable::sentence).into(),
            Doing::NotNeeded => "the top tier has room for what waits: nothing is demoted".into(),
            Doing::Exchanging if self.marks_above => {
                "the top tier is full of huge pages: those that are touched later after a mark \
                 change places with those of the lower tier that are touched sooner"
                    .into()
            }
            Doing::Resting => format!("nothing changes places for now: {}", self.why_it_rests()),
            // Without the scale: it may change twenty times a second.
            Doing::Looking => "looking for a time scale at which pages that wait are hotter than \
                               those that would go"
                .into(),
            Doing::Exchanging => format!(
                "pages touched within {} ms go up for pages idle for {} ms, {} MB/s at most",
                self.touched_ms, self.idle_ms, self.rate_mbps
            ),
        }
    }

    fn why_it_rests(&self) -> String {
        match self.resting {
            _ if self.huge_rest => "huge pages that went up were touched again no sooner than \
                                    those that went down"
                .into(),
            Some(rest @ Rest::NotTouchedAgain) => {
                format!("{} ({})", rest.sentence(), self.judged.phrase())
            }
            rest => rest.map_or("", Rest::sentence).into(),
        }
    }

    /// Which hint faults are quick: as the exchange wants it, or as set. In bursts only while there
    /// is room, or as good as room: memory that has been idle for longer than it takes to count
    /// accesses, so that whoever is in use now may have its place.
    pub fn quick_fault(&self, settings: &Settings) -> QuickFault {
        let mut quick = QuickFault::as_set(settings);
        let is_able = self.unable.is_none();
        let is_widest = self.idle_ms >= Exchange::widest_idle_ms(settings);
        quick.in_bursts &= self.has_room || (is_able && self.is_proven && is_widest);
        if self.has_room && self.all_hot && quick.within_ms > 0 {
            quick.within_ms = quick.within_ms.max(ALL_HOT_MS);
        }
        if self.is_wanted && is_able {
            quick.within_ms = self.touched_ms;
            if !is_widest {
                quick.soon_ms = self.touched_ms;
            }
        }
        quick
    }

    /// What it is worth that pages went up lately.
    pub fn worth(&self) -> Worth {
        match self.resting {
            _ if self.has_room => Worth::FillsRoom,
            Some(rest) if rest.is_of_vain_moves() => Worth::InVain,
            _ => Worth::Exchanged,
        }
    }

    /// Keeps the sentence, if it is another one than before.
    pub(super) fn note_change(&mut self, now_ms: u64) {
        let sentence = self.sentence();
        if self
            .changes
            .back()
            .is_none_or(|(_, last)| *last != sentence)
        {
            self.keep_change(now_ms, sentence);
        }
    }

    fn keep_change(&mut self, now_ms: u64, sentence: String) {
        self.changes.push_back((now_ms, sentence));
        if self.changes.len() > KEPT {
            self.changes.pop_front();
        }
    }

    /// Keeps an alarm: so many pages of a lower-tier node are in use, and so many of them as usual.
    pub(super) fn note_alarm(&mut self, now_ms: u64, nid: Nid, pages: u64, usual_pages: u64) {
        self.alarms += 1;
        self.keep_change(
            now_ms,
            format!(
                "{pages} pages of node {nid} are in use, where {usual_pages} were usual: all are \
                 marked"
            ),
        );
    }

    /// Keeps a look, if there was one.
    pub(super) fn note_look(&mut self, look: Option<Look>) {
        self.looks.extend(look);
        if self.looks.len() > KEPT {
            self.looks.pop_front();
        }
    }

    /// Keeps what went after the last look.
    pub(super) fn note_round(&mut self, round: &Round) {
        if let Some(look) = self.looks.back_mut() {
            look.wanted_pages += round.wanted;
            look.went_pages += round.went;
        }
    }
}

#[cfg(test)]
mod tests {
    use pghot_hotness::Format;

    use super::*;

    #[test]
    fn a_search_is_one_change_whatever_it_looks_at() {
        let mut report = DemoterReport {
            is_wanted: true,
            ..DemoterReport::default()
        };
        for ms in [8, 125, 8] {
            report.touched_ms = ms;
            report.note_change(ms.into());
        }
        assert_eq!(report.changes.len(), 1);
    }

    #[test]
    fn a_rest_of_huge_pages_is_said_before_what_is_said_of_others() {
        let said = |huge_rest| {
            let report = DemoterReport {
                is_wanted: true,
                resting: Some(Rest::NobodyIdle),
                huge_rest,
                ..DemoterReport::default()
            };
            assert_eq!(report.doing(), Doing::Resting);
            report.sentence()
        };
        assert!(said(true).contains("huge pages"), "{}", said(true));
        assert!(!said(false).contains("huge pages"), "{}", said(false));
    }

    #[test]
    fn room_is_filled_where_all_are_equally_hot() {
        let mut settings = Settings::new(Format::Default);
        let within_ms = |settings: &Settings, has_room, all_hot| {
            let report = DemoterReport {
                has_room,
                all_hot,
                ..DemoterReport::default()
            };
            report.quick_fault(settings).within_ms
        };
        assert_eq!(within_ms(&settings, true, true), ALL_HOT_MS);
        for (has_room, all_hot) in [(true, false), (false, true)] {
            assert_eq!(within_ms(&settings, has_room, all_hot), 125);
        }
        settings.quick_fault_ms = 2000;
        assert_eq!(within_ms(&settings, true, true), 2000);
        settings.quick_fault_ms = 0;
        assert_eq!(within_ms(&settings, true, true), 0, "switched off");
    }

    /// What was let in while there was room does not count when places are scarce.
    #[test]
    fn the_soonest_are_the_hottest() {
        let settings = Settings::new(Format::Default);
        let times_ms = |is_wanted: bool, touched_ms, idle_ms| {
            let report = DemoterReport {
                has_room: !is_wanted,
                is_wanted,
                touched_ms,
                idle_ms,
                ..DemoterReport::default()
            };
            let quick = report.quick_fault(&settings);
            (quick.soon_ms, quick.within_ms)
        };
        assert_eq!(times_ms(false, 64, 128), (8, 125), "there is room");
        assert_eq!(times_ms(true, 64, 128), (64, 64));
        assert_eq!(times_ms(true, 125, 3000), (8, 125), "all may come");
    }

    #[test]
    fn the_last_looks_are_kept() {
        let mut report = DemoterReport::default();
        for at_ms in 0..100 {
            let look = Look {
                at_ms,
                ..Look::default()
            };
            report.note_look((at_ms % 2 == 0).then_some(look));
        }
        let kept = report.looks.iter().map(|look| look.at_ms);
        assert!(kept.eq((36..100).step_by(2)));
    }
}
