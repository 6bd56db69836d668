//! The same cells in the simulator: whether it predicts what a guest does.
//!
//! The model gets what the guest's machine is, the same plan, and how long an access took where
//! nobody balanced. Everything else is its own. Plans of `load` are compared; other programs'
//! accesses are not known before they are made.

use std::sync::Arc;

use anyhow::{Context, Result};
use pghot_sim::machine::emulated;
use pghot_sim::machine::memory::Backing;
use pghot_sim::machine::{KernelSpec, PAGES_PER_MIB};
use pghot_sim::run::{Run, Sample, Simulation};
use pghot_sim::scenario::{Mode, ProcessSpec, Recorded, Scenario};
use pghot_testbed::Machine;
use pghot_witness::report::Slice;
use pghot_workloads::plan::Plan;
use pghot_workloads::plans::{self, Size};
use serde::{Deserialize, Serialize};

use crate::cell::Outcome;
use crate::room;
use crate::setting::Setting;

/// Workloads that nobody looks at while the model is mended: what it is worth elsewhere. `chunks`
/// and `neighbour` were looked at once, see docs/sizing.md.
pub const HELD_OUT: [&str; 5] = ["chunks", "drift", "neighbour", "oversized", "sparse"];

/// Writable mappings of `load` behind its memory: stacks of three threads, for their signals as
/// well, heaps, and the data of four libraries.
const MAPPINGS: u32 = 17;

/// How far shares may be apart.
const SHARE_TOLERANCE: f64 = 0.05;

/// How far numbers of moves may be apart, as a share of the guest's; and how many pages tell
/// nothing, as a share of the room at the start.
const MOVES_TOLERANCE: f64 = 0.25;
const FEW_MOVES: f64 = 0.02;

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// Share of the accesses that the top tier served, by halves of the time.
    pub near: [f64; 2],
    /// Base pages that went up.
    pub up_pages: u64,
    /// Base pages that went down.
    pub down_pages: u64,
    /// Hint faults.
    pub hint_faults: u64,
    /// CPU time of the daemon, in s of the guest.
    pub daemon_s: f64,
    /// How long it took, in s of the guest.
    pub elapsed_s: f64,
}

/// A cell in the guest and in the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// What was run.
    pub setting: Setting,
    /// The commit that was measured; the model may be of a later one.
    pub commit: String,
    /// `uname -r` of the guest.
    pub release: String,
    /// Whether nobody looked at it while the model was mended.
    pub is_held_out: bool,
    /// Pages that the top tier had room for at the start.
    pub room_pages: u64,
    /// What the witness and the kernel counted.
    pub guest: Seen,
    /// What the model counted.
    pub model: Seen,
}

impl Pair {
    /// Whether the shares are near each other in both halves.
    pub fn places_agree(&self) -> bool {
        let mut halves = self.guest.near.iter().zip(&self.model.near);
        halves.all(|(guest, model)| (guest - model).abs() <= SHARE_TOLERANCE)
    }

    /// Whether as many pages moved.
    pub fn moves_agree(&self) -> bool {
        let few = self.room_pages as f64 * FEW_MOVES;
        let is_near = |guest: u64, model: u64| {
            let (guest, model) = (guest as f64, model as f64);
            (guest - model).abs() <= (guest * MOVES_TOLERANCE).max(few)
        };
        is_near(self.guest.up_pages, self.model.up_pages)
            && is_near(self.guest.down_pages, self.model.down_pages)
    }
}

/// Each cell that can be modelled, beside its model. `tell` hears which one is next.
pub fn compare(outcomes: &[Outcome], tell: &mut dyn FnMut(&Setting)) -> Result<Vec<Pair>> {
    let mut pairs = Vec::new();
    for outcome in outcomes {
        let setting = &outcome.setting;
        let Some(guest) = Seen::in_guest(outcome) else {
            continue;
        };
        let Some(run) = play(outcome, outcomes, tell)? else {
            continue;
        };
        pairs.push(Pair {
            setting: setting.clone(),
            commit: outcome.commit.clone(),
            release: outcome.release.clone(),
            is_held_out: HELD_OUT.contains(&setting.workload.as_str()),
            room_pages: outcome.room_pages,
            guest,
            model: Seen::in_model(&run),
        });
    }
    Ok(pairs)
}

/// The cell in the model; none if it cannot be modelled.
pub fn play(
    outcome: &Outcome,
    outcomes: &[Outcome],
    tell: &mut dyn FnMut(&Setting),
) -> Result<Option<Run>> {
    let setting = &outcome.setting;
    let Some(scenario) = scenario(outcome, outcomes)? else {
        return Ok(None);
    };
    tell(setting);
    let simulation = Simulation::new(&scenario, &setting.system, &[])?;
    Ok(Some(simulation.finish(&mut |_, _| {})))
}

