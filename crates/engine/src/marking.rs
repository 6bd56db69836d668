//! How much the kernel's scanner marks at each visit of a process: as much as pays.
//!
//! Each mark costs a hint fault when its page is touched, which is 1 to 2 µs of the program's
//! time. What it brings is that hot pages are found. So there is a budget of hint faults a second,
//! and the size of a visit follows, to stay between half of it and all of it. The budget is
//! [`FAULTS_PER_PROMOTION`] times what was promoted a second, lately; at least what it takes to
//! notice that something has changed, and at most a hundredth of the machine's time, or of twice as
//! many CPUs as are busy. Pages that changed places in vain earn nothing. Where hardly any page is
//! touched the marks stay, and to walk over them in vain is all that more would do. If many that
//! have stayed for long lead to faults at once, pages that were left alone are in use again: then
//! it is time to look, whatever came of it before.
//!
//! The smallest visits mark [`SIZES_MB`]'s least every [`DELAY_MS`] in each process: where all of
//! that is touched these are ten thousand faults a second, whatever the budget. And a visit that
//! was large because the scanner had come to pages that nobody touches may lead to more at once.
//! Then the scanner *rests* until the budget has paid for those that came in vain.
//!
//! An *alarm* says that many other pages of the lower tier are in use than before: then all of them
//! are marked, and a hint fault each is allowed at once.

use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::exchange::{ALARM_MS, FAULT_CLASSES, FaultTimes};
use crate::pulse::{PULSE_SIZE_MB, Pulses};

/// Address space of one visit, in MB: at least, at the start, and at most.
const SIZE_MB: (u64, u64, u64) = (1, START_SIZE_MB, 128);

/// What a visit is ever told to mark, in MB.
pub const SIZES_MB: RangeInclusive<u64> = SIZE_MB.0..=SIZE_MB.2;

/// Hint faults since the start, as who sees them counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HintFaults {
    /// How soon after their marks they came.
    pub times: FaultTimes,
    /// Those of threads that the scanner visits seldom: see [`pulse`](crate::pulse).
    pub seldom: u64,
    /// Of the top tier, where its pages are marked as well.
    pub above: u64,
}

impl HintFaults {
    /// All that cost a program time, for [`Marking`]. Those of the top tier stand in the widest
    /// class that [`FaultTimes::soon`] counts.
    pub fn all(&self) -> FaultTimes {
        let mut all = self.times;
        all.0[FAULT_CLASSES - 2] += self.above;
        all
    }
}

/// What it is worth that pages went up lately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worth {
    /// They went into free memory.
    FillsRoom,
    /// Others went for them.
    Exchanged,
    /// Others went for them, and it was a mistake: they earn nothing.
    InVain,
}

/// What the kernel's scanner is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Visits {
    /// MB of a process that a visit marks.
    pub size_mb: u64,
    /// Whether a [pulse](crate::pulse) is on.
    pub is_pulse: bool,
    /// Whether nothing is marked for a while.
    pub rests: bool,
    /// Whether pages of the top tier are marked as well.
    pub marks_above: bool,
}

/// How long after the start of a thread its first visit comes, and then the next, in ms. From the
/// third pass on, each mapping that was not touched lately costs a visit of its own before the next
/// pass begins, and a small program has some fifteen. Such a visit takes microseconds.
pub const DELAY_MS: u64 = 25;

/// The same while pages of the top tier are marked as well. By their faults the kernel reckons the
/// periods of threads anew, so that this does not set the pace; but for four times as long a
/// mapping counts as touched after a fault, and a pass takes longer than 100 ms.
pub const DELAY_ABOVE_MS: u64 = 250;

/// What a visit marks at the start, in MB.
pub const START_SIZE_MB: u64 = 16;

/// Whether normal balancing uses the scanner, so that its settings are left alone. It moves pages
/// to the node of the CPU that touches them: where all CPUs are on one node, that is nowhere to go.
pub fn is_for_normal_balancing(is_on: bool, nodes_with_cpus: usize) -> bool {
    is_on && nodes_with_cpus > 1
}

/// See the head of this file. Eight faults take some 10 µs, which a page saves by 70 misses at
/// 150 ns. With four, a large memory whose pages are nearly all touched now and then could starve:
/// few faults, few promotions, a smaller budget. `crates/sim/tests/thin.rs` has such a memory.
pub(crate) const FAULTS_PER_PROMOTION: u64 = 8;

