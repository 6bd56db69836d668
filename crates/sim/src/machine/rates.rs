//! How often each page is accessed, on average: what the statistical mode knows instead of single
//! accesses.
//!
//! A process is in one phase at a time. A phase divides its pages into parts, in each of which all
//! pages are alike. Of the phases that are over, their average rates are remembered.

use std::collections::VecDeque;
use std::ops::Range;

use pghot_workloads::plan::{Pattern, Weighted};

use super::memory::{HUGE_PAGES, Memory, Page};

/// Phases that are remembered. Who looks further back sees nothing there; scanners and reclaim come
/// round more often.
const REMEMBERED: usize = 64;

/// The most parts of a pattern: all are looked at in each slice of time.
const PARTS_MAX: usize = 4096;

/// Pages that are alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Counted from the first page of the process.
    pub pages: Range<u32>,
    /// Of the process's accesses, the share that goes here.
    pub share: f64,
}

impl Part {
    /// The parts of a pattern: ranges that do not overlap, the whole share.
    pub fn of(pattern: &Pattern) -> Vec<Part> {
        let one = |pages: &Range<u32>| {
            vec![Part {
                pages: pages.clone(),
                share: 1.0,
            }]
        };
        match pattern {
            // In the long run a stream accesses all pages alike.
            Pattern::Random(pages) | Pattern::Stream(pages) => one(pages),
            Pattern::Repeated { pages, .. } => one(pages),
            Pattern::Skewed {
                hot,
                hot_percent,
                all,
            } => skewed(hot, f64::from(*hot_percent) / 100.0, all),
            Pattern::Weighted(weighted) => coarse(weighted),
            Pattern::Beside {
                hot,
                hot_percent,
                scanned,
            } => {
                let hot_share = f64::from(*hot_percent);
                let parts = vec![
                    (hot.clone(), hot_share),
                    (scanned.clone(), 100.0 - hot_share),
                ];
                coarse(&Weighted::new(parts))
            }
            Pattern::Sparse { pages, stride } => {
                let pages = pages.clone().step_by(*stride as usize);
                coarse(&Weighted::new(
                    pages.map(|page| (page..page + 1, 1.0)).collect(),
                ))
            }
        }
    }
}

/// Parts of a recorded or skewed distribution, of which there may be millions: neighbours are taken
/// together until no more than [`PARTS_MAX`] are left. What lies between them has no accesses.
fn coarse(weighted: &Weighted) -> Vec<Part> {
    let shares: Vec<_> = weighted.shares().collect();
    let together = shares.len().div_ceil(PARTS_MAX).max(1);
    let part = |neighbours: &[(&Range<u32>, f64)]| Part {
        pages: neighbours[0].0.start..neighbours[neighbours.len() - 1].0.end,
        share: neighbours.iter().map(|(_, share)| share).sum(),
    };
    shares.chunks(together).map(part).collect()
}

/// The hot pages, and what lies before and behind them.
fn skewed(hot: &Range<u32>, hot_share: f64, all: &Range<u32>) -> Vec<Part> {
    let length = |range: &Range<u32>| f64::from(range.end.saturating_sub(range.start));
    let anywhere = |range: &Range<u32>| (1.0 - hot_share) * length(range) / length(all);
    let cut = |start: u32, end: u32| start.max(all.start)..end.min(all.end);
    let rest = [cut(all.start, hot.start), cut(hot.end, all.end)];
    let hot_inside = cut(hot.start, hot.end);
    let mut parts = vec![Part {
        pages: hot.clone(),
        share: hot_share + anywhere(&hot_inside),
    }];
    parts.extend(
        rest.into_iter()
            .filter(|pages| !pages.is_empty())
            .map(|pages| {
                let share = anywhere(&pages);
                Part { pages, share }
            }),
    );
    parts.sort_by_key(|part| part.pages.start);
    parts
}

/// A phase of one process.
#[derive(Debug, Clone)]
struct PhaseRates {
    parts: Vec<Part>,
    start_ns: u64,
    /// None while it lasts.
    end_ns: Option<u64>,
    accesses: f64,
}

impl PhaseRates {
    /// Accesses of one page per ns, at the average of this phase, and the pages of which this is
    /// true.
    fn rate(&self, page: u32, now_ns: u64) -> (f64, Range<u32>) {
        let lasted = self.end_ns.unwrap_or(now_ns).saturating_sub(self.start_ns);
        let at = self.parts.partition_point(|part| part.pages.end <= page);
        let behind = at
            .checked_sub(1)
            .map_or(0, |last| self.parts[last].pages.end);
        match self.parts.get(at) {
            Some(part) if part.pages.start <= page => {
                let pages = f64::from(part.pages.len() as u32);
                let rate = match lasted {
                    0 => 0.0,
                    _ => part.share * self.accesses / pages / lasted as f64,
                };
                (rate, part.pages.clone())
            }
            Some(next) => (0.0, behind..next.pages.start),
            None => (0.0, behind..u32::MAX),
        }
    }
}

/// The phases of all processes.
#[derive(Debug, Default)]
pub struct Rates {
    phases: Vec<VecDeque<PhaseRates>>,
    /// Grows whenever something changes, so that who remembers an answer knows that it is an old
    /// one.
    version: u64,
}

