//! Random machines, random workloads, and everything that can go wrong, with an auditor who looks
//! after each step. One number decides all of a run, so a run that fails can be had again.

mod auditor;
mod limit;

use std::ops::{AddAssign, Range};

use pghot_workloads::random::XorShift;

pub use auditor::Auditor;

use crate::Error;
use crate::machine::memory::Backing;
use crate::machine::trouble::Trouble;
use crate::machine::{MachineSpec, NodeSpec};
use crate::parallel;
use crate::run::Simulation;
use crate::scenario::{Mode, PatternName, PhaseSpec, ProcessSpec, Scenario};
use crate::systems::Setting;

/// Steps with trouble in one run.
const STEPS: u32 = 120;
/// Simulated time of a step, in ms: most steps have a pass.
const STEP_MS: u64 = 100;
/// How long the engine has to show progress when all trouble is over, in steps.
const CALM_STEPS: u32 = 900;
/// Runs of a campaign between two looks at what was found.
const AT_ONCE: u64 = 1000;

/// A bug to be planted, to see whether the auditor finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Canary {
    /// The engine takes eight times the rate that it was told.
    IgnoresRateLimit,
    /// The engine makes larger batches than it was told.
    IgnoresBatchLimit,
    /// Pages are said to have moved that did not.
    LosesMoves,
    /// Nothing is ever promoted.
    DoesNothing,
    /// The engine demotes at eight times the rate that it was told.
    IgnoresDemoteLimit,
    /// Demotion seems to be on and the lower tier to have room, whenever the engine asks.
    InvitesSwap,
}

/// What a run did, for whoever wonders whether anything happened at all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Story {
    /// Base pages promoted.
    pub promoted_pages: u64,
    /// Base pages demoted.
    pub demoted_pages: u64,
    /// Of those, by the engine's request.
    pub requested_pages: u64,
    /// Base pages that were refused.
    pub refused_pages: u64,
    /// Times that the daemon was killed.
    pub restarts: u64,
    /// Processes that ended and were started anew.
    pub respawns: u64,
    /// Nodes that were emptied and taken offline.
    pub offlinings: u64,
}

impl Story {
    /// All of it by name.
    pub fn counts(&self) -> [(&'static str, u64); 7] {
        [
            ("promoted_pages", self.promoted_pages),
            ("demoted_pages", self.demoted_pages),
            ("requested_pages", self.requested_pages),
            ("refused_pages", self.refused_pages),
            ("restarts", self.restarts),
            ("respawns", self.respawns),
            ("offlinings", self.offlinings),
        ]
    }
}

impl AddAssign for Story {
    fn add_assign(&mut self, other: Story) {
        self.promoted_pages += other.promoted_pages;
        self.demoted_pages += other.demoted_pages;
        self.requested_pages += other.requested_pages;
        self.refused_pages += other.refused_pages;
        self.restarts += other.restarts;
        self.respawns += other.respawns;
        self.offlinings += other.offlinings;
    }
}

/// A run for each of these seeds, on all CPUs, and the sum of what they did; `progress` is told how
/// many are done. The error is what the auditor found first, and in which run.
pub fn campaign(seeds: Range<u64>, progress: &(dyn Fn(u64) + Sync)) -> Result<Story, String> {
    let mut sum = Story::default();
    let mut first = seeds.start;
    while first < seeds.end {
        let next = first.saturating_add(AT_ONCE).min(seeds.end);
        let some: Vec<u64> = (first..next).collect();
        let before = first - seeds.start;
        let stories = parallel::each(&some, |seed| run(*seed, None), &|done| {
            progress(before + done as u64);
        });
        for (seed, story) in some.iter().zip(stories) {
            sum += story.map_err(|found| format!("seed {seed}: {found}"))?;
        }
        first = next;
    }
    Ok(sum)
}

/// One run. The error is what the auditor found, and where.
pub fn run(seed: u64, canary: Option<Canary>) -> Result<Story, String> {
    let mut chaos = Chaos::new(seed, canary).map_err(|error| error.to_string())?;
    chaos.run().map_err(|found| {
        let at_ms = chaos.simulation.world().now_ms();
        let (process, settings) = (&chaos.scenario.process, &chaos.settings);
        format!("{found}\nat {at_ms} ms, with {settings:?} and {process:#?}")
    })
}

impl Chaos {
    fn run(&mut self) -> Result<Story, String> {
        for _ in 0..STEPS {
            self.disturb();
            self.step()?;
        }
        self.calm_down();
        self.make_progress()?;
        Ok(self.story)
    }
}

struct Chaos {
    scenario: Scenario,
    settings: Vec<Setting>,
    random: XorShift,
    simulation: Simulation,
    auditor: Auditor,
    story: Story,
    canary: Option<Canary>,
    /// Base pages that a hog has of the top tier.
    hogged: u64,
}

impl Chaos {
    fn new(seed: u64, canary: Option<Canary>) -> Result<Chaos, Error> {
        let mut random = XorShift::new(seed);
        let scenario = scenario(seed, &mut random);
        let settings = settings(&mut random);
        let mut simulation = Simulation::new(&scenario, "pghot", &settings)?;
        let auditor = Auditor::new(simulation.world(), &settings);
        simulation.world_mut().trouble = Trouble::new(seed);
        let mut chaos = Chaos {
            scenario,
            settings,
            random,
            simulation,
            auditor,
            story: Story::default(),
            canary,
            hogged: 0,
        };
        chaos.plant()?;
        Ok(chaos)
    }