/// Hint faults a second that come within a second of their marks, for only those follow from what
/// is marked now; by CPU of the machine: at least, which is a fifth of a percent of its time if
/// each takes 2 µs, and at most. With less and less, down to an eighth, while they led to nothing,
/// the exchange had too few to search with, and hot sets that moved were found too late.
const BUDGET: (u64, u64) = (1024, 4096);

/// Budgets are of all CPUs, but of so many times as many as are busy at most: a small program on a
/// large machine would pay for all of them.
const OF_BUSY: f64 = 2.0;

/// At most while the top tier has room: what goes up then costs its move and no more, and the
/// sooner it goes the better. The second is for faults of which a quarter and more lead to a
/// promotion: what comes at once then has to come anyway.
const ROOMY_BUDGET: (u64, u64) = (16_384, 65_536);

/// See [`ROOMY_BUDGET`].
const FAULTS_PER_FILLING: u64 = 4;

/// What a visit marks at first when there is an alarm, in MB.
const ALARM_SIZE_MB: u64 = 32;

/// The size of a visit grows so many times at once.
const GROWTH: u64 = 4;

/// Fewer a second tell nothing.
const FAULTS_MIN: u64 = 128;

/// What was promoted lately counts half after so long, in ms: to find room takes a while.
const HALVED_MS: f64 = 1000.0;

/// How long faults and promotions are counted before they are judged, in ms, and how long while
/// nothing comes.
const JUDGED_MS: u64 = 250;
const IDLE_MS: u64 = 2000;

/// The longest rest, in ms, whatever came before.
const REST_MAX_MS: u64 = 16_000;

/// So many times more late faults a second than before are many, if they are as many as the
/// smaller budget.
const MORE_LATE: u64 = 4;

/// What is left of so many promotions a second after so many ms.
pub(crate) fn lately(promoted_per_s: f64, ms: u64) -> f64 {
    promoted_per_s * 0.5_f64.powf(ms as f64 / HALVED_MS)
}

/// See the head of this file.
#[derive(Debug, Clone)]
pub struct Marking {
    all_cpus: u64,
    /// Of which budgets are.
    cpus: u64,
    size_mb: u64,
    judged_ms: u64,
    /// The most pages that were promoted a second, and lately.
    promoted_per_s: f64,
    faults: FaultTimes,
    /// All that were ever noted, also by who began anew.
    fault_times: FaultTimes,
    promoted: u64,
    /// Whether what went up had room when it was last judged.
    fills_room: bool,
    /// Late faults a second, up to now.
    late_per_s: u64,
    /// When they were last judged.
    faults_per_s: u64,
    budget_per_s: u64,
    /// What the budget has paid for, less the faults that came in vain; at most for a second ahead.
    credit: i64,
    rests: bool,
    /// Hint faults that may come at once after an alarm, and until when.
    alarm: Option<(u64, u64)>,
    pulses: Pulses,
    marks_above: bool,
}

/// What [`Marking`] does, for `status`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MarkingReport {
    /// MB of a process that the scanner marks at a visit.
    pub size_mb: u64,
    /// Hint faults a second.
    pub faults_per_s: u64,
    /// How many there may be.
    pub budget_per_s: u64,
    /// Whether enough of them lead to promotions.
    pub pays: bool,
    /// How often the kernel was made to reckon anew how often it visits processes.
    pub pulses: u64,
    /// Whether it does so now: it may promote a few pages by itself meanwhile.
    pub is_pulse: bool,
    /// Whether nothing is marked until the budget has paid for the hint faults that came.
    pub rests: bool,
    /// Hint faults since the start, by how soon they came after their marks: within 8 ms, else
    /// within 16, and so on up to a second, and at last those that came later.
    pub fault_times: FaultTimes,
}

impl MarkingReport {
    /// As a sentence for an operator.
    pub fn sentence(&self) -> String {
        let MarkingReport {
            size_mb,
            faults_per_s,
            budget_per_s,
            pays,
            pulses: _,
            is_pulse,
            rests,
            fault_times: _,
        } = self;
        let why = match pays {
            true => "",
            false => ", for few lead to promotions",
        };
        let pulse = match is_pulse {
            true => {
                "; the kernel promotes a few pages too, so that it visits old threads more often"
            }
            false => "",
        };
        let faults = format!("{faults_per_s} hint faults a second, {budget_per_s} at most{why}");
        match rests {
            true => {
                format!("nothing for a moment, for the smallest visits lead to too many; {faults}")
            }
            false => format!(
                "{size_mb} MB of a process at each visit of the kernel's scanner; {faults}{pulse}"
            ),
        }
    }
}

