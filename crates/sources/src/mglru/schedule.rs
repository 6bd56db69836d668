//! When which lruvec is aged: as often as its finds deserve, and within a budget of CPU time. Pure:
//! no clock, no kernel.
//!
//! A page is reported by every second pass at most (mglru.bpf.c), and needs `freq_threshold`
//! reports, none further apart than the window, before it is ready. So two passes must fit into the
//! window, and a third: pages whose entries stay in the TLB are seen again when the first
//! promotions of their process have flushed it, which is a pass later, and their first report must
//! still count then. And the first pass after a pause tells nothing, since nobody knows when the
//! accessed bits that it finds were set. So a lruvec is never aged now and then: it is aged in
//! *bursts*, one pass that only clears and then at least as many as the threshold takes, and rests
//! in between.

use std::collections::BTreeMap;
use std::time::Duration;

use pghot_engine::lruvec::{Key, Listed};
use pghot_hotness::Rule;

use crate::budget::{Budget, PERCENT};
use crate::young::Young;

/// From one pass over a lruvec to the next, work time included, if the window allows it: that of
/// the kernel proposal.
const PERIOD: Duration = Duration::from_millis(2000);

/// The shortest period: the resolution of the records' times.
const PERIOD_MIN: Duration = Duration::from_millis(256);

/// A pass that finds fewer base pages (1 MiB) was useless: the measure of the kernel proposal's
/// other page-table scanner.
pub const USEFUL_PAGES: u64 = 256;

/// The first rest of a lruvec whose burst was useless, and the longest: it doubles in between. The
/// longest bounds how late the scheduler learns that old memory turned hot; new memory ends the
/// rest at once.
const REST_MIN: Duration = Duration::from_secs(8);
const REST_MAX: Duration = Duration::from_secs(32);

/// Records tell times to 256 ms, and this thread is woken late: passes this much closer than the
/// window surely count together.
const SLACK: Duration = Duration::from_millis(512);

/// A pass to make now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// Which lruvec.
    pub key: Key,
    /// When the pass before began, if that was within the window. If not, what it finds does not
    /// count: it only clears accessed bits of unknown age.
    pub previous: Option<Duration>,
}

#[derive(Debug)]
struct Lruvec {
    /// Its youngest generation when it was listed last.
    max_seq: u64,
    due: Duration,
    /// When it was aged last.
    aged: Option<Duration>,
    period: Duration,
    rest: Duration,
    is_resting: bool,
    /// Its size when it went to rest.
    resting_pages: u64,
    /// Reported passes that its burst still needs, whatever the budget says.
    owed: u32,
    useless: u32,
}

/// All lruvecs that are aged.
#[derive(Debug)]
pub struct Schedule {
    lruvecs: BTreeMap<Key, Lruvec>,
    window: Duration,
    freq_threshold: u32,
    budget: Budget,
}

impl Schedule {
    /// Without lruvecs, with a full budget.
    pub fn new(rule: &Rule, now: Duration) -> Schedule {
        let mut schedule = Schedule {
            lruvecs: BTreeMap::new(),
            window: Duration::ZERO,
            freq_threshold: 1,
            budget: Budget::new(now, PERCENT),
        };
        schedule.set_rule(rule);
        schedule
    }

    /// Takes over a new window and threshold.
    pub fn set_rule(&mut self, rule: &Rule) {
        self.window = Duration::from_millis(rule.window_ms().into());
        self.freq_threshold = rule.freq_threshold();
    }

    /// Takes over which lruvecs have pages now, and how many. Returns how many are gone.
    ///
    /// Kernels give the id of a removed memcg to the next one. Generations only grow, so a lruvec
    /// whose youngest went back is another one of the same name.
    pub fn update(&mut self, present: &BTreeMap<Key, Listed>, now: Duration) -> u64 {
        let before = self.lruvecs.len();
        self.lruvecs.retain(|key, lruvec| {
            let listed = present.get(key);
            listed.is_some_and(|listed| listed.max_seq >= lruvec.max_seq)
        });
        let gone = before - self.lruvecs.len();
        for (&key, &Listed { max_seq, pages }) in present {
            let lruvec = self.lruvecs.entry(key).or_insert_with(|| Lruvec {
                max_seq,
                due: now,
                aged: None,
                period: PERIOD,
                rest: REST_MIN,
                is_resting: false,
                resting_pages: 0,
                owed: 0,
                useless: 0,
            });
            lruvec.max_seq = max_seq;
            if lruvec.is_resting {
                if pages >= lruvec.resting_pages + USEFUL_PAGES {
                    lruvec.due = lruvec.due.min(now);
                    lruvec.rest = REST_MIN;
                }
                // What left, by promotion or exit, is not there to grow back to.
                lruvec.resting_pages = lruvec.resting_pages.min(pages);
            }
        }
        gone as u64
    }

