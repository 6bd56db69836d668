//! Hint faults of a model.

use std::sync::Arc;
use std::time::Duration;

use pghot_hotness::Table;

use super::DESCRIPTOR;
use super::bursts::Bursts;
use crate::bulk::BulkReporter;
use crate::fake::{Event, Fake, FolioAccess};
use crate::{Config, Descriptor, SourceStats};

struct HintFaults {
    config: Config,
    reporter: Arc<BulkReporter>,
    bursts: Bursts,
}

pub(super) fn fake(table: &Arc<Table>, config: &Config) -> Box<dyn Fake> {
    Box::new(HintFaults {
        config: config.clone(),
        reporter: BulkReporter::new(table, &config.rule),
        bursts: Bursts::new(),
    })
}

impl Fake for HintFaults {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn configure(&mut self, config: &Config) {
        self.reporter.set_rule(&config.rule);
        self.config = config.clone();
    }

    /// A quick fault fills its record. Pages of the model lie as in their process.
    fn event(&mut self, event: Event, access: &FolioAccess, now: Duration) {
        let Event::HintFault(since_mark) = event else {
            return;
        };
        let quick = self.config.quick_fault;
        let is_soon = since_mark < Duration::from_millis(quick.within_ms.into());
        let now_ms = now.as_millis() as u64;
        let is_quick = is_soon || quick.in_bursts && self.bursts.note(access.head, now_ms);
        let rule = match is_quick {
            true => self.config.rule.at_one_look(),
            false => self.config.rule,
        };
        self.reporter
            .report_folio_by(&rule, access.head, access.nid, access.pages, now);
    }

    fn stats(&self) -> SourceStats {
        self.reporter.stats()
    }
}