/// Whether there is a model of the system as it ran. That of DAMON has the goals of 7.2.
fn has_model(setting: &Setting) -> bool {
    match setting.system.as_str() {
        "none" | "numab2" | "pghot" => true,
        "damon" => setting.kernel != "6.12",
        _ => false,
    }
}

/// How long an access of a thread takes where nobody balances.
fn access_ns(setting: &Setting, outcomes: &[Outcome]) -> Option<f64> {
    let alike = |other: &&Outcome| {
        Setting {
            system: setting.system.clone(),
            seed: setting.seed,
            room_percent: setting.room_percent,
            ..other.setting.clone()
        } == *setting
    };
    let unbalanced = |other: &&Outcome| other.setting.system == "none";
    let run = outcomes.iter().filter(unbalanced).find(alike)?;
    let elapsed_s = run.done["elapsed_s"].as_f64()?;
    Some(elapsed_s * 1e9 * f64::from(setting.threads) / setting.accesses.max(1) as f64)
}

/// Mapped files are not modelled.
fn backing(name: &str) -> Option<Backing> {
    match name {
        "anon" => Some(Backing::Anon),
        "thp" => Some(Backing::Thp),
        "shared" => Some(Backing::Shared),
        _ => None,
    }
}

/// The cell as a scenario; none if it cannot be modelled: without a model of the system or of its
/// kind of memory, without a run under no balancing, or if its accesses are not known.
fn scenario(outcome: &Outcome, outcomes: &[Outcome]) -> Result<Option<Scenario>> {
    let setting = &outcome.setting;
    let (true, Some(backing), Some(access_ns), Some(benchmark), Some(pages)) = (
        has_model(setting),
        backing(&setting.backing),
        access_ns(setting, outcomes),
        plans::find(&setting.workload),
        outcome.ready["pages"].as_u64(),
    ) else {
        return Ok(None);
    };
    let plan = (benchmark.plan)(&Size {
        pages: u32::try_from(pages).context("more pages than a plan can have")?,
        near_pages: u32::try_from(outcome.room_pages).context("more room than a plan can have")?,
        accesses: setting.accesses,
    });
    let guest = Machine::load(&setting.machine)?;
    // What was free when the workload began: the kernel and the programs have the rest.
    let near_mib = outcome.ready["near_pages"].as_u64().unwrap_or(0) / PAGES_PER_MIB;
    let free_mib = near_mib + room::left_mib(outcome.room_pages / PAGES_PER_MIB, near_mib);
    let nodes = guest.nodes.iter().map(|node| (node.memory_mib, node.cpus));
    let elapsed_s = outcome.done["elapsed_s"].as_f64().unwrap_or(60.0);
    Ok(Some(Scenario {
        name: setting.name(),
        mode: Mode::Exact,
        seed: setting.seed,
        seconds: 4.0 * elapsed_s,
        slice_us: slice_us(&plan, access_ns, setting.threads),
        sample_ms: 100,
        machine: emulated::machine(
            emulated::nodes(&nodes.collect::<Vec<_>>(), Some(free_mib)),
            KernelSpec::default(),
            access_ns,
            setting.dilation,
        ),
        process: vec![ProcessSpec {
            memory_mib: pages
                .div_ceil(PAGES_PER_MIB)
                .next_multiple_of(u64::from(backing.folio_pages()).div_ceil(PAGES_PER_MIB)),
            threads: setting.threads,
            backing,
            mappings: MAPPINGS,
            recorded: Some(Arc::new(Recorded {
                plan,
                least_ns: Vec::new(),
            })),
            ..ProcessSpec::default()
        }],
    }))
}

/// How long a slice of the model is, in µs: a phase ends with one, so the shortest phase must have
/// many.
fn slice_us(plan: &Plan, access_ns: f64, threads: u32) -> u64 {
    const USUAL_US: u64 = 1000;
    const SLICES_A_PHASE: f64 = 16.0;
    let shortest = plan.phases.iter().map(|phase| phase.accesses).min();
    let phase_us = shortest.unwrap_or(0) as f64 * access_ns / 1000.0 / f64::from(threads.max(1));
    ((phase_us / SLICES_A_PHASE) as u64).clamp(1, USUAL_US)
}

/// Of the first half of a time and of the second, by counts since the start; of the first node and
/// of all.
fn by_halves(half: (u64, u64), whole: (u64, u64)) -> [f64; 2] {
    let share = |(near, all): (u64, u64)| near as f64 / all.max(1) as f64;
    [half, (whole.0 - half.0, whole.1 - half.1)].map(share)
}

