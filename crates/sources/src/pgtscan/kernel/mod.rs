//! The source on a kernel: the thread that clears and reads accessed bits, process by process.

mod counters;
mod process;
mod processes;
mod scanner;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use pghot_linux::bpf::has_function;
use pghot_linux::{SysRoot, probe};

use super::DESCRIPTOR;
use crate::Config;
use crate::bulk::BulkReporter;
use crate::kernel::page_tables::clear::ClearCost;
use crate::kernel::page_tables::procs::Procs;
use crate::kernel::page_tables::walk::{self, Walker};
use crate::kernel::worker::{Own, Worker, WorkerSource};
use crate::kernel::{Availability, Error, OnKernel, Source, SourceCost, Start};
use counters::Counters;
use scanner::Scanner;

/// The entry's half that needs a kernel.
pub(super) const ON_KERNEL: OnKernel = OnKernel {
    check,
    start,
    object: Some(walk::OBJECT),
};

/// What it needs of the kernel, by `doctor`'s names.
const NEEDS: &[&str] = &["page_size", "btf", "lockdown", "cap_syslog"];

/// The kernel's function for programs that the walk begins with.
const LOOK_UP: &str = "bpf_task_from_pid";

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
    if has_function(root, LOOK_UP) == Some(false) {
        return Availability::Unavailable(format!(
            "this kernel has no {LOOK_UP}, by which a program finds a process"
        ));
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
    let config = Arc::new(RwLock::new(start.config.clone()));
    let own = start.keeper.open_clear_refs(std::process::id() as i32);
    let scanner = Scanner {
        procs: Procs::new(start.root, start.topology),
        walker: Walker::load(start.table.span())?,
        reporter: Arc::clone(&reporter),
        counters: Arc::clone(&counters),
        config: Arc::clone(&config),
        clear_cost: ClearCost::measure(own.map_err(std::io::Error::other)),
        keeper: Arc::clone(start.keeper),
        turns: start.turns.clone(),
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
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config.clone();
    }

    fn cost(&self) -> SourceCost {
        self.counters.cost()
    }

    fn details(&self) -> BTreeMap<String, u64> {
        self.counters.details()
    }
}
