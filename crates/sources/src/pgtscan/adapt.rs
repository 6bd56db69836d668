//! How often a process is scanned and how much of it at a time, decided by what the scans find.
//! Pure: times come in as arguments.
//!
//! The rules are those of the kernel proposal's kscand, with four differences, each of which says
//! why below.

use std::time::Duration;

use pghot_hotness::Rule;

use crate::young::Young;

/// kscand's bounds and start values.
const PERIOD_MIN_MS: u64 = 600;
const PERIOD_MAX_MS: u64 = 5000;
const PERIOD_START_MS: u64 = 2000;
const SIZE_MIN_BYTES: u64 = 256 << 20;
const SIZE_START_BYTES: u64 = 1 << 30;
pub(super) const SIZE_MAX_BYTES: u64 = 4 << 30;

/// Fewer young pages than this are noise: 1 MiB (kscand).
const USEFUL_MIN_PAGES: u64 = 256;

/// Less memory in the lower tier is not worth that all accessed bits of a process are cleared once
/// a second, while next to nothing of it is in use: 16 MiB, as much as libraries have that hint
/// faults leave out.
const LITTLE_PAGES: u64 = 4096;

/// Whether a piece is worth another scan soon, by what the last one found.
pub(super) fn is_useful(young_pages: u64, lower_pages: u64) -> bool {
    young_pages >= USEFUL_MIN_PAGES || lower_pages >= LITTLE_PAGES
}

/// Between clearing and reading: a page that is touched less often than once in this time is seen
/// by chance only. kscand looks at what was touched since the last scan, a whole period.
const OBSERVE_MAX_MS: u64 = 500;

/// The part of the update rule that decides how far apart scans may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub freq_threshold: u32,
    pub freq_window_ms: u64,
    /// Resolution of the records' times.
    pub unit_ms: u64,
}

impl Window {
    pub fn of(rule: &Rule) -> Window {
        Window {
            freq_threshold: rule.freq_threshold(),
            freq_window_ms: rule.window_ms().into(),
            unit_ms: rule.format().unit_ms().into(),
        }
    }

    /// The largest period at which a page that is young in every scan becomes ready, even if one
    /// scan in between misses it: two periods lie surely inside the window.
    fn period_ms(self) -> u64 {
        self.freq_window_ms.saturating_sub(2 * self.unit_ms).max(1) / 2
    }

    /// Scans of one piece of memory that can make its pages ready, with one to spare.
    pub fn scans(self) -> u32 {
        self.freq_threshold + 1
    }

    /// Whether a piece of a process is scanned once more after so many scans, of which the last
    /// made so many pages ready. What is left of a hot set is worth a second series; but in a
    /// large piece some cold pages become ready by chance in every scan, and who waits for that
    /// to end never sees the others.
    pub fn stays(self, scans: u32, ready_pages: u64) -> bool {
        let most = match ready_pages {
            0 => self.scans(),
            _ => 2 * self.scans(),
        };
        scans < most
    }

    /// Whether accesses that lie so far apart are sure not to count together.
    pub fn is_past(self, gap: Duration) -> bool {
        gap > Duration::from_millis(self.freq_window_ms)
    }
}

/// The pace of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Adapt {
    period_ms: u64,
    size_bytes: u64,
    /// Young pages of the last scans, halved four times at each.
    useful_pages: u64,
}

impl Adapt {
    pub fn new() -> Adapt {
        Adapt {
            period_ms: PERIOD_START_MS,
            size_bytes: SIZE_START_BYTES,
            useful_pages: 0,
        }
    }

    /// From one clearing to the next.
    pub fn period(&self) -> Duration {
        Duration::from_millis(self.period_ms)
    }

    /// From clearing to reading.
    pub fn observe(&self) -> Duration {
        Duration::from_millis(OBSERVE_MAX_MS.min(self.period_ms / 2))
    }