    /// What the engine does differs from what the auditor was told.
    fn plant(&mut self) -> Result<(), Error> {
        let setting = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        match self.canary {
            None => {}
            Some(Canary::IgnoresRateLimit) => {
                let told = self.auditor.limits_mbps().0.max(1) * 8;
                self.simulation
                    .set(&setting("promote_rate_limit_MBps", &told.to_string()))?;
            }
            Some(Canary::IgnoresBatchLimit) => {
                self.simulation
                    .set(&setting("kmigrated_batch_nr", "4096"))?;
            }
            Some(Canary::IgnoresDemoteLimit) => {
                let told = self.auditor.limits_mbps().1.max(1) * 8;
                self.simulation
                    .set(&setting("demote_rate_limit_MBps", &told.to_string()))?;
            }
            Some(Canary::LosesMoves) => self.simulation.world_mut().trouble.lies = true,
            Some(Canary::InvitesSwap) => {
                self.simulation.world_mut().trouble.invites_swap = true;
            }
            Some(Canary::DoesNothing) => {
                self.simulation
                    .set(&setting("promote_rate_limit_MBps", "0"))?;
            }
        }
        Ok(())
    }

    /// Something happens to the machine, perhaps.
    fn disturb(&mut self) {
        match self.random.below(40) {
            0 => self.change_a_tunable(),
            1 => {
                self.auditor.forget(&self.simulation.totals());
                self.simulation.restart_system();
                self.story.restarts += 1;
                if self.plant().is_err() {
                    // The same setting was taken at the start.
                    self.canary = None;
                }
            }
            2 => {
                let number = self.random.below(self.simulation.tasks().len() as u32) as usize;
                self.story.respawns += u64::from(self.simulation.respawn(number));
                self.auditor.relearn(self.simulation.world());
            }
            3 => {
                let share = self.random.below(101);
                self.hog(share.into());
            }
            4 => {
                let jump = u64::from(self.random.below(20_000));
                self.simulation.world_mut().trouble.clock_ahead_ms += jump;
                self.auditor.note_clock_jump();
            }
            5 => {
                let kernel = &mut self.simulation.world_mut().spec.kernel;
                kernel.demotion_enabled = !kernel.demotion_enabled;
            }
            6 => {
                let nodes = self.simulation.world().nodes.len() as u32;
                let nid = self.random.below(nodes) as usize;
                if nid == 0 {
                    self.hog(0);
                }
                let world = self.simulation.world_mut();
                match world.nodes[nid].is_online {
                    true => self.story.offlinings += u64::from(world.offline(nid)),
                    false => world.nodes[nid].is_online = true,
                }
            }
            _ => {}
        }
    }

