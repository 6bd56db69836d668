//! A run: slices of simulated time, in each of which processes access memory, and then the kernel
//! and the system under test do what is due.

use pghot_engine::Totals;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::Error;
use crate::kernel::reclaim::reclaim;
use crate::kernel::scan::Scan;
use crate::machine::heat::{Drawn, Heat};
use crate::machine::memory::{Memory, Region};
use crate::machine::rates::Rates;
use crate::machine::world::{Counters, Moved, World};
use crate::scenario::{Mode, ProcessSpec, Scenario};
use crate::systems::{self, Setting, System};
use crate::traffic::exact;
use crate::traffic::statistical::Flow;
use crate::traffic::task::{Task, Thread};

/// Bytes of one access on the bus: a cache line.
const LINE_BYTES: f64 = 64.0;

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Run {
    /// The scenario's name.
    pub scenario: String,
    /// The system.
    pub system: String,
    /// The seed.
    pub seed: u64,
    /// How accesses were made.
    pub mode: Mode,
    /// Simulated time until the last process had ended, or until the scenario's limit.
    pub elapsed_s: f64,
    /// Whether all processes had ended by then.
    pub is_complete: bool,
    /// Time that all threads together worked: what waiting for the end of an interval leaves of
    /// [`Run::elapsed_s`].
    pub busy_s: f64,
    /// Whether processes wait for times of their own, so that only [`Run::busy_s`] tells how much
    /// longer work takes.
    pub is_paced: bool,
    /// Pages of the machine that each of the run's stands for: it has so many times more pages and
    /// accesses than were counted.
    pub page_weight: u64,
    /// What was counted.
    pub counters: Counters,
    /// How it went.
    pub series: Vec<Sample>,
    /// What the system says of itself.
    pub details: Value,
}

impl Run {
    /// What is compared between systems, in s: how long the work took.
    pub fn work_s(&self) -> f64 {
        match self.is_paced {
            true => self.busy_s,
            false => self.elapsed_s,
        }
    }
}

/// One moment of a run; counts are since the start.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Sample {
    /// Simulated time.
    pub t_s: f64,
    /// Base pages that went up.
    pub promoted_pages: u64,
    /// Base pages that went down.
    pub demoted_pages: u64,
    /// Accesses.
    pub accesses: u64,
    /// Of those, served by the top tier.
    pub near_accesses: u64,
}

/// A scenario that runs under one system.
pub struct Simulation {
    scenario: Scenario,
    system_name: &'static str,
    world: World,
    system: Box<dyn System>,
    tasks: Vec<Task>,
    flows: Vec<Flow>,
    /// How much longer accesses of each node take because of all the others.
    crowd: Vec<f64>,
    sampled: Vec<Sample>,
    last_moved: Vec<Moved>,
}

impl Simulation {
    /// Lays the machine out and starts the processes. `settings` are the system's own.
    pub fn new(
        scenario: &Scenario,
        system: &str,
        settings: &[Setting],
    ) -> Result<Simulation, Error> {
        scenario.check()?;
        let descriptor = systems::find(system)?;
        let mut world = lay_out(scenario);
        let mut tasks = Vec::new();
        for (spec, number) in scenario.process.iter().zip(0..) {
            tasks.push(start(&mut world, scenario, spec, number)?);
        }
        let mut system = (descriptor.make)(&world, settings)?;
        system.begin(&mut world, &mut tasks);
        let flows = tasks.iter().map(|task| Flow::new(!task.seed)).collect();
        let mut simulation = Simulation {
            scenario: scenario.clone(),
            system_name: descriptor.name,
            crowd: vec![1.0; world.nodes.len()],
            world,
            system,
            tasks,
            flows,
            sampled: Vec::new(),
            last_moved: Vec::new(),
        };
        simulation.world.moved.clear();
        for number in 0..simulation.tasks.len() {
            simulation.tasks[number].begin_phase(0);
            simulation.begin_flow(number);
        }
        simulation.sample();
        Ok(simulation)
    }

    /// The machine, to be looked at.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The machine, for whoever interferes with it.
    pub fn world_mut(&mut self) -> &mut World {
        &mut self.world
    }

    /// The processes.
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// What moved in the last step.
    pub fn last_moved(&self) -> &[Moved] {
        &self.last_moved
    }

    /// See [`System::totals`].
    pub fn totals(&self) -> Vec<Totals> {
        self.system.totals()
    }

    /// What the system says of itself.
    pub fn details(&self) -> Value {
        self.system.details()
    }

    /// See [`System::set`].
    pub fn set(&mut self, setting: &Setting) -> Result<(), Error> {
        self.system.set(setting)
    }

    /// See [`System::restart`].
    pub fn restart_system(&mut self) {
        self.system.restart(&self.world);
    }

