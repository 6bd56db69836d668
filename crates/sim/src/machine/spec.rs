//! The machine that is modelled: its nodes, how far they are from each other, how the kernel is
//! set, and what the kernel's work costs.

use serde::{Deserialize, Serialize};

use crate::copying::spec::MigrationSpec;
use crate::error::{Error, check_times};

/// Base pages of a MiB.
pub const PAGES_PER_MIB: u64 = 256;

/// Nodes that a page's state byte can tell apart.
pub const NODES_MAX: usize = 8;

/// A machine, as a scenario file describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineSpec {
    /// Its NUMA nodes, numbered from 0.
    pub node: Vec<NodeSpec>,
    /// The kernel's settings.
    #[serde(default)]
    pub kernel: KernelSpec,
    /// How pages are copied when they move.
    #[serde(default)]
    pub migration: MigrationSpec,
    /// What things cost.
    #[serde(default)]
    pub costs: Costs,
    /// Base pages that each modelled page stands for; 1 but for [`crate::scenario::thin`].
    #[serde(skip, default = "one")]
    pub page_weight: u64,
}

fn one() -> u64 {
    1
}

/// A NUMA node. Without CPUs it is a lower tier, as for the kernel with HMAT.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSpec {
    /// Memory that programs can have, in MiB.
    pub memory_mib: u64,
    /// CPUs.
    #[serde(default)]
    pub cpus: u32,
    /// Of an access that misses all caches, by the node of the memory, in ns; empty without CPUs.
    #[serde(default)]
    pub latency_ns: Vec<f64>,
    /// What all CPUs together can read and write, in MiB/s; unlimited if left out.
    #[serde(default)]
    pub bandwidth_mib_s: Option<u64>,
    /// Free base pages that only the kernel may take: the sum of `min` of the node's zones in
    /// `/proc/zoneinfo`. If left out, what the kernel reckons at boot; khugepaged raises it.
    #[serde(default)]
    pub min_free_pages: Option<u64>,
}

impl NodeSpec {
    /// Base pages of its memory.
    pub fn pages(&self) -> u64 {
        self.memory_mib * PAGES_PER_MIB
    }

    /// Whether hot pages belong here.
    pub fn is_top_tier(&self) -> bool {
        self.cpus > 0
    }

    /// Makes it so large; what the kernel keeps is in proportion.
    pub fn resize(&mut self, memory_mib: u64) {
        let before = u128::from(self.memory_mib.max(1));
        let resized = |pages: u64| u128::from(pages) * u128::from(memory_mib) / before;
        self.min_free_pages = self.min_free_pages.map(|pages| resized(pages) as u64);
        self.memory_mib = memory_mib;
    }
}

/// Settings of the kernel; the defaults are those of 7.2, but for demotion, which is on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KernelSpec {
    /// `numa_balancing/scan_delay_ms`.
    pub scan_delay_ms: u64,
    /// `numa_balancing/scan_period_min_ms`.
    pub scan_period_min_ms: u64,
    /// `numa_balancing/scan_period_max_ms`.
    pub scan_period_max_ms: u64,
    /// `numa_balancing/scan_size_mb`.
    pub scan_size_mib: u64,
    /// `numa_balancing/hot_threshold_ms`.
    pub hot_threshold_ms: u64,
    /// `kernel.numa_balancing_promote_rate_limit_MBps`.
    pub promote_rate_limit_mbps: u64,
    /// `kernel.numa_balancing` has its normal bit, so pghot leaves the scanner's timing alone if
    /// CPUs are on several nodes. Balancing between nodes of one tier is not modelled.
    pub normal_balancing: bool,
    /// `/sys/kernel/mm/numa/demotion_enabled`.
    pub demotion_enabled: bool,
    /// `vm.watermark_scale_factor`.
    pub watermark_scale_factor: u64,
    /// How reclaim knows what is cold.
    pub lru: LruKind,
}

/// Which LRU the kernel has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LruKind {
    /// The multi-generational one: `/sys/kernel/mm/lru_gen/enabled`.
    #[default]
    Generations,
    /// Active and inactive lists.
    Lists,
}