    /// The next pass that was due at `round`, if the budget allows one: bursts under way go on, the
    /// others start longest wait first. Callers pass the time at which their round began, so that
    /// a round makes each pass once.
    pub fn next(&self, round: Duration) -> Option<Pass> {
        let due = self.lruvecs.iter().filter(|(_, l)| l.due <= round);
        let first = if self.budget.is_spent() {
            due.filter(|(_, l)| l.owed > 0).min_by_key(|(_, l)| l.due)
        } else {
            due.min_by_key(|(_, l)| (l.owed == 0, l.due))
        };
        first.map(|(&key, lruvec)| Pass {
            key,
            previous: lruvec
                .aged
                .filter(|aged| round.saturating_sub(*aged) <= self.window),
        })
    }

    /// A pass was made: it began at `start`, cost `cpu`, and saw that.
    pub fn done(&mut self, pass: Pass, start: Duration, cpu: Duration, seen: Young) {
        self.budget.spend(cpu);
        let (slowest, freq_threshold) = (self.period(), self.freq_threshold);
        let fastest = (slowest / 2).max(PERIOD_MIN);
        let Some(lruvec) = self.lruvecs.get_mut(&pass.key) else {
            return;
        };
        lruvec.aged = Some(start);
        lruvec.is_resting = false;
        if pass.previous.is_none() {
            lruvec.owed = 2 * freq_threshold;
            lruvec.period = slowest;
        } else {
            lruvec.owed = lruvec.owed.saturating_sub(1);
            let is_useful = seen.young_pages >= USEFUL_PAGES;
            if is_useful {
                lruvec.useless = 0;
                lruvec.rest = REST_MIN;
            } else {
                lruvec.useless += 1;
            }
            // A hot set that has just been found is seldom found completely at once.
            lruvec.period = if is_useful && seen.ready > 0 {
                lruvec.period * 3 / 4
            } else {
                lruvec.period * 5 / 4
            };
            lruvec.period = lruvec.period.min(slowest).max(fastest);
        }
        lruvec.due = start + lruvec.period;
        // Even a page that is accessed only once per window would have been young in one of these.
        if lruvec.useless > freq_threshold {
            lruvec.due = start + lruvec.rest;
            lruvec.rest = (lruvec.rest * 2).min(REST_MAX);
            lruvec.is_resting = true;
            // Until update() says how many there are.
            lruvec.resting_pages = u64::MAX - USEFUL_PAGES;
            lruvec.owed = 0;
            lruvec.useless = 0;
        }
    }

    /// A pass was refused; it is tried again a period later.
    pub fn refused(&mut self, key: Key, now: Duration) {
        let period = self.period();
        if let Some(lruvec) = self.lruvecs.get_mut(&key) {
            lruvec.due = now + period;
        }
    }

    /// Other work of the round, such as reading the list of memcgs.
    pub fn spend(&mut self, cpu: Duration) {
        self.budget.spend(cpu);
    }

    /// Time has gone by: earns its share of budget. Returns how long there is nothing to do, at
    /// most a period, after which memcgs may have come and gone.
    pub fn wait(&mut self, now: Duration) -> Duration {
        self.budget.earn(now, PERCENT);
        // Until the debt is paid, only bursts under way go on.
        let is_spent = self.budget.is_spent();
        let solvent = now + self.budget.wait();
        let earliest = self.lruvecs.values().map(|lruvec| {
            if is_spent && lruvec.owed == 0 {
                lruvec.due.max(solvent)
            } else {
                lruvec.due
            }
        });
        let next = earliest.min().unwrap_or(Duration::MAX);
        next.saturating_sub(now).min(self.period())
    }

    /// Number of lruvecs, and of those that rest.
    pub fn counts(&self) -> (u64, u64) {
        let resting = self.lruvecs.values().filter(|l| l.is_resting).count();
        (self.lruvecs.len() as u64, resting as u64)
    }