    /// A process ends at once, and another one of its kind gets its memory, page by page. False if
    /// there is no memory: then it has ended for good.
    pub fn respawn(&mut self, number: usize) -> bool {
        let region = self.tasks[number].region.clone();
        let heads = region.pages.clone().step_by(region.folio_pages as usize);
        for head in heads.clone() {
            self.world.release(head, region.folio_pages);
        }
        let pid = self.world.memory.regions()[number].pid + self.tasks.len() as u32;
        self.world.memory.set_pid(number, pid);
        let mut heads = heads.into_iter();
        let home = region.home as usize;
        let fits = heads.all(|head| self.world.allocate(head, region.folio_pages, home));
        let task = &mut self.tasks[number];
        task.phase = 0;
        task.ended_ns = None;
        task.scan
            .restart(&region, &self.world.spec.kernel, self.world.now_ns);
        task.begin_phase(self.world.now_ns);
        if !fits {
            task.ended_ns = Some(self.world.now_ns);
            for head in region.pages.step_by(region.folio_pages as usize) {
                self.world.release(head, region.folio_pages);
            }
        } else {
            self.begin_flow(number);
        }
        fits
    }

    /// Runs to the end; `progress` is told simulated seconds now and then, and which share of all
    /// accesses is done, if an end of them is known.
    pub fn finish(mut self, progress: &mut dyn FnMut(f64, Option<f64>)) -> Run {
        let end_ns = (self.scenario.seconds * 1e9) as u64;
        let mut told_ns = 0;
        let all = (self.tasks.iter().map(|task| task.plan.accesses()))
            .fold(0u64, u64::saturating_add)
            .max(1);
        while self.world.now_ns < end_ns && self.tasks.iter().any(Task::is_running) {
            self.step();
            if self.world.now_ns >= told_ns {
                let done = self.world.counters.accesses as f64 / all as f64;
                progress(
                    self.world.now_ns as f64 * 1e-9,
                    (done <= 1.0).then_some(done),
                );
                told_ns = self.world.now_ns + 1_000_000_000;
            }
        }
        self.result()
    }

    /// What it came to so far.
    pub fn result(mut self) -> Run {
        self.sample();
        let ended = self
            .tasks
            .iter()
            .map(|task| task.ended_ns.unwrap_or(self.world.now_ns));
        Run {
            scenario: self.scenario.name,
            system: self.system_name.to_owned(),
            seed: self.scenario.seed,
            mode: self.scenario.mode,
            elapsed_s: ended.max().unwrap_or(0) as f64 * 1e-9,
            is_complete: !self.tasks.iter().any(Task::is_running),
            busy_s: self.world.counters.busy_ns * 1e-9,
            is_paced: self.tasks.iter().any(|task| !task.least_ns.is_empty()),
            page_weight: self.world.spec.page_weight,
            counters: self.world.counters,
            series: self.sampled,
            details: self.system.details(),
        }
    }

    /// One slice.
    pub fn step(&mut self) {
        let slice_ns = self.scenario.slice_us * 1000;
        let before = self.world.counters;
        self.last_moved.clear();
        for number in 0..self.tasks.len() {
            self.access(number, slice_ns);
        }
        self.world.now_ns += slice_ns;
        self.scan();
        for nid in 0..self.world.nodes.len() {
            reclaim(
                &mut self.world,
                nid,
                self.system.is_tiering(),
                slice_ns as f64,
            );
        }
        self.system.step(&mut self.world, &self.tasks);
        self.note_moves();
        self.crowd_up(&before, slice_ns);
        for number in 0..self.tasks.len() {
            self.next_phase(number);
        }
        let sample_ns = self.scenario.sample_ms * 1_000_000;
        if self.world.now_ns / sample_ns != (self.world.now_ns - slice_ns) / sample_ns {
            self.sample();
        }
    }

    fn access(&mut self, number: usize, slice_ns: u64) {
        let task = &mut self.tasks[number];
        if !task.is_running() {
            return;
        }
        let (world, system) = (&mut self.world, &mut *self.system);
        match self.scenario.mode {
            Mode::Exact => exact::advance(world, system, task, slice_ns, &self.crowd),
            Mode::Statistical => {
                self.flows[number].advance(world, system, task, slice_ns, &self.crowd);
            }
        }
        self.note_moves();
    }

    /// The statistical mode counts where each part's pages are.
    fn note_moves(&mut self) {
        if self.scenario.mode == Mode::Statistical {
            for moved in &self.world.moved {
                if let Some(region) = self.world.memory.region_of(moved.head) {
                    self.flows[region.process].note(&self.tasks[region.process], moved);
                }
            }
        }
        self.last_moved.append(&mut self.world.moved);
    }

    fn scan(&mut self) {
        if !self.system.is_tiering() {
            return;
        }
        let is_statistical = self.scenario.mode == Mode::Statistical;
        for (task, flow) in self.tasks.iter_mut().zip(&mut self.flows) {
            if !task.is_running() {
                continue;
            }
            let mut marked = Vec::new();
            let mut scan = task.scan.clone();
            let spent_ns = scan.step(&mut self.world, &task.region, &mut |head| marked.push(head));
            task.scan = scan;
            if is_statistical {
                for head in marked {
                    flow.note_marked(task, head, self.world.now_ns);
                }
            }
            // A different thread each time; on average each pays its share.
            self.world.counters.stolen_ns += spent_ns;
            self.world.counters.busy_ns += spent_ns;
            let threads = task.threads.len() as f64;
            for thread in &mut task.threads {
                thread.ahead_ns += spent_ns / threads;
            }
        }
    }