impl Seen {
    /// None without a witness.
    fn in_guest(outcome: &Outcome) -> Option<Seen> {
        let slices = &outcome.witness.slices;
        let last = slices.last()?;
        let half = slices
            .iter()
            .rfind(|slice| slice.host_ns <= last.host_ns / 2);
        let counts = |slice: &Slice| {
            let accesses = slice.nodes.iter().map(|node| node.accesses());
            let near = slice.nodes.first().map_or(0, |node| node.accesses());
            (near, accesses.sum())
        };
        let demoted =
            |(name, count): (&String, &u64)| name.starts_with("pgdemote_").then_some(*count);
        let by_kernel: u64 = outcome.growth.counters.iter().filter_map(demoted).sum();
        // The kernel does not count those that pghot moves down by name.
        let status = outcome.status.as_ref();
        let by_name = status.and_then(|it| it["demoter"]["huge_demoted_pages"].as_u64());
        let down_pages = by_kernel + by_name.unwrap_or(0);
        let all_pages = outcome.growth.counter("pgmigrate_success");
        Some(Seen {
            near: by_halves(half.map_or((0, 0), counts), counts(last)),
            up_pages: all_pages.saturating_sub(down_pages),
            down_pages,
            hint_faults: outcome.growth.counter("numa_hint_faults"),
            daemon_s: outcome.growth.cpu_s.get("pghot").copied().unwrap_or(0.0),
            elapsed_s: outcome.done["elapsed_s"].as_f64()?,
        })
    }

    fn in_model(run: &Run) -> Seen {
        let half = run
            .series
            .iter()
            .rfind(|sample| sample.t_s <= run.elapsed_s / 2.0);
        let counts = |sample: &Sample| (sample.near_accesses, sample.accesses);
        Seen {
            near: by_halves(
                half.map_or((0, 0), counts),
                (run.counters.near_accesses, run.counters.accesses),
            ),
            up_pages: run.counters.promoted_pages,
            down_pages: run.counters.demoted_pages,
            hint_faults: run.counters.hint_faults,
            daemon_s: run.counters.daemon_ns * 1e-9,
            elapsed_s: run.elapsed_s,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{outcome, slice};

    fn guest(system: &str) -> Outcome {
        let mut outcome = outcome("skewed", system);
        outcome.setting.accesses = 4_000_000;
        outcome.room_pages = 16 * PAGES_PER_MIB;
        outcome.ready = serde_json::json!({"pages": 24 * PAGES_PER_MIB});
        outcome.done = serde_json::json!({"elapsed_s": 4.0});
        outcome.witness.slices = vec![slice(1, 0, 10), slice(2, 0, 20), slice(4, 10, 30)];
        outcome
    }

    #[test]
    fn a_cell_is_compared_by_halves_and_moves() {
        let mut moved = guest("numab2");
        let counters = [("pgmigrate_success", 50), ("pgdemote_kswapd", 20)];
        let counters = counters.map(|(name, count)| (name.to_owned(), count));
        moved.growth.counters = counters.into();
        let seen = Seen::in_guest(&moved).unwrap();
        assert_eq!(seen.near, [0.0, 0.5]);
        assert_eq!((seen.up_pages, seen.down_pages), (30, 20));
        moved.status = Some(serde_json::json!({"demoter": {"huge_demoted_pages": 5}}));
        let seen = Seen::in_guest(&moved).unwrap();
        assert_eq!((seen.up_pages, seen.down_pages), (25, 25), "some by name");
    }

    /// Where nobody moves anything the model must be right, and it must not be where it is told of
    /// moves that there were not.
    #[test]
    fn the_model_of_doing_nothing_agrees() {
        let mut unmoved = guest("none");
        unmoved.witness.slices = vec![slice(2, 0, 20), slice(4, 0, 40)];
        let pairs = compare(&[unmoved], &mut |_| {}).unwrap();
        let pair = &pairs[0];
        assert!(pair.places_agree() && pair.moves_agree(), "{pair:?}");
        assert!((pair.model.elapsed_s - 4.0).abs() < 0.1, "{pair:?}");
        let mut wrong = pair.clone();
        wrong.guest.near[1] = 0.06;
        wrong.guest.up_pages = 1000;
        assert!(!wrong.places_agree() && !wrong.moves_agree());
    }

    /// Four thousand phases of a tenth of a millisecond.
    #[test]
    fn short_phases_take_no_longer_than_they_are() {
        let mut short = guest("none");
        short.setting.workload = "flutter".into();
        short.done = serde_json::json!({"elapsed_s": 0.4});
        let run = play(&short, &[short.clone()], &mut |_| {})
            .unwrap()
            .unwrap();
        assert!((0.39..0.43).contains(&run.elapsed_s), "{}", run.elapsed_s);
    }

    #[test]
    fn what_cannot_be_modelled_is_left_out() {
        let tuned = guest("pghot-tuned");
        let mut mapped = guest("none");
        mapped.setting.backing = "file".into();
        let alone = guest("pghot");
        for outcome in [tuned, alone] {
            assert_eq!(compare(&[outcome], &mut |_| {}).unwrap(), []);
        }
        assert_eq!(compare(&[mapped], &mut |_| {}).unwrap(), []);
    }
}