/// Folios that can be expected to have had equally many accesses.
#[derive(Debug, Clone, PartialEq)]
pub struct Alike {
    /// Those whose first page is here.
    pub heads: Range<Page>,
    /// Accesses of each.
    pub expected: f64,
}

impl Rates {
    /// Of so many processes, none of which has begun.
    pub fn new(processes: usize) -> Rates {
        Rates {
            phases: vec![VecDeque::new(); processes],
            version: 0,
        }
    }

    /// The same as long as nothing changes.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// A process begins a phase, and ends the one before it.
    pub fn begin(&mut self, process: usize, parts: Vec<Part>, now_ns: u64) {
        self.end(process, now_ns);
        let phases = &mut self.phases[process];
        if phases.len() == REMEMBERED {
            phases.pop_front();
        }
        phases.push_back(PhaseRates {
            parts,
            start_ns: now_ns,
            end_ns: None,
            accesses: 0.0,
        });
    }

    /// A process ends its phase.
    pub fn end(&mut self, process: usize, now_ns: u64) {
        self.version += 1;
        if let Some(phase) = self.phases[process].back_mut() {
            phase.end_ns.get_or_insert(now_ns);
        }
    }

    /// A process made so many accesses more.
    pub fn add(&mut self, process: usize, accesses: f64) {
        self.version += 1;
        if let Some(phase) = self.phases[process].back_mut() {
            phase.accesses += accesses;
        }
    }

    /// How many accesses a folio can be expected to have had from one moment to another, and which
    /// others around it can be expected to have had as many.
    pub fn expected(&self, memory: &Memory, head: Page, since_ns: u64, now_ns: u64) -> Alike {
        let Some(region) = memory.region_of(head) else {
            return Alike {
                heads: head..head + 1,
                expected: 0.0,
            };
        };
        let first = region.pages.start;
        let mut alike = 0..region.pages.len() as u32;
        let mut expected = 0.0;
        for phase in self.phases[region.process].iter().rev() {
            let end = phase.end_ns.unwrap_or(now_ns);
            if end <= since_ns {
                break;
            }
            let overlap = end.min(now_ns).saturating_sub(phase.start_ns.max(since_ns));
            let (rate, pages) = phase.rate(head - first, now_ns);
            expected += rate * overlap as f64;
            alike = alike.start.max(pages.start)..alike.end.min(pages.end);
        }
        Alike {
            heads: first + alike.start..first + alike.end,
            // A huge page is accessed whichever of its pages is.
            expected: expected * f64::from(region.folio_pages.min(HUGE_PAGES)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::memory::Region;

    #[test]
    fn a_skewed_pattern_falls_into_parts() {
        let pattern = Pattern::Skewed {
            hot: 100..200,
            hot_percent: 90,
            all: 0..1000,
        };
        let parts = Part::of(&pattern);
        let ranges: Vec<_> = parts.iter().map(|part| part.pages.clone()).collect();
        assert_eq!(ranges, [0..100, 100..200, 200..1000]);
        let shares: Vec<_> = parts
            .iter()
            .map(|part| (part.share * 1000.0).round())
            .collect();
        assert_eq!(shares, [10.0, 910.0, 80.0]);
    }

    #[test]
    fn many_parts_become_few_that_weigh_as_much() {
        let many = (0..10_000).map(|i| (3 * i..3 * i + 2, f64::from(i % 7 + 1)));
        let pattern = Pattern::Weighted(std::sync::Arc::new(Weighted::new(many.collect())));
        let parts = Part::of(&pattern);
        assert!(parts.len() <= PARTS_MAX, "{}", parts.len());
        assert!(
            parts
                .windows(2)
                .all(|pair| pair[0].pages.end < pair[1].pages.start)
        );
        let all: f64 = parts.iter().map(|part| part.share).sum();
        assert!((all - 1.0).abs() < 1e-9, "{all}");
    }

    #[test]
    fn what_is_expected_is_the_sum_over_phases() {
        let region = Region {
            process: 0,
            pid: 1,
            pages: 0..1000,
            folio_pages: 1,
            home: 1,
            backing: crate::machine::memory::Backing::Anon,
        };
        let memory = Memory::new(vec![region], &[1]);
        let mut rates = Rates::new(1);
        rates.begin(0, Part::of(&Pattern::Random(0..100)), 0);
        rates.add(0, 1000.0);
        rates.begin(0, Part::of(&Pattern::Random(50..60)), 1000);
        rates.add(0, 50.0);
        let alike = |page, since| rates.expected(&memory, page, since, 1500);
        let expected = |page, since| alike(page, since).expected;
        assert!((expected(10, 0) - 10.0).abs() < 1e-9);
        assert!((expected(55, 0) - 15.0).abs() < 1e-9, "both phases");
        assert!((expected(55, 500) - 10.0).abs() < 1e-9, "half of the first");
        assert!((expected(55, 1250) - 2.5).abs() < 1e-9);
        assert_eq!(expected(500, 0), 0.0);
        let runs = [(10, 0..50), (55, 50..60), (99, 60..100), (500, 100..1000)];
        for (page, heads) in runs {
            assert_eq!(alike(page, 0).heads, heads);
        }
        assert_eq!(alike(10, 1250).heads, 0..50, "the first phase is over");
        assert_eq!(alike(99, 1250).heads, 60..1000);
    }
}