impl Default for KernelSpec {
    fn default() -> Self {
        KernelSpec {
            scan_delay_ms: 1000,
            scan_period_min_ms: 1000,
            scan_period_max_ms: 60_000,
            scan_size_mib: 256,
            hot_threshold_ms: 1000,
            promote_rate_limit_mbps: 65_536,
            normal_balancing: false,
            demotion_enabled: true,
            watermark_scale_factor: 10,
            lru: LruKind::default(),
        }
    }
}

/// What the kernel's work costs, in ns. See docs/simulator.md for where each figure is from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Costs {
    /// What a thread does between two accesses.
    pub compute_ns: f64,
    /// Reading a page of page cache by a system call, without the latency of its memory.
    pub read_ns: f64,
    /// What each such read takes longer while reads are watched.
    pub watched_read_ns: f64,
    /// A hint fault, in the thread that takes it.
    pub hint_fault_ns: f64,
    /// Making one page-table entry fault, in the thread that scans.
    pub mark_ns: f64,
    /// Moving a base page alone, in the thread that faulted.
    pub move_alone_ns: f64,
    /// Moving a huge page, in any thread.
    pub move_huge_ns: f64,
    /// Demoting a base page in kswapd's batches.
    pub demote_ns: f64,
    /// Looking at one page in reclaim.
    pub reclaim_ns: f64,
    /// Reading one accessed bit, or clearing it, each: half of what `pghot record` takes for both.
    pub accessed_bit_ns: f64,
}

impl Default for Costs {
    fn default() -> Self {
        Costs {
            compute_ns: 1.0,
            read_ns: 735.0,
            watched_read_ns: 50.0,
            hint_fault_ns: 1000.0,
            mark_ns: 50.0,
            move_alone_ns: 3000.0,
            move_huge_ns: 193_000.0,
            demote_ns: 1850.0,
            reclaim_ns: 100.0,
            accessed_bit_ns: 22.0,
        }
    }
}

impl Costs {
    fn check(&self) -> Result<(), Error> {
        let single = [
            ("compute_ns", self.compute_ns),
            ("read_ns", self.read_ns),
            ("watched_read_ns", self.watched_read_ns),
            ("hint_fault_ns", self.hint_fault_ns),
            ("mark_ns", self.mark_ns),
            ("move_alone_ns", self.move_alone_ns),
            ("move_huge_ns", self.move_huge_ns),
            ("demote_ns", self.demote_ns),
            ("reclaim_ns", self.reclaim_ns),
            ("accessed_bit_ns", self.accessed_bit_ns),
        ];
        check_times("machine.costs", &single)
    }
}

impl MachineSpec {
    /// Names the first field that no machine can have.
    pub fn check(&self) -> Result<(), Error> {
        let nodes = self.node.len();
        if nodes == 0 || nodes > NODES_MAX {
            return Err(Error::field(
                "machine.node",
                format!("there are {nodes}, and 1 to {NODES_MAX} can be modelled"),
            ));
        }
        for (nid, node) in self.node.iter().enumerate() {
            node.check(nid, nodes)?;
        }
        if !self.node.iter().any(NodeSpec::is_top_tier) {
            return Err(Error::field("machine.node", "none has CPUs"));
        }
        let kernel = &self.kernel;
        let positive = [
            ("scan_delay_ms", kernel.scan_delay_ms),
            ("scan_period_min_ms", kernel.scan_period_min_ms),
            ("scan_period_max_ms", kernel.scan_period_max_ms),
            ("scan_size_mib", kernel.scan_size_mib),
            ("hot_threshold_ms", kernel.hot_threshold_ms),
            ("watermark_scale_factor", kernel.watermark_scale_factor),
        ];
        for (name, value) in positive {
            if value == 0 || value > 1 << 32 {
                return Err(Error::field(
                    format!("machine.kernel.{name}"),
                    format!("{value} is not from 1 to 2^32"),
                ));
            }
        }
        self.migration.check()?;
        self.costs.check()
    }

