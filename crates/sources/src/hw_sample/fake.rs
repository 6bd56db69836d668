//! The source on a modelled machine: every so many misses of a CPU one is sampled into its ring,
//! which is emptied by the clock, and the period follows what that costs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pghot_hotness::Table;

use super::period::Limits;
use super::{ADAPT_EVERY, DESCRIPTOR, DRAIN_EVERY};
use crate::bulk::BulkReporter;
use crate::fake::{AccessedBits, Event, Fake, FolioAccess};
use crate::{Config, Descriptor, SourceStats};

/// In misses, which are far fewer than what the real events count: no hardware is modelled exactly.
const LIMITS: Limits = Limits {
    start: 16,
    min: 1,
    max: 1 << 30,
    step: 1,
};
/// Assumed, not measured: CPU time of the thread for a sample, and the samples that fit into a
/// ring.
const SAMPLE_COST: Duration = Duration::from_nanos(200);
const RING_SAMPLES: u64 = 2048;

/// The entry of the source's [`DESCRIPTOR`].
pub(super) fn fake(table: &Arc<Table>, config: &Config) -> Box<dyn Fake> {
    Box::new(Sampler {
        reporter: BulkReporter::new(table, &config.rule),
        cpus: BTreeMap::new(),
        period: LIMITS.start,
        taken: 0,
        lost: 0,
        adapted: None,
    })
}

struct Sampler {
    reporter: Arc<BulkReporter>,
    cpus: BTreeMap<u32, Cpu>,
    period: u64,
    /// Samples since the period was looked at, and those that found their ring full.
    taken: u32,
    lost: u64,
    adapted: Option<Duration>,
}

/// One CPU's counter and ring.
#[derive(Default)]
struct Cpu {
    misses: u64,
    in_ring: u64,
}

impl Fake for Sampler {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn configure(&mut self, config: &Config) {
        self.reporter.set_rule(&config.rule);
    }

    fn event(&mut self, event: Event, access: &FolioAccess, now: Duration) {
        let Event::Misses(misses) = event else {
            return;
        };
        let cpu = self.cpus.entry(access.cpu).or_default();
        cpu.misses += misses;
        if cpu.misses < self.period {
            return;
        }
        cpu.misses = 0;
        if cpu.in_ring == RING_SAMPLES {
            self.lost += 1;
            return;
        }
        cpu.in_ring += 1;
        self.taken += 1;
        // Told when the ring is emptied in truth, at most 50 ms later: below the records'
        // resolution.
        self.reporter
            .report_folio(access.head, access.nid, access.pages, now);
    }

    fn miss_period(&self) -> u64 {
        self.period
    }

    fn step(&mut self, _bits: &mut dyn AccessedBits, now: Duration) -> Option<Duration> {
        for cpu in self.cpus.values_mut() {
            cpu.in_ring = 0;
        }
        let elapsed = now - *self.adapted.get_or_insert(now);
        if elapsed >= ADAPT_EVERY {
            let busy = SAMPLE_COST * self.taken;
            self.period = LIMITS.next(self.period, busy, elapsed, self.lost);
            (self.taken, self.lost, self.adapted) = (0, 0, Some(now));
        }
        Some(DRAIN_EVERY)
    }

    fn stats(&self) -> SourceStats {
        self.reporter.stats()
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use pghot_engine::Settings;
    use pghot_hotness::{Format, PfnRange, SECTION_PAGES, Span};

    use super::*;
    use crate::fake::BitOwner;

    struct NoBits;

    impl AccessedBits for NoBits {
        fn owners(&self) -> Vec<(BitOwner, u64)> {
            Vec::new()
        }
        fn clear(&mut self, _: BitOwner, _: Range<u64>) {}
        fn young(&self, _: BitOwner, _: Range<u64>, _: &mut dyn FnMut(&FolioAccess)) {}
    }

    #[test]
    fn a_flood_of_misses_fills_rings_and_lengthens_the_period() {
        let range = PfnRange {
            start: SECTION_PAGES,
            end: 2 * SECTION_PAGES,
            nid: 2,
        };
        let span = Span::new(&[range]).unwrap();
        let table = Arc::new(Table::in_memory(Format::Default, span));
        let settings = Settings::new(Format::Default);
        let config = Config::new(&settings, settings.rule().unwrap(), []);
        let mut fake = fake(&table, &config);
        let access = FolioAccess {
            head: SECTION_PAGES,
            pages: 1,
            cpu: 0,
            nid: 0,
            is_hinted: true,
        };
        let mut recorded = Vec::new();
        for round in 0..40u64 {
            let now = Duration::from_millis(100_000 + 50 * round);
            let before = fake.stats().recorded;
            for _ in 0..100_000 {
                fake.event(Event::Misses(1), &access, now);
            }
            recorded.push(fake.stats().recorded - before);
            assert_eq!(fake.step(&mut NoBits, now), Some(DRAIN_EVERY));
        }
        assert_eq!(recorded[0], RING_SAMPLES, "no more than the ring holds");
        let last = recorded[recorded.len() - 1];
        assert!((1..RING_SAMPLES).contains(&last), "{recorded:?}");
    }
}