impl Marking {
    /// For a machine of so many CPUs.
    pub fn new(cpus: u64) -> Marking {
        Marking {
            all_cpus: cpus.max(1),
            cpus: cpus.max(1),
            size_mb: START_SIZE_MB,
            judged_ms: 0,
            promoted_per_s: (cpus.max(1) * BUDGET.1 / FAULTS_PER_PROMOTION) as f64,
            faults: FaultTimes::default(),
            fault_times: FaultTimes::default(),
            promoted: 0,
            fills_room: false,
            late_per_s: 0,
            faults_per_s: 0,
            budget_per_s: cpus.max(1) * BUDGET.1,
            credit: 0,
            rests: false,
            alarm: None,
            pulses: Pulses::default(),
            marks_above: false,
        }
    }

    /// What the kernel's scanner is to be told now.
    pub fn visits(&self) -> Visits {
        let is_pulse = self.pulses.is_pulse();
        let size_mb = if is_pulse {
            PULSE_SIZE_MB
        } else {
            self.size_mb
        };
        let rests = self.rests && !is_pulse;
        Visits {
            size_mb,
            is_pulse,
            rests,
            marks_above: self.marks_above && !is_pulse,
        }
    }

    /// Whether pages of the top tier are to be marked as well, from now on. Returns whether that is
    /// new.
    pub fn mark_above(&mut self, marks_above: bool) -> bool {
        std::mem::replace(&mut self.marks_above, marks_above) != marks_above
    }

    /// What it does.
    pub fn report(&self) -> MarkingReport {
        let Visits {
            size_mb,
            is_pulse,
            rests,
            ..
        } = self.visits();
        MarkingReport {
            size_mb,
            faults_per_s: self.faults_per_s,
            budget_per_s: self.budget_per_s,
            pays: self.budget_per_s > self.cpus * BUDGET.0,
            pulses: self.pulses.begun(),
            is_pulse,
            rests,
            fault_times: self.fault_times,
        }
    }

    /// Whether more is marked than it takes to notice that something has changed.
    pub fn marks_enough(&self) -> bool {
        self.budget_per_s > self.cpus * BUDGET.0
    }

    /// Takes note of how many CPUs are busy.
    pub fn note_busy(&mut self, busy_cpus: f64) {
        let counted = (OF_BUSY * busy_cpus).ceil() as u64;
        self.cpus = counted.clamp(1, self.all_cpus);
    }

    /// Many more pages of the lower tier are in use than was usual: all of it, so many pages, is to
    /// be marked at once.
    pub fn note_alarm(&mut self, now_ms: u64, pages: u64) {
        self.alarm = Some((pages, now_ms + ALARM_MS));
        self.size_mb = self.size_mb.max(ALARM_SIZE_MB);
        (self.rests, self.credit) = (false, 0);
        self.budget_per_s = self.budget_per_s.max(self.cpus * ROOMY_BUDGET.0);
    }

    /// Whether [`Marking::note`] wants to know now, for all that is known without asking.
    pub fn is_due(&self, now_ms: u64, faults: FaultTimes, promoted: u64, worth: Worth) -> bool {
        let is_news = (faults, promoted) != (self.faults, self.promoted);
        let is_idle = self.faults_per_s == 0 && !is_news;
        let rest_ms = if is_idle { IDLE_MS } else { JUDGED_MS };
        // As much as was marked to fill it would be far too much from now on.
        let room_is_used_up = self.fills_room && worth != Worth::FillsRoom;
        now_ms >= self.judged_ms + rest_ms || self.pulses.is_due(now_ms) || room_is_used_up
    }

    /// Takes note of all hint faults since the start of threads that are visited seldom.
    pub fn note_seldom(&mut self, now_ms: u64, seldom: u64) {
        let is_over_budget = self.faults_per_s > self.budget_per_s;
        self.pulses.note(now_ms, seldom, is_over_budget);
    }

