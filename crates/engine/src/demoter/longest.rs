//! The longest idle first: pages of the top tier that have not been touched for longer than it
//! takes to count accesses may go for all that wait, whatever hint faults say.
//!
//! What was idle when the last aging came may be so no more. The kernel finds out when it is asked
//! to evict it, but looks at each page, at a microsecond or more; and after a pause, in which
//! nobody has aged the node, these are nearly all of its pages. So then it is aged first: a
//! fiftieth of a microsecond a page, and only who is idle still is left.

use pghot_hotness::Nid;

use super::reclaim::{Lruvec, Reclaim};
use super::survey::Survey;
use super::{Demoter, Target};
use crate::Settings;
use crate::exchange::{Exchange, Rest, Round};

/// Between two times that the longest idle pages are tried, in ms; and at most, where that was in
/// vain.
const LONGEST_AGAIN_MS: (u64, u64) = (1000, 64_000);

impl Demoter {
    /// Goes over to the longest idle pages, if by a node's list there are as many as wait. Returns
    /// what is known of the node by then.
    pub(super) fn try_longest(
        &mut self,
        target: &Target,
        mut lruvecs: Vec<Lruvec>,
        settings: &Settings,
        machine: &mut dyn Reclaim,
    ) -> Vec<Lruvec> {
        let now_ms = machine.now_ms();
        self.longest_again_ms = now_ms + LONGEST_AGAIN_MS.0;
        let idle_ms = Exchange::widest_idle_ms(settings);
        let are_enough = |lruvecs: &[Lruvec]| {
            Survey::new(lruvecs, idle_ms).cold_pages() >= target.waiting.pages()
        };
        let mut is_worth_it = are_enough(&lruvecs);
        if is_worth_it && self.age_stale(target.nid, &lruvecs, settings, machine) {
            lruvecs = self
                .may_go(target.nid, settings, machine)
                .unwrap_or_default();
            is_worth_it = are_enough(&lruvecs);
        }
        if is_worth_it {
            self.exchange.go_to_widest(now_ms, settings);
        }
        lruvecs
    }

    /// Ages those whose last aging was long ago, if that does not cost too much. Not while the
    /// longest idle are going: then it is known what they are.
    fn age_stale(
        &mut self,
        nid: Nid,
        lruvecs: &[Lruvec],
        settings: &Settings,
        machine: &mut dyn Reclaim,
    ) -> bool {
        let now_ms = machine.now_ms();
        let is_resting = self.exchange.resting(now_ms).is_some();
        if self.exchange.takes_counted(settings) && !is_resting {
            return false;
        }
        let long_ms = Exchange::widest_idle_ms(settings) / 2;
        let is_stale = |lruvec: &&Lruvec| {
            let youngest = lruvec.generations.last();
            youngest.is_some_and(|youngest| youngest.age_ms >= long_ms)
        };
        let stale: Vec<Lruvec> = lruvecs.iter().filter(is_stale).cloned().collect();
        let agings = self.agings.entry(nid).or_default();
        let may_age = !agings.is_open() && agings.is_due(now_ms, long_ms, false);
        may_age && !stale.is_empty() && self.age_alone(nid, &stale, machine)
    }

    /// Where hardly any of them are idle still, they are tried less and less often.
    pub(super) fn note_longest(&mut self, now_ms: u64, round: Option<Round>) {
        let Some(round) = round.filter(|round| round.wanted > 0) else {
            return;
        };
        let (until_ms, rest_ms) = self.longest_vain_ms;
        if !round.is_in_vain() {
            self.longest_vain_ms = (0, 0);
        } else if now_ms >= until_ms {
            let (least_ms, most_ms) = LONGEST_AGAIN_MS;
            let rest_ms = (2 * rest_ms).clamp(2 * least_ms, most_ms);
            self.longest_vain_ms = (now_ms + rest_ms, rest_ms);
        }
    }

    /// Whether the moves before a rest would also have been in vain if the longest idle pages had
    /// gone. Pages that went up at a narrow scale and were not touched again tell nothing of pages
    /// above that have been idle for seconds.
    pub(super) fn was_vain_for_longest(&self, rest: Rest, settings: &Settings) -> bool {
        match rest {
            Rest::NobodyIdle => false,
            Rest::TheyCameBack => true,
            Rest::NotTouchedAgain => self.exchange.takes_counted(settings),
        }
    }
}