    /// The lower-tier nodes.
    pub fn lower_tier(&self) -> impl Iterator<Item = u32> + '_ {
        let nodes = self.node.iter().zip(0..);
        nodes
            .filter(|(node, _)| !node.is_top_tier())
            .map(|(_, nid)| nid)
    }

    /// The top-tier nodes, those nearest to node `nid` first, by the latency from their CPUs.
    pub fn top_tier_from(&self, nid: u32) -> Vec<u32> {
        let nodes = self.node.iter().zip(0..);
        let mut top: Vec<u32> = nodes
            .filter(|(node, _)| node.is_top_tier())
            .map(|(_, nid)| nid)
            .collect();
        let latency = |top: &u32| self.node[*top as usize].latency_ns[nid as usize];
        top.sort_by(|a, b| latency(a).total_cmp(&latency(b)));
        top
    }

    /// The first of these.
    pub fn nearest_top_tier(&self, nid: u32) -> u32 {
        self.top_tier_from(nid).first().copied().unwrap_or(0)
    }
}

impl NodeSpec {
    fn check(&self, nid: usize, nodes: usize) -> Result<(), Error> {
        let field = |name: &str| format!("machine.node[{nid}].{name}");
        // A page's number has 32 bits, over all nodes.
        if self.memory_mib == 0 || self.memory_mib > 1 << 23 {
            return Err(Error::field(
                field("memory_mib"),
                format!("{} is not from 1 MiB to 8 TiB", self.memory_mib),
            ));
        }
        let wanted = if self.cpus > 0 { nodes } else { 0 };
        if self.latency_ns.len() != wanted {
            return Err(Error::field(
                field("latency_ns"),
                format!(
                    "it has {} entries and needs {wanted}: one per node if there are CPUs",
                    self.latency_ns.len()
                ),
            ));
        }
        let is_latency = |ns: &f64| ns.is_finite() && *ns > 0.0 && *ns < 1e9;
        if let Some(ns) = self.latency_ns.iter().find(|ns| !is_latency(ns)) {
            return Err(Error::field(
                field("latency_ns"),
                format!("{ns} is not a latency"),
            ));
        }
        if self.min_free_pages.is_some_and(|min| min > self.pages()) {
            return Err(Error::field(
                field("min_free_pages"),
                "it is more than the node has",
            ));
        }
        if self.bandwidth_mib_s == Some(0) {
            return Err(Error::field(
                field("bandwidth_mib_s"),
                "0 lets no access pass",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub fn two_tiers() -> MachineSpec {
        toml::from_str(
            "[[node]]\nmemory_mib = 512\ncpus = 4\nlatency_ns = [100, 250]\n\
             [[node]]\nmemory_mib = 1536\n",
        )
        .unwrap()
    }

    #[test]
    fn a_sound_machine_passes() {
        let machine = two_tiers();
        machine.check().unwrap();
        assert_eq!(machine.lower_tier().collect::<Vec<_>>(), [1]);
        assert_eq!(machine.top_tier_from(1), [0]);
    }

    #[test]
    fn a_smaller_node_keeps_less_free() {
        let mut node = two_tiers().node.remove(0);
        node.min_free_pages = Some(4096);
        node.resize(128);
        assert_eq!((node.memory_mib, node.min_free_pages), (128, Some(1024)));
    }

    #[test]
    fn an_impossible_machine_is_named_by_its_field() {
        type Damage = fn(&mut MachineSpec);
        let broken: [(&str, Damage); 9] = [
            ("machine.node", |m| m.node.clear()),
            ("machine.node[1].memory_mib", |m| m.node[1].memory_mib = 0),
            ("machine.node[1].memory_mib", |m| {
                m.node[1].memory_mib = 1 << 40
            }),
            ("machine.node[0].latency_ns", |m| {
                m.node[0].latency_ns.truncate(1)
            }),
            ("machine.node[0].latency_ns", |m| {
                m.node[0].latency_ns[1] = f64::NAN
            }),
            ("machine.node[1].min_free_pages", |m| {
                m.node[1].min_free_pages = Some(1 << 40)
            }),
            ("machine.kernel.scan_size_mib", |m| {
                m.kernel.scan_size_mib = 0
            }),
            ("machine.costs.mark_ns", |m| m.costs.mark_ns = -1.0),
            ("machine.migration.channels", |m| m.migration.channels = 0),
        ];
        for (field, damage) in broken {
            let mut machine = two_tiers();
            damage(&mut machine);
            let error = machine.check().unwrap_err().to_string();
            assert!(error.contains(field), "{error}");
        }
    }
}
