//! How much the kernel's scanner marks at each visit of a process: as much as pays.
//!
//! Each mark costs a hint fault when its page is touched, which is 1 to 2 µs of the program's
//! time. What it brings is that hot pages are found. So there is a budget of hint faults a
//! second, and the size of a visit follows, to stay between half of it and all of it.
//! The budget is large while at least one fault in [`FAULTS_PER_PROMOTION`] leads to a promotion,
//! sooner or later; else it is what it takes to notice that something has changed. Where hardly
//! any page is touched the marks stay, and to walk over them in vain is all that more would do.
//! If many that have stayed for long lead to faults at once, pages that were left alone are in use
//! again: then it is time to look, whatever came of it before.

use serde::{Deserialize, Serialize};

use crate::exchange::FaultTimes;

/// Address space of one visit, in MB: at least, at the start, and at most (the kernel's default).
const SIZE_MB: (u64, u64, u64) = (4, START_SIZE_MB, 256);

/// How long after the start of a thread its first visit comes, and then the next, in ms.
pub const DELAY_MS: u64 = 100;

/// What a visit marks at the start, in MB.
pub const START_SIZE_MB: u64 = 16;

/// See the head of this file.
const FAULTS_PER_PROMOTION: u64 = 8;

/// Hint faults a second that come within a second of their marks, for only those follow from what
/// is marked now; by CPU of the machine: while they pay, at most a hundredth of its time,
/// and while they do not, a sixteenth of that.
const BUDGET: (u64, u64) = (4096, 256);

/// The size of a visit grows so many times at once.
const GROWTH: u64 = 4;

/// Fewer a second tell nothing.
const FAULTS_MIN: u64 = 128;

/// How long it may take until something comes of a fault, in ms: to find room takes a while.
const PATIENCE_MS: u64 = 2000;

/// How long faults and promotions are counted before they are judged, in ms, and how long after
/// nothing came.
const JUDGED_MS: u64 = 500;
const IDLE_MS: u64 = 1000;

/// So many times more late faults a second than before are many, if they are as many as the
/// smaller budget.
const MORE_LATE: u64 = 4;

/// See the head of this file.
#[derive(Debug, Clone)]
pub struct Marking {
    cpus: u64,
    size_mb: u64,
    judged_ms: u64,
    due_ms: u64,
    /// For how long faults have not paid.
    vain_ms: u64,
    faults: FaultTimes,
    promoted: u64,
    /// Late faults a second, up to now.
    late_per_s: u64,
    /// When they were last judged.
    faults_per_s: u64,
    budget_per_s: u64,
}

/// What [`Marking`] does, for `status`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkingReport {
    /// MB of a process that the scanner marks at a visit.
    pub size_mb: u64,
    /// Hint faults a second.
    pub faults_per_s: u64,
    /// How many there may be.
    pub budget_per_s: u64,
    /// Whether enough of them lead to promotions.
    pub pays: bool,
}

impl MarkingReport {
    /// As a sentence for an operator.
    pub fn sentence(&self) -> String {
        let MarkingReport {
            size_mb,
            faults_per_s,
            budget_per_s,
            pays,
        } = self;
        let why = match pays {
            true => "",
            false => ", for few lead to promotions",
        };
        format!(
            "{size_mb} MB of a process at each visit of the kernel's scanner; {faults_per_s} hint \
             faults a second, {budget_per_s} at most{why}"
        )
    }
}

impl Marking {
    /// For a machine of so many CPUs.
    pub fn new(cpus: u64) -> Marking {
        Marking {
            cpus: cpus.max(1),
            size_mb: START_SIZE_MB,
            judged_ms: 0,
            due_ms: 0,
            vain_ms: 0,
            faults: FaultTimes::default(),
            promoted: 0,
            late_per_s: 0,
            faults_per_s: 0,
            budget_per_s: cpus.max(1) * BUDGET.0,
        }
    }

    /// What it does.
    pub fn report(&self) -> MarkingReport {
        MarkingReport {
            size_mb: self.size_mb,
            faults_per_s: self.faults_per_s,
            budget_per_s: self.budget_per_s,
            pays: self.vain_ms < PATIENCE_MS,
        }
    }

    /// Whether [`Marking::note`] wants to know now.
    pub fn is_due(&self, now_ms: u64) -> bool {
        now_ms >= self.due_ms
    }

