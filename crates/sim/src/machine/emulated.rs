//! A guest of an emulator, as a machine of the model: where a run in a guest is compared with the
//! same in the model.
//!
//! All memory is equally fast there, so an access takes what it takes, wherever it goes. The
//! kernel's work takes many times as long as on a server, and less of the guest's time if the
//! guest's clock is slowed.

use super::spec::{Costs, KernelSpec, MachineSpec, NodeSpec, PAGES_PER_MIB};
use crate::copying::prices::KernelPrices;
use crate::copying::spec::MigrationSpec;

/// The part of an access that the model counts as latency; it wants some.
const LATENCY_NS: f64 = 1.0;

/// A hint fault: what workers' kernel time grew by for each where no fault moved its page.
const HINT_FAULT_NS: f64 = 20_000.0;

/// A move in a fault, with the second fault that its new entry takes: the same where faults moved
/// pages, without the faults. 53 to 86 µs in three workloads.
const MOVE_ALONE_NS: f64 = 65_000.0;

/// Demoting a page, and looking at one, such that kswapd takes as long for each page that it
/// demotes as in guests: 92 µs in `skewed`, 81 in `scan`, 120 in `oversized`, 156 in `phase`; in
/// the model 96, 75, 115 and 96.
const DEMOTE_NS: f64 = 60_000.0;
const RECLAIM_NS: f64 = 3000.0;

/// An accessed bit: the longest agings of 80,000 pages took 50 to 90 ms in six guests.
const ACCESSED_BIT_NS: f64 = 600.0;

/// Marking an entry: a guess, which in the model delays nothing below 30 µs.
const MARK_NS: f64 = 1000.0;

/// A call of `move_pages(2)`, and what each page adds: a line through the calls of 1 and of 4096
/// pages of ARCHITECTURE.md, 5.7 and 90 ms.
const CALL_NS: f64 = 5.7e6;
const PAGE_NS: f64 = 20.6e3;

/// khugepaged keeps free, of each zone, two blocks of 2 MiB and one for each pair of three migrate
/// types, or a twentieth of all: `set_recommended_min_free_kbytes()`.
const MIN_FREE_BLOCKS: u64 = 2 + 3 * 3;
const MIN_FREE_SHARE: u64 = 20;

/// The nodes of a guest with so many MiB and CPUs each. Of the top tier, programs can have
/// `top_mib` if some is given: others have the rest.
pub fn nodes(guest: &[(u64, u32)], top_mib: Option<u64>) -> Vec<NodeSpec> {
    let all_mib: u64 = guest.iter().map(|(mib, _)| mib).sum();
    // One a node, and the first has the one for DMA as well.
    let zones = guest.len() as u64 + 1;
    let min_free_mib = (2 * MIN_FREE_BLOCKS * zones).min(all_mib / MIN_FREE_SHARE);
    let node = |&(mib, cpus): &(u64, u32)| NodeSpec {
        memory_mib: top_mib.filter(|_| cpus > 0).unwrap_or(mib),
        cpus,
        latency_ns: match cpus {
            0 => Vec::new(),
            _ => vec![LATENCY_NS; guest.len()],
        },
        bandwidth_mib_s: None,
        min_free_pages: Some(min_free_mib * PAGES_PER_MIB * mib / all_mib.max(1)),
    };
    guest.iter().map(node).collect()
}

/// A machine of these nodes, in which an access takes so long; its clock is so many times slower
/// than the host's.
pub fn machine(
    node: Vec<NodeSpec>,
    kernel: KernelSpec,
    access_ns: f64,
    dilation: u32,
) -> MachineSpec {
    let guest = |host_ns: f64| host_ns / f64::from(dilation.max(1));
    MachineSpec {
        node,
        kernel,
        costs: Costs {
            compute_ns: (access_ns - LATENCY_NS).max(0.0),
            hint_fault_ns: guest(HINT_FAULT_NS),
            mark_ns: guest(MARK_NS),
            move_alone_ns: guest(MOVE_ALONE_NS),
            demote_ns: guest(DEMOTE_NS),
            reclaim_ns: guest(RECLAIM_NS),
            accessed_bit_ns: guest(ACCESSED_BIT_NS),
            ..Costs::default()
        },
        migration: MigrationSpec {
            kernel: KernelPrices {
                call_ns: guest(CALL_NS),
                cold_ns: 0.0,
                cold_folios: 0,
                flush_ns: 0.0,
                batch_end_ns: 0.0,
                unmap_ns: 0.0,
                entry_ns: 0.0,
                move_ns: guest(PAGE_NS),
                ..KernelPrices::default()
            },
            ..MigrationSpec::default()
        },
        page_weight: 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::node::Node;

    /// As in the guests of the comparison, whose top tier has 512 of 2048 MiB.
    #[test]
    fn khugepaged_keeps_more_free_than_the_kernel_at_boot() {
        let nodes = nodes(&[(512, 4), (1536, 0)], Some(352));
        assert_eq!((nodes[0].memory_mib, nodes[1].memory_mib), (352, 1536));
        let machine = machine(nodes, KernelSpec::default(), 100.0, 10);
        let top = Node::new(&machine.node[0], machine.node[0].pages(), &machine);
        let promo_mib = top.watermarks.promo as f64 / PAGES_PER_MIB as f64;
        assert!((28.0..30.0).contains(&promo_mib), "{promo_mib} MiB");
    }
}
