//! The source on a modelled machine: agings by [`Schedule`], each of which reads and clears the
//! bits of a lruvec.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pghot_engine::lruvec::{Key, Listed};
use pghot_hotness::{Pfn, Table};

use super::DESCRIPTOR;
use super::schedule::{Pass, Schedule};
use crate::bulk::BulkReporter;
use crate::fake::{AccessedBits, BitOwner, Fake, report_young};
use crate::young::Young;
use crate::{Config, Descriptor, SourceStats};

/// The entry of the source's [`DESCRIPTOR`].
pub(super) fn fake(table: &Arc<Table>, config: &Config) -> Box<dyn Fake> {
    Box::new(Ager {
        table: Arc::clone(table),
        reporter: BulkReporter::new(table, &config.rule),
        config: config.clone(),
        schedule: None,
    })
}

struct Ager {
    table: Arc<Table>,
    reporter: Arc<BulkReporter>,
    config: Config,
    /// Made at the first step, which tells the time.
    schedule: Option<Schedule>,
}

impl Ager {
    /// `is_reported_since()` of `records.bpf.h`.
    fn is_reported_since(&self, head: Pfn, since: Duration, now: Duration) -> bool {
        let unit = u64::from(self.config.rule.format().unit_ms());
        let units = |time: Duration| time.as_millis() as u64 / unit;
        let record = self.table.get(head).filter(|record| !record.is_empty());
        record.is_some_and(|record| {
            let age = u64::from(record.age_ms(now.as_millis() as u64)) / unit;
            age <= units(now) - units(since)
        })
    }

    fn pass(&self, pass: Pass, pages: u64, bits: &mut dyn AccessedBits, now: Duration) -> Young {
        let (memcg_id, nid) = (pass.key.memcg_id, pass.key.nid);
        let owner = BitOwner::Lruvec { memcg_id, nid };
        let mut seen = Young::default();
        if let Some(previous) = pass.previous {
            let leave_hinted = self.config.leave_hinted;
            let of = (owner, 0..pages);
            seen = report_young(&self.reporter, leave_hinted, bits, of, now, |access| {
                !self.is_reported_since(access.head, previous, now)
            });
        }
        bits.clear(owner, 0..pages);
        seen
    }
}

impl Fake for Ager {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn configure(&mut self, config: &Config) {
        self.reporter.set_rule(&config.rule);
        self.config = config.clone();
    }

    fn step(&mut self, bits: &mut dyn AccessedBits, now: Duration) -> Option<Duration> {
        let rule = self.config.rule;
        let mut schedule = self
            .schedule
            .take()
            .unwrap_or_else(|| Schedule::new(&rule, now));
        schedule.set_rule(&rule);
        let owners = bits.owners().into_iter();
        let present = owners.filter_map(|(owner, pages)| match owner {
            BitOwner::Lruvec { memcg_id, nid } => {
                // Its memcgs are never removed, so nobody compares generations.
                Some((Key { memcg_id, nid }, Listed { max_seq: 0, pages }))
            }
            BitOwner::Process(_) => None,
        });
        let present: BTreeMap<Key, Listed> = present.collect();
        schedule.update(&present, now);
        while let Some(pass) = schedule.next(now) {
            let pages = present.get(&pass.key).map_or(0, |l| l.pages);
            let spent = bits.spent();
            let seen = self.pass(pass, pages, bits, now);
            schedule.done(pass, now, bits.spent() - spent, seen);
        }
        let wait = schedule.wait(now);
        self.schedule = Some(schedule);
        Some(wait)
    }

    fn stats(&self) -> SourceStats {
        self.reporter.stats()
    }
}