    /// Whether passes are put off because the budget is spent.
    pub fn is_over_budget(&self) -> bool {
        self.budget.is_spent()
    }

    /// The period as long as nothing becomes ready: three of them are surely within the window.
    fn period(&self) -> Duration {
        let longest = self.window.saturating_sub(SLACK) / 3;
        longest.clamp(PERIOD_MIN, PERIOD)
    }
}

#[cfg(test)]
mod tests {
    use pghot_hotness::Format;

    use super::*;

    const KEY: Key = Key {
        memcg_id: 7,
        nid: 2,
    };
    const CHEAP: Duration = Duration::from_millis(1);
    const NOTHING: Young = Young {
        young_pages: 0,
        ready: 0,
    };
    const WARM: Young = Young {
        young_pages: USEFUL_PAGES,
        ready: 0,
    };
    const READY: Young = Young {
        young_pages: USEFUL_PAGES,
        ready: 1,
    };

    fn rule(freq_threshold: u32, window_ms: u32) -> Rule {
        Rule::new(Format::Default, freq_threshold, window_ms).unwrap()
    }

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn listed(max_seq: u64, pages: u64) -> Listed {
        Listed { max_seq, pages }
    }

    /// A schedule with its clock, which makes every pass that is due.
    struct Run {
        schedule: Schedule,
        present: BTreeMap<Key, Listed>,
        now: Duration,
        /// When each pass was made, and whether it was reported.
        passes: Vec<(Duration, Pass)>,
    }

    impl Run {
        fn new(keys: &[Key]) -> Run {
            Run {
                schedule: Schedule::new(&rule(2, 3000), at(0)),
                present: keys.iter().map(|&key| (key, listed(1, 1000))).collect(),
                now: at(0),
                passes: Vec::new(),
            }
        }

        fn until(&mut self, end: Duration, cost: Duration, seen: Young) {
            while self.now < end {
                self.schedule.update(&self.present, self.now);
                let round = self.now;
                while let Some(pass) = self.schedule.next(round) {
                    self.passes.push((self.now, pass));
                    self.schedule.done(pass, self.now, cost, seen);
                    self.now += cost;
                }
                self.now += self.schedule.wait(self.now).max(at(1));
            }
        }

        fn reported(&self) -> impl Iterator<Item = bool> {
            self.passes.iter().map(|(_, pass)| pass.previous.is_some())
        }

        fn gaps_ms(&self) -> Vec<u128> {
            let gap = |pair: &[(Duration, Pass)]| (pair[1].0 - pair[0].0).as_millis();
            self.passes.windows(2).map(gap).collect()
        }
    }

    /// Of the default window, 3000 ms.
    const PERIOD_MS: u128 = 829;

    #[test]
    fn the_first_pass_is_not_reported() {
        let mut run = Run::new(&[KEY]);
        run.until(at(3_500), CHEAP, WARM);
        let reported: Vec<bool> = run.reported().collect();
        assert_eq!(reported, [false, true, true, true, true]);
        assert!(run.gaps_ms().iter().all(|gap| *gap == PERIOD_MS));
        let (first, second) = (run.passes[0], run.passes[1]);
        assert_eq!(second.1.previous, Some(first.0));
    }

    #[test]
    fn ready_pages_bring_the_next_pass_nearer_and_their_end_takes_it_back() {
        let mut run = Run::new(&[KEY]);
        run.until(at(10_000), CHEAP, READY);
        assert_eq!(run.gaps_ms()[..4], [PERIOD_MS, 621, 466, PERIOD_MS / 2]);
        run.until(at(20_000), CHEAP, WARM);
        assert_eq!(run.gaps_ms().last(), Some(&PERIOD_MS));
    }

    #[test]
    fn the_longest_period_is_the_proposals() {
        let mut run = Run::new(&[KEY]);
        run.schedule
            .set_rule(&Rule::new(Format::Precision, 2, 16_000).unwrap());
        run.until(at(10_000), CHEAP, WARM);
        assert!(run.gaps_ms().iter().all(|gap| *gap == 2000));
    }

    #[test]
    fn useless_bursts_rest_longer_and_longer_and_start_afresh() {
        let mut run = Run::new(&[KEY]);
        run.until(at(120_000), CHEAP, NOTHING);
        // A burst is one pass that clears and three that find nothing.
        let reported: Vec<bool> = run.reported().collect();
        assert_eq!(reported[..8], [false, true, true, true].repeat(2));
        let rests: Vec<u128> = run.gaps_ms().into_iter().filter(|g| *g > 3000).collect();
        assert_eq!(rests, [8000, 16000, 32000, 32000]);
    }