    fn change_a_tunable(&mut self) {
        let (name, values) = match self.random.below(6) {
            0 => ("freq_threshold", ["1", "2", "3"]),
            1 => ("promote_rate_limit_MBps", ["1", "16", "256"]),
            2 => ("kmigrated_batch_nr", ["64", "512", "2048"]),
            // Nobody but these sees all of the memory; see `settings`.
            3 => ("enabled_sources", ["0xc", "0x18", "0x1d"]),
            4 => ("demote_rate_limit_MBps", ["0", "16", "1024"]),
            _ => ("kmigrated_sleep_ms", ["50", "100", "1000"]),
        };
        let value = values[self.random.below(3) as usize];
        let setting = (name.to_owned(), value.to_owned());
        let is_planted = matches!(
            (self.canary, name),
            (
                Some(Canary::IgnoresRateLimit | Canary::DoesNothing),
                "promote_rate_limit_MBps"
            ) | (Some(Canary::IgnoresBatchLimit), "kmigrated_batch_nr")
                | (Some(Canary::IgnoresDemoteLimit), "demote_rate_limit_MBps")
        );
        if !is_planted && self.simulation.set(&setting).is_ok() {
            self.auditor
                .note_setting(self.simulation.world().now_ms(), &setting);
        }
    }

    /// Somebody takes so much of what is free in the top tier, in percent, and gives back what he
    /// had.
    fn hog(&mut self, percent: u64) {
        let node = &mut self.simulation.world_mut().nodes[0];
        node.free += std::mem::take(&mut self.hogged);
        self.hogged = match node.is_online {
            true => node.free * percent / 100,
            false => 0,
        };
        node.free -= self.hogged;
        self.auditor.note_hog(self.hogged);
    }

    fn step(&mut self) -> Result<(), String> {
        self.simulation.step();
        let world = self.simulation.world();
        self.story.promoted_pages = world.counters.promoted_pages;
        self.story.demoted_pages = world.counters.demoted_pages;
        self.story.requested_pages = world.counters.demoted_by_request_pages;
        let totals = self.simulation.totals();
        self.story.refused_pages = totals.iter().map(|totals| totals.outcomes.refusals()).sum();
        self.auditor
            .look(world, self.simulation.last_moved(), &totals)
    }

    fn calm_down(&mut self) {
        let world = self.simulation.world_mut();
        world.trouble.calm_down();
        for node in &mut world.nodes {
            node.is_online = true;
        }
        self.hog(0);
        let settings = [("freq_threshold", "1"), ("promote_rate_limit_MBps", "256")];
        for (name, value) in settings {
            let setting = (name.to_owned(), value.to_owned());
            let is_planted = self.canary == Some(Canary::DoesNothing) && value == "256";
            if !is_planted && self.simulation.set(&setting).is_ok() {
                self.auditor
                    .note_setting(self.simulation.world().now_ms(), &setting);
            }
        }
        for number in 0..self.simulation.tasks().len() {
            self.simulation.respawn(number);
        }
        self.auditor.relearn(self.simulation.world());
    }

    /// With room, hot pages below and no trouble, something must move.
    fn make_progress(&mut self) -> Result<(), String> {
        let before = self.simulation.world().counters.promoted_pages;
        for _ in 0..CALM_STEPS {
            let world = self.simulation.world();
            let room = world
                .nodes
                .iter()
                .filter(|node| node.is_top_tier)
                .any(|node| node.room() > 512);
            let is_done = world.counters.promoted_pages > before;
            let has_work = self.simulation.tasks().iter().any(|task| task.is_running());
            if is_done || !room || !has_work || self.nothing_below() {
                return Ok(());
            }
            self.step()?;
        }
        Err(format!(
            "no progress in {CALM_STEPS} calm steps: {:?}",
            self.simulation.totals()
        ))
    }

