//! Whether reads of page cache are watched.
//!
//! What a system call reads leaves no trace in page tables. To see it, each read of the machine
//! passes a program, in whatever tier its page is, and pays for that. What it brings is that hot
//! page cache goes up. Its laws:
//!
//! - *Only where there is something to see*: page cache in the lower tier, [`CACHE_PAGES_MIN`] at
//!   least.
//! - *Only into free memory.* Two reads within the window make a page ready. Many more would have
//!   to come to pay for a page that goes down for it, and for the reads that are watched meanwhile;
//!   records do not count so far.
//! - *As many reads as pay*: [`READS_PER_PROMOTION`] for each page that was found so and went up,
//!   and [`READS_FREE_PER_S`] a second, to see whether that has changed.
//! - *What came in vain is paid off first*: after [`TRIAL_READS`] that nothing pays for it rests,
//!   until as many would have been free. A hot set that is up does not pay any more.

use crate::marking::lately;

/// Less page cache in the lower tier than 1 MiB is not worth a trial, in pages.
const CACHE_PAGES_MIN: u64 = 256;

/// Room in the top tier, as one part in so many of it: to begin with, and to go on.
const ROOM_ONE_IN: (u64, u64) = (32, 128);

/// At 50 ns each they take 13 µs, which a page saves by 85 reads at 150 ns.
const READS_PER_PROMOTION: f64 = 256.0;

/// So many a second take a third of a percent of one CPU.
const READS_FREE_PER_S: f64 = 65_536.0;

/// What is free in four seconds: a page becomes ready when it is read a second time within the
/// window, and then has to go up.
const TRIAL_READS: f64 = 4.0 * READS_FREE_PER_S;

/// The longest rest, in s, whatever came before.
const REST_MAX_S: f64 = 64.0;

/// What is known of reads since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reads {
    /// Those that were watched.
    pub watched: u64,
    /// Pages of page cache that nobody maps which went up.
    pub promoted_pages: u64,
    /// Pages of page cache in the lower tier now, whoever reads them.
    pub cache_pages: u64,
    /// Free pages of the top tier above its watermarks now, and all of its pages.
    pub room_pages: u64,
    /// See [`Reads::room_pages`].
    pub top_tier_pages: u64,
}

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Watching {
    is_on: bool,
    /// Reads that are paid for, less those that came; less than 0 while it rests.
    credit: f64,
    promoted_per_s: f64,
    noted_ms: u64,
    last: Reads,
}

impl Default for Watching {
    fn default() -> Self {
        Watching {
            is_on: false,
            credit: TRIAL_READS,
            promoted_per_s: 0.0,
            noted_ms: 0,
            last: Reads::default(),
        }
    }
}