    #[test]
    fn new_pages_end_a_rest() {
        let mut run = Run::new(&[KEY]);
        run.until(at(7_000), CHEAP, NOTHING);
        assert_eq!(run.schedule.counts(), (1, 1));
        let passes = run.passes.len();
        run.until(at(9_000), CHEAP, NOTHING);
        assert_eq!(run.passes.len(), passes);
        run.present.insert(KEY, listed(1, 1000 + USEFUL_PAGES));
        run.until(at(9_700), CHEAP, NOTHING);
        assert_eq!(run.passes.len(), passes + 1);
    }

    #[test]
    fn what_left_is_not_what_there_is_to_grow_to() {
        let mut run = Run::new(&[KEY]);
        run.until(at(7_000), CHEAP, NOTHING);
        run.present.insert(KEY, listed(1, 10));
        run.until(at(9_000), CHEAP, NOTHING);
        let passes = run.passes.len();
        run.present.insert(KEY, listed(1, 10 + USEFUL_PAGES));
        run.until(at(9_700), CHEAP, NOTHING);
        assert_eq!(run.passes.len(), passes + 1);
    }

    #[test]
    fn a_short_window_shortens_the_period() {
        let mut run = Run::new(&[KEY]);
        run.schedule.set_rule(&rule(2, 1000));
        run.until(at(5_000), CHEAP, WARM);
        assert!(run.gaps_ms().iter().all(|gap| *gap == 256));
        assert!(run.reported().skip(1).all(|is_reported| is_reported));
    }

    #[test]
    fn dear_passes_keep_the_budget_and_whole_bursts() {
        let mut run = Run::new(&[KEY]);
        let (cost, end) = (at(300), at(600_000));
        run.until(end, cost, WARM);
        let spent = cost * run.passes.len() as u32;
        let allowed = (end + at(10_000)) * PERCENT / 100;
        assert!(spent <= allowed + cost * 5, "{spent:?} of {allowed:?}");
        assert!(spent >= allowed / 2, "{spent:?} of {allowed:?}");
        // After a pass that only clears, a page can be reported twice, by every second pass.
        let reported: Vec<bool> = run.reported().collect();
        let bursts = reported.split(|is_reported| !is_reported);
        assert!(bursts.skip(1).all(|burst| burst.len() >= 3));
    }

    #[test]
    fn a_dear_lruvec_does_not_starve_the_others() {
        let others: Vec<Key> = (0..20).map(|memcg_id| Key { memcg_id, nid: 2 }).collect();
        let mut run = Run::new(&others);
        run.until(at(300_000), at(100), WARM);
        for key in others {
            let bursts = run.passes.iter().filter(|(_, p)| p.key == key);
            assert!(bursts.count() >= 3, "{key:?}");
        }
    }

    #[test]
    fn a_refused_pass_waits_a_period_and_a_gone_memcg_is_forgotten() {
        let mut schedule = Schedule::new(&rule(2, 3000), at(0));
        let present = BTreeMap::from([(KEY, listed(1, 1000))]);
        schedule.update(&present, at(0));
        assert!(schedule.next(at(0)).is_some());
        schedule.refused(KEY, at(0));
        assert_eq!(schedule.next(at(828)), None);
        assert!(schedule.next(at(830)).is_some());
        assert_eq!(schedule.update(&BTreeMap::new(), at(2000)), 1);
        assert_eq!(schedule.next(at(9000)), None);
        assert_eq!(schedule.wait(at(9000)).as_millis(), PERIOD_MS);
    }

    #[test]
    fn another_memcg_of_the_same_id_starts_afresh() {
        let mut run = Run::new(&[KEY]);
        run.until(at(3_000), CHEAP, WARM);
        run.present.insert(KEY, listed(7, 1000));
        assert_eq!(run.schedule.update(&run.present, run.now), 0, "it was aged");
        run.present.insert(KEY, listed(3, 1000));
        assert_eq!(run.schedule.update(&run.present, run.now), 1);
        run.until(at(5_000), CHEAP, WARM);
        let reported: Vec<bool> = run.reported().collect();
        assert_eq!(reported, [false, true, true, true, false, true, true]);
    }
}