    fn nothing_below(&self) -> bool {
        let world = self.simulation.world();
        let mut lower = world.nodes.iter().filter(|node| !node.is_top_tier);
        lower.all(|node| node.free == node.pages)
    }
}

/// A small machine with some processes; all that is checked after each step must be cheap.
fn scenario(seed: u64, random: &mut XorShift) -> Scenario {
    let lower = 1 + random.below(2);
    // In one machine of two the top tier is too small for what is hot and cold.
    let is_tight = random.below(2) == 0;
    let top_mib = u64::from(match is_tight {
        true => 4 + random.below(8),
        false => 8 + random.below(56),
    });
    let mut node = vec![NodeSpec {
        memory_mib: top_mib,
        cpus: 4,
        latency_ns: vec![100.0; 1 + lower as usize],
        bandwidth_mib_s: None,
        min_free_pages: None,
    }];
    for _ in 0..lower {
        node.push(NodeSpec {
            memory_mib: 64,
            cpus: 0,
            latency_ns: Vec::new(),
            bandwidth_mib_s: None,
            min_free_pages: None,
        });
    }
    let processes = 1 + random.below(3);
    let process = (0..processes)
        .map(|_| process(random, lower, is_tight))
        .collect();
    let mut machine = MachineSpec {
        node,
        kernel: Default::default(),
        migration: Default::default(),
        costs: Default::default(),
        page_weight: 1,
    };
    machine.kernel.demotion_enabled = random.below(2) == 0;
    // Few accesses, spread over the time: each takes a millisecond or so.
    machine.costs.compute_ns = 200_000.0 * f64::from(1 + random.below(10));
    Scenario {
        name: format!("chaos {seed}"),
        mode: Mode::Exact,
        seed,
        seconds: 1e6,
        slice_us: STEP_MS * 1000,
        sample_ms: 10_000_000,
        machine,
        process,
    }
}

fn process(random: &mut XorShift, lower: u32, is_tight: bool) -> ProcessSpec {
    let backings = [
        Backing::Anon,
        Backing::Thp,
        Backing::Shared,
        Backing::PageCache,
    ];
    let backing = backings[random.below(4) as usize];
    let hot_end = f64::from(1 + random.below(50)) / 100.0;
    let phase = |pattern, hot: [f64; 2], accesses| PhaseSpec {
        pattern,
        accesses,
        hot,
        hot_percent: 80,
        ..PhaseSpec::default()
    };
    let kinds = [
        PatternName::Skewed,
        PatternName::Random,
        PatternName::Stream,
    ];
    let first = kinds[random.below(3) as usize];
    ProcessSpec {
        memory_mib: u64::from(1 + random.below(4)) * if is_tight { 4 } else { 2 },
        near_share: Some(f64::from(random.below(2))),
        threads: 1 + random.below(3),
        backing,
        home: Some(1 + random.below(lower)),
        phase: vec![
            phase(first, [0.0, hot_end], u64::from(1 + random.below(2000))),
            phase(PatternName::Skewed, [0.5, 0.5 + hot_end], 1 << 40),
        ],
        ..ProcessSpec::default()
    }
}

/// The tunables of a run.
fn settings(random: &mut XorShift) -> Vec<Setting> {
    let mut pick = |values: &[&str]| values[random.below(values.len() as u32) as usize].to_owned();
    vec![
        ("mode".into(), pick(&["default", "precision"])),
        (
            "enabled_sources".into(),
            // Hint faults alone see no shared memory, and only one source sees page cache. Of two
            // readers of accessed bits the arbiter lets one run.
            pick(&["0xc", "0xd", "0x18", "0x19", "0x1d", "0x3f"]),
        ),
        ("freq_threshold".into(), pick(&["1", "2", "3"])),
        ("quick_fault_ms".into(), pick(&["0", "125", "60000"])),
        ("kmigrated_sleep_ms".into(), pick(&["50", "100", "500"])),
        ("kmigrated_batch_nr".into(), pick(&["64", "100", "2048"])),
        (
            "promote_rate_limit_MBps".into(),
            pick(&["1", "8", "256", "1024"]),
        ),
        (
            "demote_rate_limit_MBps".into(),
            pick(&["0", "1", "16", "1024"]),
        ),
    ]
}
