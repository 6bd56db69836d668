//! Sources on a kernel: how they are started and asked, and what those that load BPF programs or
//! have a thread share.

pub(crate) mod attach;
#[cfg(test)]
mod border;
pub(crate) mod folios;
pub(crate) mod page_tables;
pub(crate) mod records;
pub(crate) mod worker;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use pghot_engine::Turns;
use pghot_engine::demoter::HugeFault;
use pghot_engine::marking::{HintFaults, Visits};
use pghot_hotness::Table;
use pghot_linux::keeper::{Keeper, KeeperError};
use pghot_linux::knobs::KnobsError;
use pghot_linux::topology::Topology;
use pghot_linux::{SysRoot, load_check};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(doc)]
use crate::Kind;
use crate::{Config, Descriptor, ReadySample, SourceStats};
/// Whether a source can run here; if not, why, for an operator.
pub use pghot_linux::probe::Answer as Availability;
pub use records::RecordMaps;

/// How a source runs on a kernel.
pub struct OnKernel {
    /// Whether this kernel has what it needs. Looks, changes nothing.
    pub check: fn(&SysRoot) -> Availability,
    /// Loads and attaches it; this may take seconds. It reports until the returned source is
    /// dropped. A source whose kind [can](crate::Kind::stands_by) stands by at first.
    pub start: fn(&mut Start<'_>) -> Result<Box<dyn Source>, Error>,
    /// Its BPF object, if it has one of its own.
    pub object: Option<&'static [u8]>,
}

impl OnKernel {
    /// Which of its programs this kernel takes, with as many ranges of the lower tier as there can
    /// be, so that the verifier sees all of them.
    pub fn load_check(&self, root: &SysRoot) -> Result<Vec<load_check::Program>, Error> {
        let programs = |image| load_check::programs(root, image, attach::shape_at_most);
        let found = self.object.map(programs).transpose();
        let what = "open the source's BPF object";
        Ok(found
            .map_err(|source| Error::Bpf { what, source })?
            .unwrap_or_default())
    }
}

/// What a source needs to start.
pub struct Start<'a> {
    /// Where its BPF programs report to.
    pub maps: &'a RecordMaps,
    /// The same records, for a source that reports from user space.
    pub table: &'a Arc<Table>,
    /// The nodes and tiers of the machine.
    pub topology: &'a Topology,
    /// How it shall work at the start.
    pub config: Config,
    /// Where the kernel's files are. Settings are not changed here, but by [`Source::stand_by`].
    pub root: &'a SysRoot,
    /// Opens what root alone may write.
    pub keeper: &'a Arc<Keeper>,
    /// Kept by whoever clears accessed bits.
    pub turns: &'a Turns,
    /// Nothing will be promoted: a kernel that promotes by itself must go on doing so.
    pub dry_run: bool,
    /// Where applications' hints arrive.
    pub hint_socket: &'a Path,
}

/// A running source. Dropping it detaches everything.
pub trait Source: Send {
    /// Its description.
    fn descriptor(&self) -> &'static Descriptor;

    /// Works so from now on.
    fn configure(&mut self, config: &Config) -> Result<(), Error>;

    /// What it reported since it started.
    fn stats(&self) -> Result<SourceStats, Error>;

    /// Hands over when sampled pages became ready, for measuring latency: about one page in 64,
    /// always the same ones. Called at each pass, so it must cost an idle source nothing.
    fn drain_ready(&mut self, sink: &mut dyn FnMut(ReadySample));

    /// What it has cost so far.
    fn cost(&self) -> SourceCost;

    /// More counters of its own, by name, with units in the names.
    fn details(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }

    /// The hint faults that it has seen; `None` if it sees none.
    fn hint_faults(&self) -> Option<HintFaults> {
        None
    }

    /// The hint faults of huge pages since the last call.
    fn take_huge_faults(&mut self) -> Vec<HugeFault> {
        Vec::new()
    }

    /// Whether it has a thread that ended although nobody asked: it panicked.
    fn is_dead(&self) -> bool {
        false
    }

    /// Stops or resumes whatever makes the kernel produce events for this source, without
    /// unloading it. Only sources whose kind [can](crate::Kind::stands_by) are asked to. This and
    /// [`Source::mark`] are where a source changes kernel settings, and short, so that nobody waits
    /// who wants to put them back.
    fn stand_by(&mut self, _keeper: &Keeper, _standing_by: bool) -> Result<(), Error> {
        Ok(())
    }

    /// Tells the kernel's scanner how to mark, for sources of [`Kind::HintFaults`]. Returns whether
    /// it is for the source to say.
    fn mark(&mut self, _keeper: &Keeper, _visits: Visits) -> Result<bool, Error> {
        Ok(false)
    }
}

/// What a source costs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceCost {
    /// CPU time of its own thread, in ns, its system calls and the BPF programs that it calls
    /// included; 0 if it has none.
    pub thread_cpu_ns: u64,
    /// Runs of its BPF programs, and the time in them, in ns. The kernel counts both only while
    /// `kernel.bpf_stats_enabled` is 1.
    pub bpf_runs: u64,
    /// See [`SourceCost::bpf_runs`].
    pub bpf_ns: u64,
}

impl SourceCost {
    /// Both together.
    pub fn plus(self, other: SourceCost) -> SourceCost {
        SourceCost {
            thread_cpu_ns: self.thread_cpu_ns + other.thread_cpu_ns,
            bpf_runs: self.bpf_runs + other.bpf_runs,
            bpf_ns: self.bpf_ns + other.bpf_ns,
        }
    }
}

/// What can go wrong with a source.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused a BPF map, program or hook.
    #[error("cannot {what}: {source}; run `pghot doctor` to see what this kernel lacks")]
    Bpf {
        /// What was being done.
        what: &'static str,
        /// libbpf's or the kernel's answer.
        source: libbpf_rs::Error,
    },
    /// More PFN ranges than the BPF programs search, and not for gaps that could be closed.
    #[error(
        "the lower tier has {got} pieces with other memory between them, and {max} are supported: \
         bring its memory online in fewer pieces"
    )]
    TooManyRanges {
        /// Ranges of this machine.
        got: usize,
        /// Ranges that the BPF programs can hold.
        max: usize,
    },
    /// The record maps could not be mapped.
    #[error("cannot map the hotness records ({bytes} bytes): {source}")]
    Map {
        /// Size of the map.
        bytes: u64,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The records do not fit together.
    #[error(transparent)]
    Records(#[from] pghot_hotness::Error),
    /// A kernel setting could not be changed.
    #[error(transparent)]
    Keeper(#[from] KeeperError),
    /// A kernel setting could not be read.
    #[error(transparent)]
    Knobs(#[from] KnobsError),
    /// The source's thread could not be started.
    #[error("cannot start the thread of source {name}: {source}")]
    Thread {
        /// The source.
        name: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
    /// Anything else that a source needs and did not get, as a sentence.
    #[error("{0}")]
    Setup(String),
}