    /// Takes note of all hint faults and all promoted pages since the start, and of what these are
    /// worth.
    pub fn note(&mut self, now_ms: u64, faults: FaultTimes, promoted: u64, worth: Worth) {
        let spent_ms = now_ms.saturating_sub(self.judged_ms).max(1);
        let came = faults.soon().saturating_sub(self.faults.soon());
        let late = faults.late().saturating_sub(self.faults.late());
        let went = promoted.saturating_sub(self.promoted);
        self.fault_times.add(&faults.since(&self.faults));
        (self.judged_ms, self.faults, self.promoted) = (now_ms, faults, promoted);
        self.fills_room = worth == Worth::FillsRoom;
        let late_per_s = late * 1000 / spent_ms;
        let (low, usual) = (self.cpus * BUDGET.0, self.cpus * BUDGET.1);
        let high = match worth {
            Worth::FillsRoom => self.cpus * ROOMY_BUDGET.0,
            Worth::Exchanged | Worth::InVain => usual,
        };
        let is_news = late_per_s > (MORE_LATE * self.late_per_s).max(low);
        self.late_per_s = (3 * self.late_per_s + late_per_s) / 4;
        let best_per_s = (high / FAULTS_PER_PROMOTION) as f64;
        // Where nothing comes nothing is told.
        let told_ms = if came == 0 { 0 } else { spent_ms };
        let before = lately(self.promoted_per_s.min(best_per_s), told_ms);
        self.promoted_per_s = match worth {
            _ if is_news => best_per_s.min((usual / FAULTS_PER_PROMOTION) as f64),
            Worth::InVain => 0.0,
            Worth::FillsRoom | Worth::Exchanged => {
                before.max(went as f64 * 1000.0 / spent_ms as f64)
            }
        };
        let times = |faults: u64| (self.promoted_per_s * faults as f64) as u64;
        let budget = times(FAULTS_PER_PROMOTION).clamp(low, high);
        let budget = match worth {
            Worth::FillsRoom => {
                budget.max(times(FAULTS_PER_FILLING).min(self.cpus * ROOMY_BUDGET.1))
            }
            Worth::Exchanged | Worth::InVain => budget,
        };
        let unexpected = self.note_alarm_faults(now_ms, came);
        let budget = match self.alarm {
            Some(_) => budget.max(self.cpus * ROOMY_BUDGET.0),
            None => budget,
        };
        (self.faults_per_s, self.budget_per_s) = (came * 1000 / spent_ms, budget);
        // Larger visits become smaller, and what pays is paid for.
        self.credit = match budget <= low {
            true => self.paid(spent_ms, unexpected),
            false => 0,
        };
        if self.pulses.is_pulse() {
            // They follow from its size, and it ends soon.
            return;
        }
        if self.rests {
            self.rests = self.credit < 0;
            return;
        }
        self.size_mb = self.wanted_mb();
        self.rests = self.size_mb == SIZE_MB.0 && self.credit < 0;
    }

    /// What a visit is to mark by the latest faults.
    fn wanted_mb(&self) -> u64 {
        let (least, usual, most) = SIZE_MB;
        let budget = self.budget_per_s;
        let is_within = (budget / 2..=budget).contains(&self.faults_per_s);
        // To the middle of what is allowed.
        let wanted_mb = self.size_mb * budget * 3 / 4 / self.faults_per_s.max(1);
        if self.faults_per_s < FAULTS_MIN && self.marks_above {
            // Huge pages are few.
            (2 * self.size_mb).clamp(least, most)
        } else if self.faults_per_s < FAULTS_MIN {
            usual.clamp(self.size_mb / 2, self.size_mb * 2)
        } else if is_within {
            self.size_mb
        } else {
            wanted_mb.min(self.size_mb * GROWTH).clamp(least, most)
        }
    }

    /// Takes note of faults that follow from an alarm; returns how many do not.
    fn note_alarm_faults(&mut self, now_ms: u64, came: u64) -> u64 {
        let Some((pages, until_ms)) = self.alarm else {
            return came;
        };
        let left = pages.saturating_sub(came);
        self.alarm = (left > 0 && now_ms < until_ms).then_some((left, until_ms));
        came.saturating_sub(pages)
    }

    fn paid(&self, spent_ms: u64, came: u64) -> i64 {
        let budget_in = |ms| {
            let faults = self.budget_per_s.saturating_mul(ms) / 1000;
            i64::try_from(faults).unwrap_or(i64::MAX)
        };
        let came = i64::try_from(came).unwrap_or(i64::MAX);
        let paid = self
            .credit
            .saturating_add(budget_in(spent_ms))
            .min(budget_in(1000));
        paid.saturating_sub(came).max(-budget_in(REST_MAX_MS))
    }
}

#[cfg(test)]
mod tests;