    /// Memory to look at in one scan.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Learns from a scan that came `since_last` after the one before.
    pub fn learn(&mut self, seen: Young, window: Window, since_last: Option<Duration>) {
        let before = if self.useful_pages < USEFUL_MIN_PAGES {
            0
        } else {
            self.useful_pages
        };
        let now = (before >> 4) + seen.young_pages;
        match (before > 0, now >= USEFUL_MIN_PAGES) {
            (false, false) => {
                self.period_ms = self.period_ms * 115 / 100;
                self.size_bytes /= 2;
            }
            (false, true) => {
                self.period_ms /= 8;
                self.size_bytes = SIZE_MAX_BYTES;
            }
            // kscand goes on speeding up while pages are young. But a slow sweep over a large cold
            // memory has young pages in every scan, never the same ones: only what became ready
            // says that scanning pays.
            (true, true) if seen.ready > 0 => {
                self.period_ms = self.period_ms * 85 / 100;
                self.size_bytes *= 2;
            }
            (true, true) => self.period_ms = self.period_ms * 115 / 100,
            // kscand multiplies by 8: one pause of a program would blind it for 5 s.
            (true, false) => self.period_ms *= 2,
        }
        self.useful_pages = now;
        // Too late to count together with the last: less at a time, so that it comes round sooner.
        let longest_ms = window.period_ms();
        if since_last.is_some_and(|gap| gap.as_millis() as u64 > 2 * longest_ms) {
            self.size_bytes /= 2;
        }
        // kscand knows no window. Pages seen further apart than that never become ready, so while
        // there are candidates, be they ever so few, the period must fit.
        let max_ms = if seen.young_pages > 0 {
            PERIOD_MAX_MS.min(longest_ms)
        } else {
            PERIOD_MAX_MS
        };
        let min_ms = PERIOD_MIN_MS.min(longest_ms);
        self.period_ms = self.period_ms.clamp(min_ms, max_ms);
        self.size_bytes = self.size_bytes.clamp(SIZE_MIN_BYTES, SIZE_MAX_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window {
        freq_threshold: 2,
        freq_window_ms: 3000,
        unit_ms: 256,
    };

    fn young(young_pages: u64) -> Young {
        Young {
            young_pages,
            ready: 0,
        }
    }

    fn ready(pages: u64) -> Young {
        Young {
            young_pages: pages,
            ready: pages,
        }
    }

    #[test]
    fn a_piece_that_never_stops_paying_is_left_all_the_same() {
        let scans = |ready_pages: u64| {
            let stays = |scans: &u32| WINDOW.stays(*scans, ready_pages);
            (0..).take_while(stays).count()
        };
        assert_eq!(scans(0), 3, "what it takes to make pages ready, and one");
        assert_eq!(scans(1), 6, "a second series, and no third");
        assert_eq!(scans(1 << 20), 6);
    }

    fn after(looks: &[Young]) -> Adapt {
        let mut adapt = Adapt::new();
        for seen in looks {
            adapt.learn(*seen, WINDOW, None);
        }
        adapt
    }

    #[test]
    fn an_idle_process_is_left_alone_more_and_more() {
        let adapt = after(&[young(0); 30]);
        assert_eq!(adapt.period_ms, PERIOD_MAX_MS);
        assert_eq!(adapt.size_bytes, SIZE_MIN_BYTES);
    }

    #[test]
    fn first_candidates_are_followed_up_at_once() {
        let adapt = after(&[young(0), young(0), young(5000)]);
        assert_eq!(adapt.period_ms, PERIOD_MIN_MS);
        assert_eq!(adapt.size_bytes, SIZE_MAX_BYTES);
    }

    #[test]
    fn a_sweep_over_cold_memory_does_not_speed_it_up() {
        let adapt = after(&[young(5000); 30]);
        assert_eq!(adapt.period_ms, WINDOW.period_ms());
    }

    #[test]
    fn ready_pages_do() {
        let adapt = after(&[young(5000), young(5000), young(5000), ready(5000)]);
        assert!(adapt.period_ms < after(&[young(5000); 4]).period_ms);
        assert_eq!(after(&[ready(5000); 30]).period_ms, PERIOD_MIN_MS);
    }

    #[test]
    fn few_hot_pages_are_seen_twice_within_the_window_too() {
        let adapt = after(&[young(20); 30]);
        assert!(2 * adapt.period_ms <= 3000 - 2 * 256);
    }

    #[test]
    fn a_pause_does_not_blind_it() {
        let adapt = after(&[ready(5000), ready(5000), young(0), young(0)]);
        assert!(adapt.period_ms <= 4 * PERIOD_MIN_MS);
    }

    #[test]
    fn scans_that_come_too_late_get_smaller() {
        let mut adapt = after(&[young(0), ready(5000)]);
        assert_eq!(adapt.size_bytes, SIZE_MAX_BYTES);
        for _ in 0..2 {
            adapt.learn(young(5000), WINDOW, Some(Duration::from_secs(4)));
        }
        assert_eq!(adapt.size_bytes, SIZE_MAX_BYTES / 4);
    }

    #[test]
    fn the_smallest_window_is_honoured() {
        let window = Window {
            freq_window_ms: 1000,
            ..WINDOW
        };
        let mut adapt = Adapt::new();
        adapt.learn(ready(5000), window, None);
        assert!(adapt.period_ms <= 244 && adapt.observe() <= adapt.period());
    }
}