    /// Takes note of all hint faults and all promoted pages since the start.
    pub fn note(&mut self, now_ms: u64, faults: FaultTimes, promoted: u64) {
        let spent_ms = now_ms.saturating_sub(self.judged_ms).max(1);
        let came = faults.soon().saturating_sub(self.faults.soon());
        let late = faults.late().saturating_sub(self.faults.late());
        let went = promoted.saturating_sub(self.promoted);
        (self.judged_ms, self.faults, self.promoted) = (now_ms, faults, promoted);
        self.due_ms = now_ms + if came == 0 { IDLE_MS } else { JUDGED_MS };
        let late_per_s = late * 1000 / spent_ms;
        let many = (MORE_LATE * self.late_per_s).max(self.cpus * BUDGET.1);
        let is_news = late_per_s > many;
        self.late_per_s = (3 * self.late_per_s + late_per_s) / 4;
        let pays = went * FAULTS_PER_PROMOTION >= came;
        self.vain_ms = match pays || is_news {
            true => 0,
            false => self.vain_ms + spent_ms,
        };
        let budget = self.cpus
            * match self.vain_ms < PATIENCE_MS {
                true => BUDGET.0,
                false => BUDGET.1,
            };
        (self.faults_per_s, self.budget_per_s) = (came * 1000 / spent_ms, budget);
        let (least, usual, most) = SIZE_MB;
        let is_within = (budget / 2..=budget).contains(&self.faults_per_s);
        // To the middle of what is allowed.
        let wanted_mb = self.size_mb * budget * 3 / 4 / self.faults_per_s.max(1);
        self.size_mb = if self.faults_per_s < FAULTS_MIN {
            usual.clamp(self.size_mb / 2, self.size_mb * 2)
        } else if is_within {
            self.size_mb
        } else {
            wanted_mb.min(self.size_mb * GROWTH).clamp(least, most)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After so many seconds with so many faults each, of which so many led to promotions.
    fn after(marking: &mut Marking, seconds: u64, faults: u64, promoted: u64) -> u64 {
        for _ in 0..seconds {
            let now_ms = marking.judged_ms + 1000;
            let mut all = marking.faults;
            all.0[0] += faults;
            marking.note(now_ms, all, marking.promoted + promoted);
        }
        marking.report().size_mb
    }

    fn soon(faults: u64) -> FaultTimes {
        let mut times = FaultTimes::default();
        times.0[0] = faults;
        times
    }

    #[test]
    fn pages_in_use_again_are_looked_at_whatever_came_of_it_before() {
        let mut marking = Marking::new(4);
        after(&mut marking, 9, 10_000, 0);
        assert!(!marking.report().pays);
        let mut later = |faults: u64| {
            let mut all = marking.faults;
            all.0[0] += 1000;
            *all.0.last_mut().unwrap() += faults;
            marking.note(marking.judged_ms + 1000, all, marking.promoted);
            marking.report().pays
        };
        assert!(!later(1000), "few");
        assert!(later(10_000), "many");
        // As ever: somebody goes through memory again and again.
        assert_eq!([10_000; 3].map(&mut later), [true, false, false]);
        assert!(later(100_000), "many more");
    }

    #[test]
    fn marks_are_frequent_as_long_as_they_pay() {
        let mut marking = Marking::new(4);
        assert_eq!(after(&mut marking, 2, 0, 0), 16, "marks stay");
        assert_eq!(after(&mut marking, 1, 8000, 1000), 24);
        assert_eq!(after(&mut marking, 1, 1000, 1000), 96, "not too fast");
        assert_eq!(after(&mut marking, 9, 8000, 1000), 256);
        assert_eq!(after(&mut marking, 1, 16_384, 16_384), 256);
        assert_eq!(after(&mut marking, 1, 32_768, 32_768), 96, "too many");
        assert_eq!(after(&mut marking, 1, 10_000, 1249), 96, "it may yet pay");
        assert_eq!(
            after(&mut marking, 1, 1024, 0),
            96,
            "it does not, and costs little"
        );
        assert_eq!(after(&mut marking, 1, 2048, 0), 36);
        assert_eq!(after(&mut marking, 9, 10_000, 0), 4, "somebody must look");
        assert_eq!(after(&mut marking, 2, 384, 0), 16);
        assert_eq!(after(&mut marking, 9, 64, 0), 16);
        assert_eq!(after(&mut marking, 1, 64, 64), 16);
    }

    #[test]
    fn an_idle_machine_is_looked_at_rarely_and_its_faults_are_counted_by_the_second() {
        let mut marking = Marking::new(4);
        assert!(marking.is_due(0));
        marking.note(1000, soon(0), 0);
        assert!(!marking.is_due(1999));
        assert!(marking.is_due(2000));
        // As many as the budget allows in four seconds.
        marking.note(5000, soon(4 * 16_384), 4 * 16_384);
        assert_eq!(marking.report().size_mb, 16);
        assert!(marking.is_due(5500));
        // For three seconds in vain.
        marking.note(8000, soon(7 * 16_384), 4 * 16_384);
        let said = marking.report().sentence();
        assert!(said.starts_with("4 MB of a process"), "{said}");
        assert!(
            said.ends_with("1024 at most, for few lead to promotions"),
            "{said}"
        );
    }

    #[test]
    fn counters_that_start_anew_do_no_harm() {
        let mut marking = Marking::new(4);
        marking.note(1000, soon(8000), 8000);
        marking.note(2000, soon(0), 0);
        assert_eq!(marking.report().size_mb, 16);
        marking.note(2000, soon(u64::MAX / 1000), u64::MAX / 8);
    }
}