impl Watching {
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Takes note of what has come of it.
    pub(super) fn note(&mut self, now_ms: u64, reads: Reads) {
        let spent_ms = now_ms.saturating_sub(self.noted_ms).max(1);
        let spent_s = spent_ms as f64 / 1000.0;
        let watched = reads.watched.saturating_sub(self.last.watched) as f64;
        let promoted = reads
            .promoted_pages
            .saturating_sub(self.last.promoted_pages) as f64;
        self.promoted_per_s = lately(self.promoted_per_s, spent_ms).max(promoted / spent_s);
        (self.noted_ms, self.last) = (now_ms, reads);
        let paid_per_s = READS_FREE_PER_S.max(self.promoted_per_s * READS_PER_PROMOTION);
        // Until it is on again, the trial is paid for as well.
        let owed_most = READS_FREE_PER_S * REST_MAX_S - TRIAL_READS;
        let credit = self.credit + paid_per_s * spent_s - watched;
        self.credit = credit.clamp(-owed_most, TRIAL_READS);
        let (begins, goes_on) = ROOM_ONE_IN;
        let (least_credit, least_pages, one_in) = match self.is_on {
            true => (0.0, CACHE_PAGES_MIN / 2, goes_on),
            false => (TRIAL_READS, CACHE_PAGES_MIN, begins),
        };
        self.is_on = self.credit >= least_credit
            && reads.cache_pages >= least_pages
            && reads.room_pages > reads.top_tier_pages / one_in;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHE: u64 = 1 << 20;

    /// Seconds in which reads were watched, second by second; each of `reads` a second is seen
    /// while they are, and `promoted` pages go up for them.
    fn watched(
        watching: &mut Watching,
        seconds: u64,
        cache_pages: u64,
        (reads, promoted): (u64, u64),
    ) -> Vec<bool> {
        let mut known = Reads {
            cache_pages,
            room_pages: 1 << 16,
            top_tier_pages: 1 << 20,
            ..watching.last
        };
        let second = |_| {
            if watching.is_on() {
                known.watched += reads;
                known.promoted_pages += promoted;
            }
            watching.note(watching.noted_ms + 1000, known);
            watching.is_on()
        };
        (0..seconds).map(second).collect()
    }

    fn count(seconds: &[bool]) -> u64 {
        seconds.iter().filter(|is_on| **is_on).count() as u64
    }

    #[test]
    fn without_page_cache_below_nothing_is_watched() {
        let mut watching = Watching::default();
        let on = watched(&mut watching, 100, CACHE_PAGES_MIN - 1, (1_000_000, 0));
        assert_eq!(count(&on), 0);
        let on = watched(&mut watching, 1, CACHE_PAGES_MIN, (1_000_000, 0));
        assert_eq!(on, [true], "at once");
        let on = watched(&mut watching, 2, CACHE_PAGES_MIN / 2 - 1, (1000, 0));
        assert_eq!(on, [false; 2]);
    }

    #[test]
    fn what_does_not_pay_takes_as_many_reads_as_are_free() {
        for reads_per_s in [100_000, 1_000_000, 3_000_000] {
            let mut watching = Watching::default();
            let on = watched(&mut watching, 1000, CACHE, (reads_per_s, 10));
            assert!(on[0]);
            let free = READS_FREE_PER_S as u64 * 1000 + TRIAL_READS as u64;
            let seen = count(&on) * reads_per_s;
            assert!((free / 2..=free + reads_per_s).contains(&seen), "{seen}");
        }
    }

    #[test]
    fn it_is_tried_now_and_then_whatever_it_costs() {
        let mut watching = Watching::default();
        let on = watched(&mut watching, 650, CACHE, (100_000_000, 0));
        assert!((10..=11).contains(&count(&on)), "{}", count(&on));
    }

    #[test]
    fn it_goes_on_while_pages_go_up() {
        let mut watching = Watching::default();
        let on = watched(&mut watching, 60, CACHE, (1_000_000, 5000));
        assert_eq!(count(&on), 60);
        // The hot set is up.
        let on = watched(&mut watching, 60, CACHE, (1_000_000, 0));
        assert!(on.iter().take(5).any(|is_on| !is_on), "{on:?}");
        assert!((3..=12).contains(&count(&on)), "{on:?}");
    }

    #[test]
    fn a_full_top_tier_has_no_use_for_it() {
        let mut watching = Watching::default();
        let mut is_on = |now_ms, room_pages| {
            let known = Reads {
                cache_pages: CACHE,
                room_pages,
                top_tier_pages: 1 << 20,
                ..Reads::default()
            };
            watching.note(now_ms, known);
            watching.is_on()
        };
        assert!(!is_on(1000, 1 << 15), "one part in 32");
        assert!(is_on(2000, (1 << 15) + 1));
        assert!(is_on(3000, (1 << 13) + 1));
        assert!(!is_on(4000, 1 << 13), "one part in 128");
        assert!(!is_on(5000, (1 << 13) + 1));
    }

    #[test]
    fn few_reads_are_free() {
        let mut watching = Watching::default();
        let on = watched(&mut watching, 1000, CACHE, (65_536, 0));
        assert_eq!(count(&on), 1000);
    }
}
