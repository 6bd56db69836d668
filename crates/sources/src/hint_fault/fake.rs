//! The source on a modelled machine: the model's kernel marks entries and takes the faults.

use std::sync::Arc;
use std::time::Duration;

use pghot_hotness::Table;

use super::DESCRIPTOR;
use crate::bulk::BulkReporter;
use crate::fake::{Access, Event, Fake};
use crate::{Config, Descriptor, SourceStats};

/// The entry of the source's [`DESCRIPTOR`].
pub(super) fn fake(table: &Arc<Table>, config: &Config) -> Box<dyn Fake> {
    Box::new(Faults {
        reporter: BulkReporter::new(table, &config.rule),
        quick_fault: config.quick_fault,
    })
}

struct Faults {
    reporter: Arc<BulkReporter>,
    quick_fault: Duration,
}

impl Fake for Faults {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn configure(&mut self, config: &Config) {
        self.reporter.set_rule(&config.rule);
        self.quick_fault = config.quick_fault;
    }

    fn event(&mut self, event: Event, access: &Access, now: Duration) {
        let Event::HintFault(since_mark) = event else {
            return;
        };
        let times = if since_mark < self.quick_fault { 2 } else { 1 };
        for _ in 0..times {
            self.reporter
                .report_folio(access.head, access.nid, access.pages, now);
        }
    }

    fn stats(&self) -> SourceStats {
        self.reporter.stats()
    }
}
