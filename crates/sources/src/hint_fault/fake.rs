//! Hint faults of a model.

use std::sync::Arc;
use std::time::Duration;

use pghot_hotness::{
    FAULT_CLASSES, FaultBlocks, HintFault, Table, fault_class, page_since_mark_ms,
};

use super::{DESCRIPTOR, counting, quick_faults};
use crate::bulk::BulkReporter;
use crate::fake::{Event, Fake, FolioAccess};
use crate::{Config, Descriptor, SourceStats};

struct HintFaults {
    config: Config,
    reporter: Arc<BulkReporter>,
    blocks: FaultBlocks,
    fault_times: [u64; FAULT_CLASSES],
}

pub(super) fn fake(table: &Arc<Table>, config: &Config) -> Box<dyn Fake> {
    Box::new(HintFaults {
        config: config.clone(),
        reporter: BulkReporter::new(table, &config.rule),
        blocks: FaultBlocks::default(),
        fault_times: [0; FAULT_CLASSES],
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

    /// Pages of the model lie as in their process.
    fn event(&mut self, event: Event, access: &FolioAccess, now: Duration) {
        let Event::HintFault(since_mark) = event else {
            return;
        };
        let order = access.pages.ilog2();
        let since_mark_ms = page_since_mark_ms(since_mark.as_micros() as u64, order);
        let quick = quick_faults(&self.config);
        let now_ms = now.as_millis() as u32;
        let folio = (access.head, order);
        let kind = self.blocks.note(&quick, folio, since_mark_ms, now_ms);
        self.fault_times[fault_class(kind, since_mark_ms)] += 1;
        let rule = match kind {
            HintFault::Left => return,
            HintFault::Counted => counting(&self.config),
            HintFault::Soon | HintFault::InBurst => self.config.rule.at_one_look(),
            HintFault::Early => self.config.rule.ready_at_one_look(),
        };
        self.reporter
            .report_folio_by(&rule, access.head, access.nid, access.pages, now);
    }

    fn stats(&self) -> SourceStats {
        self.reporter.stats()
    }

    fn fault_times(&self) -> [u64; FAULT_CLASSES] {
        self.fault_times
    }
}
