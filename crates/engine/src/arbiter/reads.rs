//! Whether reads of page cache are watched.
//!
//! What a system call reads leaves no trace in page tables. To see it, each read of the machine
//! passes a program, in whatever tier its page is, and pays for that. What it brings is that hot
//! page cache goes up. Its laws:
//!
//! - *Only where there is something to see*: page cache in the lower tier, [`CACHE_PAGES_MIN`] at
//!   least.
//! - *Tried, and kept while it pays*: it goes on while pages go up that were found so, one for
//!   [`READS_PER_PROMOTION`] reads that were watched, or while so few are read that it costs
//!   nothing.
//! - *What does not pay rests*, twice as long each time in a row. A hot set that is up does not pay
//!   any more; a trial now and then finds the next one.

/// Less page cache in the lower tier than 1 MiB is not worth a trial, in pages.
const CACHE_PAGES_MIN: u64 = 256;

/// A watched read takes some 50 ns, and a page that goes up saves as much at each read that comes:
/// these are reads of a second or two of a hot page.
const READS_PER_PROMOTION: f64 = 64.0;

/// So few reads a second cost less than a thousandth of a CPU.
const READS_FREE_PER_S: f64 = 8192.0;

/// How long a trial takes, in ms: a page becomes ready when it is read a second time, and then has
/// to go up.
const TRIAL_MS: u64 = 3000;

/// What was promoted lately counts half after so long, in ms: room may have to be made first.
const HALVED_MS: f64 = 1000.0;

/// Between two trials, in ms: at least, and at most after trials in vain.
const REST_MS: (u64, u64) = (2000, 64_000);

/// What is known of reads since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reads {
    /// Those that were watched.
    pub watched: u64,
    /// Pages of page cache that nobody maps which went up.
    pub promoted_pages: u64,
    /// Pages of page cache in the lower tier now, whoever reads them.
    pub cache_pages: u64,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Watching {
    /// Since when it is watched.
    since_ms: Option<u64>,
    /// Until when not, and how long the rest is.
    until_ms: u64,
    rest_ms: u64,
    noted_ms: u64,
    last: Reads,
    promoted_per_s: f64,
    /// Whether it has paid since it began.
    has_paid: bool,
}

impl Watching {
    pub(super) fn is_on(&self) -> bool {
        self.since_ms.is_some()
    }

    /// Takes note of what has come of it.
    pub(super) fn note(&mut self, now_ms: u64, reads: Reads) {
        let spent_ms = now_ms.saturating_sub(self.noted_ms).max(1) as f64;
        let per_s = |now: u64, before: u64| now.saturating_sub(before) as f64 * 1000.0 / spent_ms;
        let watched_per_s = per_s(reads.watched, self.last.watched);
        let went_per_s = per_s(reads.promoted_pages, self.last.promoted_pages);
        let before = self.promoted_per_s * 0.5_f64.powf(spent_ms / HALVED_MS);
        self.promoted_per_s = before.max(went_per_s);
        (self.noted_ms, self.last) = (now_ms, reads);
        let Some(since_ms) = self.since_ms else {
            if now_ms >= self.until_ms && reads.cache_pages >= CACHE_PAGES_MIN {
                (self.since_ms, self.has_paid) = (Some(now_ms), false);
                self.promoted_per_s = 0.0;
            }
            return;
        };
        let pays = watched_per_s <= self.promoted_per_s * READS_PER_PROMOTION;
        self.has_paid |= pays && went_per_s > 0.0;
        let is_tried = now_ms >= since_ms + TRIAL_MS;
        let is_free = watched_per_s <= READS_FREE_PER_S && reads.cache_pages >= CACHE_PAGES_MIN;
        if is_tried && !pays && !is_free {
            let (least, most) = REST_MS;
            self.rest_ms = match self.has_paid {
                true => least,
                false => (2 * self.rest_ms).clamp(least, most),
            };
            self.until_ms = now_ms + self.rest_ms;
            self.since_ms = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHE: u64 = 1 << 20;

    /// Seconds of which reads were watched, second by second; each of `reads` a second is seen
    /// while they are, and `promoted` pages go up for them.
    fn watched(
        watching: &mut Watching,
        from_s: u64,
        seconds: u64,
        cache_pages: u64,
        (reads, promoted): (u64, u64),
    ) -> Vec<bool> {
        let mut known = Reads {
            cache_pages,
            ..watching.last
        };
        let second = |s| {
            if watching.is_on() {
                known.watched += reads;
                known.promoted_pages += promoted;
            }
            watching.note(s * 1000, known);
            watching.is_on()
        };
        (from_s..from_s + seconds).map(second).collect()
    }

    fn count(seconds: &[bool]) -> usize {
        seconds.iter().filter(|is_on| **is_on).count()
    }

    #[test]
    fn without_page_cache_below_nothing_is_watched() {
        let mut watching = Watching::default();
        let on = watched(&mut watching, 1, 100, CACHE_PAGES_MIN - 1, (1_000_000, 0));
        assert_eq!(count(&on), 0);
        let on = watched(&mut watching, 101, 1, CACHE_PAGES_MIN, (1_000_000, 0));
        assert_eq!(on, [true], "at once");
    }

    #[test]
    fn what_does_not_pay_is_tried_ever_more_rarely() {
        let mut watching = Watching::default();
        let on = watched(&mut watching, 1, 1000, CACHE, (1_000_000, 100));
        assert!(on[0]);
        let (first, last) = (count(&on[..60]), count(&on[400..]));
        assert!((10..=25).contains(&first), "{first} s of the first minute");
        assert!((18..=36).contains(&last), "{last} s of ten minutes");
    }

    #[test]
    fn it_goes_on_while_pages_go_up() {
        let mut watching = Watching::default();
        let on = watched(&mut watching, 1, 60, CACHE, (1_000_000, 20_000));
        assert_eq!(count(&on), 60);
        // The hot set is up.
        let on = watched(&mut watching, 61, 60, CACHE, (1_000_000, 0));
        let until = on.iter().position(|is_on| !is_on);
        assert!(until.is_some_and(|s| s <= 4), "{on:?}");
        assert!(on[until.unwrap()..][..3].contains(&true), "tried soon");
        assert!(count(&on) <= 20, "{on:?}");
    }

    #[test]
    fn few_reads_cost_nothing() {
        let mut watching = Watching::default();
        let on = watched(&mut watching, 1, 100, CACHE, (READS_FREE_PER_S as u64, 0));
        assert_eq!(count(&on), 100);
        // Until there is no page cache any more.
        let on = watched(&mut watching, 101, 10, 0, (100, 0));
        assert_eq!(count(&on), 0);
    }
}
