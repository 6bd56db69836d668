//! Source `pgtscan`: accessed bits in the page tables of processes. Clear, wait, read.
//!
//! See README.md in this folder for how it works, what it costs and when it is blind.

mod adapt;
mod counters;
mod fake;
mod process;
mod scanner;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use pghot_linux::{SysRoot, probe};

use crate::bulk::BulkReporter;
use crate::page_tables::clear::ClearCost;
use crate::page_tables::procs::Procs;
use crate::page_tables::walk::Walker;
use crate::worker::{Own, Worker, WorkerSource};
use crate::{Availability, Config, Descriptor, Error, Kind, Source, SourceCost, Start};
use counters::Counters;
use scanner::Scanner;

/// The entry of [`crate::SOURCES`].
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "pgtscan",
    bit: 0x4,
    doc: "Accessed bits in page tables: cleared now and then for one process after another, and \
          read half a second later.",
    kind: Kind::PageTables,
    check,
    start,
    fake: fake::fake,
};

/// What it needs of the kernel, by `doctor`'s names.
const NEEDS: &[&str] = &["page_size", "btf", "lockdown", "cap_syslog"];

struct PageTableScan {
    counters: Arc<Counters>,
    config: Arc<RwLock<Config>>,
}

fn check(root: &SysRoot) -> Availability {
    let needed = probe::FEATURES.iter().filter(|f| NEEDS.contains(&f.id));
    let missing = needed
        .map(|f| (f.ask)(root))
        .find(|a| *a != Availability::Available);
    if let Some(missing) = missing {
        return missing;
    }
    if !root.proc.join("self/clear_refs").exists() {
        return Availability::Unavailable(
            "this kernel has no /proc/PID/clear_refs (CONFIG_PROC_PAGE_MONITOR)".into(),
        );
    }
    Availability::Available
}

fn start(start: &mut Start<'_>) -> Result<Box<dyn Source>, Error> {
    let mut lower = start.topology.lower_tier_nodes();
    let nearest = lower.find_map(|node| start.topology.nearest_top_tier_node(node.nid));
    let reporter = BulkReporter::new(start.table, &start.config.rule);
    let counters: Arc<Counters> = Arc::default();
    let config = Arc::new(RwLock::new(start.config));
    let scanner = Scanner {
        procs: Procs::new(start.root, start.topology),
        walker: Walker::load(start.table.span())?,
        reporter: Arc::clone(&reporter),
        counters: Arc::clone(&counters),
        config: Arc::clone(&config),
        clear_cost: ClearCost::measure(),
        fallback_nid: nearest.unwrap_or(0),
    };
    Ok(Box::new(WorkerSource {
        descriptor: &DESCRIPTOR,
        reporter,
        worker: Worker::spawn(DESCRIPTOR.name, move |pace| scanner.run(pace))?,
        own: PageTableScan { counters, config },
    }))
}

impl Own for PageTableScan {
    fn configure(&mut self, config: &Config) {
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = *config;
    }

    fn cost(&self) -> SourceCost {
        self.counters.cost()
    }

    fn details(&self) -> BTreeMap<String, u64> {
        self.counters.details()
    }
}
