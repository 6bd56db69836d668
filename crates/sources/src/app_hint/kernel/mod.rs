//! The source on a kernel: a socket, and the page tables behind the hints.
//!
//! | module | its one job |
//! |---|---|
//! | [`socket`] | the system calls of the hint socket |
//! | [`client`] | one connection: messages in, steps of work |
//! | [`close`] | closing sockets that hold a stranger's descriptors |
//! | [`pages`] | from addresses to page frames; which addresses are refused |
//! | [`server`] | the thread: all connections in bounded rounds |

mod client;
mod close;
mod pages;
mod server;
mod socket;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pghot_linux::resolver::Resolver;
use pghot_linux::{SysRoot, probe};

use super::DESCRIPTOR;
use crate::bulk::BulkReporter;
use crate::kernel::folios::FolioReporter;
use crate::kernel::worker::{Own, Worker, WorkerSource};
use crate::kernel::{Availability, Error, OnKernel, Source, Start};
use pages::Refusal;
use server::{Counters, Server};
use socket::Listener;

/// The entry's half that needs a kernel.
pub(super) const ON_KERNEL: OnKernel = OnKernel {
    check,
    start,
    object: None,
};

struct AppHint {
    counters: Arc<Counters>,
}

fn check(root: &SysRoot) -> Availability {
    let needed = probe::FEATURES.iter().find(|f| f.id == "cap_sys_admin");
    match needed.map(|feature| (feature.ask)(root)) {
        Some(Availability::Unavailable(why)) => Availability::Unavailable(format!(
            "{why}, and so cannot see which page frames are behind addresses (/proc/PID/pagemap)"
        )),
        _ => Availability::Available,
    }
}

fn start(start: &mut Start<'_>) -> Result<Box<dyn Source>, Error> {
    let mut resolver = Resolver::load().map_err(|error| Error::Setup(error.to_string()))?;
    let listener = Listener::bind(start.hint_socket).map_err(|error| {
        Error::Setup(format!(
            "cannot listen on {}: {error}; choose another --hint-socket",
            start.hint_socket.display()
        ))
    })?;
    let nearest = start.topology.lower_tier_nodes().filter_map(|node| {
        let target = start.topology.nearest_top_tier_node(node.nid)?;
        Some((node.nid, target))
    });
    let counters = Arc::<Counters>::default();
    let reporter = BulkReporter::new(start.table, &start.config.rule);
    let find_heads = Box::new(move |pfns: &[_], folios: &mut _| resolver.heads(pfns, folios));
    let server = Server::new(
        start.root,
        listener,
        &counters,
        &reporter,
        FolioReporter::new(&reporter, find_heads),
        start.table,
        nearest.collect(),
    );
    Ok(Box::new(WorkerSource {
        descriptor: &DESCRIPTOR,
        reporter,
        // The socket and all connections end with it.
        worker: Worker::spawn(DESCRIPTOR.name, move |pace| server.run(pace))?,
        own: AppHint { counters },
    }))
}

impl Own for AppHint {
    fn details(&self) -> BTreeMap<String, u64> {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut details = BTreeMap::from([
            ("clients".to_owned(), get(&self.counters.clients)),
            (
                "refused_clients".to_owned(),
                get(&self.counters.refused_clients),
            ),
            ("messages".to_owned(), get(&self.counters.messages)),
        ]);
        for ((_, name, _), counter) in Refusal::ALL.iter().zip(&self.counters.refused) {
            details.insert(format!("refused_ranges_{name}"), get(counter));
        }
        details
    }
}
