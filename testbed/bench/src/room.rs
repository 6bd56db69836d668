//! The free memory of the top tier when a workload begins: the same for all systems.
//!
//! A boot leaves some 30 MiB that nobody uses in the top tier, and whoever demotes them wins as
//! much room. So idle pages are demoted first. What a guest has free then differs by 40 MiB from
//! one to the next. So what is beyond a share of the node is taken away, as reserved huge pages,
//! which nobody can reclaim; and all systems get a workload of the same size. To make its memory
//! takes some room for a moment. Where it fills the top tier that goes as well, after the system
//! has started: the tier is full then, as that of a server is, and what is won by filling free
//! memory is not taken for what is won by telling pages apart.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use pghot_testbed::Vm;

use crate::guest::node_kib;

/// Of a node's memory, what a workload may have.
const SHARE: (u64, u64) = (5, 8);

/// What is free beside a workload that is being made.
const MAKING_MIB: u64 = 64;

/// What is free beside one that fills the top tier, when it begins: a little more than the promo
/// watermark, which is 29 MiB of a node of 512 where huge pages are on. With less kswapd would run
/// from the start.
const FULL_MIB: u64 = 32;

/// The kernel's list of generations, where agings and evictions are asked for as well.
const LRU_GEN: &str = "/sys/kernel/debug/lru_gen";

/// Leaves as much room in a node of so much memory as every guest has, or so many percent of that;
/// returns how much, in MiB.
pub fn level(vm: &Vm, nid: usize, memory_mib: u64, percent: u32) -> Result<u64> {
    reserve(vm, nid, 0)?;
    demote_idle(vm, nid)?;
    let wanted_mib = memory_mib * SHARE.0 / SHARE.1 * u64::from(percent) / 100;
    // One huge page is left, so that what is taken in between makes no difference.
    let beyond_mib = free_mib(vm, nid)?.saturating_sub(MAKING_MIB + wanted_mib + 2);
    reserve(vm, nid, beyond_mib)?;
    Ok(as_it_is(vm, nid)?.min(wanted_mib))
}

/// Demotes what is not touched between three agings: the two youngest generations never go.
fn demote_idle(vm: &Vm, nid: usize) -> Result<()> {
    const ALL: u64 = 1 << 40;
    for _ in 0..3 {
        for (memcg, youngest) in youngest(&vm.read(LRU_GEN)?, nid) {
            // Refused where reclaim was quicker, or the cgroup has gone.
            let _ = vm.write(LRU_GEN, format!("+ {memcg} {nid} {youngest} 200 1"));
        }
    }
    for (memcg, youngest) in youngest(&vm.read(LRU_GEN)?, nid) {
        let oldest = youngest.saturating_sub(2);
        let _ = vm.write(LRU_GEN, format!("- {memcg} {nid} {oldest} 200 {ALL}"));
    }
    Ok(())
}

/// The youngest generation of each memory cgroup on a node, by their numbers.
fn youngest(list: &str, nid: usize) -> BTreeMap<u64, u64> {
    let mut youngest = BTreeMap::new();
    let (mut memcg, mut is_here) = (0, false);
    for line in list.lines() {
        let mut words = line.split_ascii_whitespace();
        let first = words.next().unwrap_or_default();
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
        match first {
            "memcg" => memcg = number().unwrap_or(0),
            "node" => is_here = number() == Some(nid as u64),
            // Number 0 is of those that were removed.
            seq if is_here && memcg != 0 => {
                youngest.extend(seq.parse().ok().map(|seq: u64| (memcg, seq)));
            }
            _ => {}
        }
    }
    youngest
}

/// How much room there is, in MiB.
pub fn as_it_is(vm: &Vm, nid: usize) -> Result<u64> {
    Ok(free_mib(vm, nid)?.saturating_sub(MAKING_MIB))
}

/// Takes what is left beside a workload that fills the node.
pub fn fill(vm: &Vm, nid: usize) -> Result<()> {
    let free_mib = free_mib(vm, nid)?;
    if !is_filled(free_mib) {
        return Ok(());
    }
    let reserved = vm.read(&reserved_path(nid))?;
    let reserved_mib = 2 * reserved
        .trim()
        .parse::<u64>()
        .context("no number of pages")?;
    reserve(vm, nid, reserved_mib + free_mib.saturating_sub(FULL_MIB))
}

/// What is free when a workload begins that has so much of its room, in MiB.
pub fn left_mib(room_mib: u64, near_mib: u64) -> u64 {
    match (room_mib + MAKING_MIB).saturating_sub(near_mib) {
        free_mib if is_filled(free_mib) => FULL_MIB,
        free_mib => free_mib,
    }
}

/// Whether a workload has taken its room, where so much is free: what was free to make it, or a
/// little more or less, for a guest takes and gives back some in between. One that lies elsewhere
/// leaves at least as much again, its room.
fn is_filled(free_mib: u64) -> bool {
    free_mib < 2 * MAKING_MIB
}

fn free_mib(vm: &Vm, nid: usize) -> Result<u64> {
    Ok(node_kib(vm, nid, "MemFree")? >> 10)
}

fn reserve(vm: &Vm, nid: usize, mib: u64) -> Result<()> {
    Ok(vm.write(&reserved_path(nid), (mib / 2).to_string())?)
}

/// Huge pages of 2 MiB.
fn reserved_path(nid: usize) -> String {
    format!("/sys/devices/system/node/node{nid}/hugepages/hugepages-2048kB/nr_hugepages")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_youngest_generation_is_the_last_of_a_node() {
        let list = "memcg     1 /\n node     0\n          3       1200        10        0 \n\
                    \x20         4        100         1       20 \n node     1\n\
                    \x20         9        100         1       20 \nmemcg     0 /gone\n\
                    \x20node     0\n          2        100         1       20 \n";
        assert_eq!(youngest(list, 0), BTreeMap::from([(1, 4)]));
        assert_eq!(youngest(list, 1), BTreeMap::from([(1, 9)]));
    }

    /// The room of the smallest guest, 30 % of 320 MiB, was once left with 66 MiB free.
    #[test]
    fn a_little_that_a_guest_gave_back_is_no_room() {
        let room_mib = 512 * SHARE.0 / SHARE.1 * 30 / 100;
        assert!(is_filled(MAKING_MIB - 8) && is_filled(MAKING_MIB + 8));
        assert!(!is_filled(MAKING_MIB + room_mib));
        // A workload that leaves a tenth of its room finds it filled; one that lies elsewhere does
        // not.
        assert_eq!([left_mib(320, 320), left_mib(320, 288)], [FULL_MIB; 2]);
        assert_eq!(left_mib(320, 0), 384);
    }
}
