//! Made-up runs for unit tests.

use pghot_witness::counts::NodeCounts;
use pghot_witness::report::{Report, Slice};
use pghot_workloads::spread::Spread;
use serde_json::Value;

use crate::cell::Outcome;
use crate::guest::Growth;
use crate::setting::Setting;
use crate::summary::Line;

/// A run in which nothing happened.
pub fn outcome(workload: &str, system: &str) -> Outcome {
    Outcome {
        setting: Setting {
            workload: workload.to_owned(),
            system: system.to_owned(),
            seed: 1,
            accesses: 100,
            threads: 1,
            backing: "anon".to_owned(),
            machine: "bench".to_owned(),
            kernel: "7".to_owned(),
            dilation: 1,
            room_percent: 100,
        },
        release: "7.2".to_owned(),
        commit: "a".to_owned(),
        emulator: "QEMU".to_owned(),
        pays: true,
        room_pages: 0,
        ready: Value::Null,
        samples: Vec::new(),
        done: Value::Null,
        status: None,
        witness: Report::default(),
        growth: Growth::default(),
        wall_s: 1.0,
    }
}

/// Counts of two nodes, all of them beyond the cache.
pub fn slice(host_ns: u64, near: u64, far: u64) -> Slice {
    Slice {
        host_ns,
        nodes: vec![node(near, near), node(far, far)],
    }
}

/// Loads, so many of them beyond the cache.
pub fn node(loads: u64, misses: u64) -> NodeCounts {
    NodeCounts {
        loads,
        stores: 0,
        misses,
    }
}

/// A system with these modelled times.
pub fn line(system: &str, totals: &[f64]) -> Line {
    Line {
        system: system.to_owned(),
        runs: totals.len(),
        total_s: Spread::of(totals.iter().copied()).unwrap_or_default(),
        totals_s: totals.to_vec(),
        measures: Default::default(),
    }
}
