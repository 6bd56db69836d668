//! When the kernel is to reckon anew how often its scanner visits a process.
//!
//! A thread keeps the period of the scanner's visits with which it was made, a second if it is
//! older than pghot, until it takes a hint fault on a page of the top tier: then the kernel
//! (`task_numa_placement()`) brings the period within the limits of that moment. With tiering, such
//! a fault is one in which the kernel itself has promoted the page, and pghot forbids that.
//!
//! So while hint faults come from threads that are visited seldom, there are *pulses*: for a moment
//! the kernel may promote [`PULSE_MB_PER_S`], and the limits are such that the period becomes
//! [`DELAY_MS`](crate::marking::DELAY_MS), or up to [`PERIOD_MIN_MS`] for a small process. One page
//! is enough for a thread. A process is visited again after the period of the thread that made the
//! last visit, so each thread that is reached helps, and those that are not delay a visit now and
//! then. A pulse ends early when more hint faults come than the budget allows, and each rests
//! longer than the one before: where pulses are of no use, because the top tier has no room, they
//! become rare.

/// How long a pulse lasts, in ms: until the next visit, at the period that it is to end, and so
/// long again for the hint faults that follow. The kernel's rate limit has windows of a second, and
/// one that began before the pulse is used up by candidates that it then refused.
const PULSE_MS: u64 = 2000;

/// What the kernel may promote in a pulse, in MB a second: the least that it can be told.
pub const PULSE_MB_PER_S: u64 = 1;

/// What a visit marks in a pulse, in MB. From the size the kernel reckons the shortest period, of
/// 2560 MB a second: with this one that is [`DELAY_MS`](crate::marking::DELAY_MS), whatever the
/// process.
pub const PULSE_SIZE_MB: u64 = 64;

/// The period that a new program's first thread gets, in ms, divided by the number of visits that
/// marking all its memory takes; other threads get [`DELAY_MS`](crate::marking::DELAY_MS).
pub const PERIOD_MIN_MS: u64 = 100;

/// Fewer hint faults of threads that are visited seldom, between two judgements, tell nothing.
const FAULTS_MIN: u64 = 16;

/// Rest after the first pulse, and at most, in ms; it doubles.
const RESTS_MS: (u64, u64) = (1000, 300_000);

/// After so long without faults of such threads the rests are short again, in ms.
const FORGOTTEN_MS: u64 = 60_000;

/// See the head of this file.
#[derive(Debug, Clone, Default)]
pub struct Pulses {
    /// Faults of threads that are visited seldom, up to now.
    seldom: u64,
    /// When there were last enough of them.
    seen_ms: u64,
    /// When the pulse that is on began.
    since_ms: Option<u64>,
    rests_until_ms: u64,
    rest_ms: u64,
    pulses: u64,
}

impl Pulses {
    /// Whether a pulse is on.
    pub fn is_pulse(&self) -> bool {
        self.since_ms.is_some()
    }

    /// Pulses so far.
    pub fn begun(&self) -> u64 {
        self.pulses
    }

    /// Whether a pulse is to end.
    pub fn is_due(&self, now_ms: u64) -> bool {
        self.since_ms
            .is_some_and(|since_ms| now_ms >= since_ms + PULSE_MS)
    }

    /// Takes note of all hint faults since the start of threads that are visited seldom, and of
    /// whether more hint faults come than the budget allows.
    pub fn note(&mut self, now_ms: u64, seldom: u64, is_over_budget: bool) {
        let came = seldom.saturating_sub(self.seldom);
        self.seldom = seldom;
        if came >= FAULTS_MIN {
            self.seen_ms = now_ms;
        } else if now_ms >= self.seen_ms + FORGOTTEN_MS {
            self.rest_ms = 0;
        }
        if self.is_pulse() {
            if is_over_budget || self.is_due(now_ms) {
                self.since_ms = None;
                self.rest_ms = (2 * self.rest_ms).clamp(RESTS_MS.0, RESTS_MS.1);
                self.rests_until_ms = now_ms + self.rest_ms;
            }
        } else if came >= FAULTS_MIN && now_ms >= self.rests_until_ms && !is_over_budget {
            self.since_ms = Some(now_ms);
            self.pulses += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Judged four times a second, with so many faults each time.
    fn begun(pulses: &mut Pulses, seconds: std::ops::Range<u64>, faults: u64) -> u64 {
        let before = pulses.begun();
        for quarter in seconds.start * 4..seconds.end * 4 {
            pulses.note(quarter * 250, pulses.seldom + faults, false);
        }
        pulses.begun() - before
    }

    #[test]
    fn a_pulse_comes_at_once_and_lasts_two_seconds() {
        let mut pulses = Pulses::default();
        pulses.note(0, 0, false);
        assert!(!pulses.is_pulse(), "nobody is visited seldom");
        pulses.note(250, FAULTS_MIN - 1, false);
        assert!(!pulses.is_pulse(), "few tell nothing");
        pulses.note(500, 2 * FAULTS_MIN, false);
        assert!(pulses.is_pulse());
        pulses.note(2250, 2 * FAULTS_MIN, false);
        assert!(pulses.is_pulse() && !pulses.is_due(2499) && pulses.is_due(2500));
        pulses.note(2500, 2 * FAULTS_MIN, false);
        assert!(!pulses.is_pulse());
    }

    #[test]
    fn many_faults_end_it() {
        let mut pulses = Pulses::default();
        pulses.note(0, 100, true);
        assert!(!pulses.is_pulse(), "there are too many already");
        pulses.note(250, 200, false);
        pulses.note(500, 300, true);
        assert!(!pulses.is_pulse());
    }

    #[test]
    fn pulses_become_rare_where_they_are_of_no_use() {
        let mut pulses = Pulses::default();
        assert!((4..=6).contains(&begun(&mut pulses, 0..60, 100)));
        assert!((1..=4).contains(&begun(&mut pulses, 60..600, 100)));
        assert!((10..=13).contains(&begun(&mut pulses, 600..4200, 100)));
        assert_eq!(begun(&mut pulses, 4200..4300, 0), 0);
        assert_eq!(begun(&mut pulses, 4600..4602, 100), 1);
        assert!(
            begun(&mut pulses, 4602..4610, 100) >= 2,
            "short rests again"
        );
    }

    #[test]
    fn counters_that_start_anew_do_no_harm() {
        let mut pulses = Pulses::default();
        pulses.note(0, 1000, false);
        pulses.note(250, 0, false);
        pulses.note(500, u64::MAX, false);
        assert_eq!(pulses.begun(), 1);
    }
}