    fn next_phase(&mut self, number: usize) {
        let task = &mut self.tasks[number];
        if !task.is_running() || !task.is_phase_over(self.world.now_ns) {
            return;
        }
        task.phase += 1;
        task.begin_phase(self.world.now_ns);
        if task.is_running() {
            self.begin_flow(number);
            return;
        }
        if let Heat::Drawn(drawn) = &mut self.world.heat {
            drawn.rates.end(number, self.world.now_ns);
        }
        let region = task.region.clone();
        for head in region.pages.clone().step_by(region.folio_pages as usize) {
            self.world.release(head, region.folio_pages);
        }
    }

    fn begin_flow(&mut self, number: usize) {
        if self.scenario.mode == Mode::Statistical {
            self.flows[number].begin_phase(&mut self.world, &self.tasks[number]);
        }
    }

    /// Who asks a node for more than it can give waits longer: latency rises until it fits.
    fn crowd_up(&mut self, before: &Counters, slice_ns: u64) {
        let all = (self.world.counters.accesses - before.accesses) as f64;
        let near = (self.world.counters.near_accesses - before.near_accesses) as f64;
        let specs = self.world.spec.node.iter().zip(&self.world.nodes);
        for (crowd, (spec, node)) in self.crowd.iter_mut().zip(specs) {
            let Some(mib_s) = spec.bandwidth_mib_s else {
                continue;
            };
            let asked = if node.is_top_tier { near } else { all - near };
            let given = mib_s as f64 * f64::from(1 << 20) * slice_ns as f64 * 1e-9 / LINE_BYTES;
            *crowd = (*crowd * (asked / given).sqrt().clamp(0.5, 2.0)).clamp(1.0, 1000.0);
        }
    }

    fn sample(&mut self) {
        let counters = &self.world.counters;
        let sample = Sample {
            t_s: self.world.now_ns as f64 * 1e-9,
            promoted_pages: counters.promoted_pages,
            demoted_pages: counters.demoted_pages,
            accesses: counters.accesses,
            near_accesses: counters.near_accesses,
        };
        if self.sampled.last().is_none_or(|last| last.t_s < sample.t_s) {
            self.sampled.push(sample);
        }
    }
}

/// The machine with room for all processes, and nothing in it.
fn lay_out(scenario: &Scenario) -> World {
    let mut homes: Vec<u32> = scenario.machine.lower_tier().collect();
    if homes.is_empty() {
        homes.push(0);
    }
    let region = |(spec, process): (&ProcessSpec, usize)| Region {
        process,
        pid: process as u32 + 1,
        pages: 0..spec.pages(),
        backing: spec.backing,
        folio_pages: spec.backing.folio_pages(),
        home: spec.home.unwrap_or(homes[0]),
    };
    let memory = Memory::new(
        scenario.process.iter().zip(0..).map(region).collect(),
        &homes,
    );
    let heat = match scenario.mode {
        Mode::Exact => Heat::Bits,
        Mode::Statistical => {
            let rates = Rates::new(scenario.process.len());
            Heat::Drawn(Box::new(Drawn::new(rates, memory.end(), scenario.seed)))
        }
    };
    World::new(&scenario.machine, memory, heat)
}

/// Gives a process its memory.
fn start(
    world: &mut World,
    scenario: &Scenario,
    spec: &ProcessSpec,
    number: usize,
) -> Result<Task, Error> {
    let region = world.memory.regions()[number].clone();
    let (plan, least_ns) = spec.plan(&scenario.machine);
    let near_end = region.pages.start + plan.near_pages;
    for head in region.pages.clone().step_by(region.folio_pages as usize) {
        let nid = if head < near_end {
            spec.node
        } else {
            region.home
        };
        if !world.allocate(head, region.folio_pages, nid as usize) {
            return Err(Error::field(
                format!("process[{number}].memory_mib"),
                "there is no room left for it above the watermarks of all nodes",
            ));
        }
    }
    let threads = (0..spec.threads).map(|_| Thread {
        ahead_ns: 0.0,
        pages: None,
    });
    Ok(Task {
        number,
        node: spec.node as usize,
        first_cpu: scenario.process[..number]
            .iter()
            .map(|before| before.threads)
            .sum(),
        threads: threads.collect(),
        phase: 0,
        left: 0,
        ended_ns: None,
        scan: Scan::new(&region, spec.mappings, &scenario.machine.kernel, 0),
        // Each process has random numbers of its own.
        seed: scenario.seed.wrapping_add(number as u64),
        region,
        plan,
        least_ns,
        began_ns: 0,
    })
}
