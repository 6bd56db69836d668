//! What is asked about: a recorded profile or a described scenario, on machines of any size.

use std::sync::OnceLock;

use pghot_profile::{BLOCK_PAGES, Profile};
use pghot_workloads::plan::Pattern;

use super::point::Ask;
use crate::Error;
use crate::machine::{MachineSpec, NodeSpec, PAGES_PER_MIB};
use crate::scenario::replay::{self, Assumed};
use crate::scenario::{Mode, Scenario, thin};

/// Memory that a run models page by page, in MiB. Of more, each modelled page stands for several:
/// two million pages are laid out in 20 ms, and their accessed bits read in as much.
const MODELLED_MIB: u64 = 8192;

/// A working set that is modelled with less than this has points of a few blocks.
const WORKING_SET_MIB_MIN: u64 = 512;

/// By how much the memory of small processes, of which at least a block is left, may make the sum
/// larger.
const SMALL_SHARE_MAX: f64 = 0.05;

/// Accesses up to which a replay makes one after the other: half a second. Beyond, parts of the
/// memory are accessed at once, and neighbours that differ little are one part.
const EXACT_ACCESSES: u64 = 5_000_000;

/// By how much the time between two misses is varied; the places of the cached scenarios.
pub const MISSES: [f64; 3] = [0.5, 1.0, 2.0];

/// See the head of this file.
pub struct Subject {
    /// Shown in reports.
    pub name: String,
    /// All memory of its processes, in MiB.
    pub memory_mib: u64,
    /// What they access, in MiB.
    pub working_set_mib: u64,
    /// Pages of the machine that each modelled one stands for.
    pub weight: u64,
    source: Source,
    machine: MachineSpec,
    seed: u64,
    /// By [`MISSES`].
    bases: [OnceLock<Result<Scenario, String>>; 3],
}

enum Source {
    Recorded { profile: Profile, misses: f64 },
    Described(Box<Scenario>),
}

impl Subject {
    /// A recording, on a machine of two nodes or one that is given, with so many misses a second of
    /// CPU time.
    pub fn recorded(
        name: &str,
        profile: &Profile,
        machine: Option<MachineSpec>,
        misses: f64,
    ) -> Result<Subject, Error> {
        let machine = machine.unwrap_or_else(|| replay::machine(profile, 1));
        let memory_mib = replay::memory_mib(profile);
        let touched_mib = touched_pages(profile).div_ceil(PAGES_PER_MIB);
        let blocks_mib = u64::from(BLOCK_PAGES) / PAGES_PER_MIB;
        let thinned = |weight: u64| {
            let blocks = profile.processes.iter();
            let blocks = blocks.map(|it| u64::from(it.blocks).div_ceil(weight));
            blocks.sum::<u64>() * blocks_mib
        };
        let has_huge = profile
            .processes
            .iter()
            .any(|it| it.huge_blocks > it.blocks / 2);
        let weight = weight_of(memory_mib, touched_mib, has_huge, thinned);
        let profile = thin::profile(profile, weight as u32);
        Subject::new(
            name,
            memory_mib,
            weight,
            machine,
            Source::Recorded { profile, misses },
        )
    }

    /// A scenario.
    pub fn described(scenario: &Scenario) -> Result<Subject, Error> {
        let mib = |it: &crate::scenario::ProcessSpec| it.memory_mib;
        let memory_mib = scenario.process.iter().map(mib).sum();
        let thinned = |weight| {
            let processes = scenario.process.iter();
            processes.map(|it| thin::thin_mib(it, weight)).sum()
        };
        let has_huge = thin::first_huge(scenario).is_some();
        let weight = weight_of(memory_mib, memory_mib, has_huge, thinned);
        let machine = scenario.machine.clone();
        let source = Source::Described(Box::new(scenario.clone()));
        Subject::new(&scenario.name, memory_mib, weight, machine, source)
    }

    fn new(
        name: &str,
        memory_mib: u64,
        weight: u64,
        machine: MachineSpec,
        source: Source,
    ) -> Result<Subject, Error> {
        machine.check()?;
        if machine.lower_tier().next().is_none() {
            return Err(Error::field("machine.node", "there is no lower tier"));
        }
        let mut subject = Subject {
            name: name.to_owned(),
            memory_mib,
            working_set_mib: 0,
            weight,
            seed: match &source {
                Source::Described(scenario) => scenario.seed,
                Source::Recorded { .. } => 1,
            },
            source,
            machine,
            bases: Default::default(),
        };
        let base = subject.base(1)?;
        let accessed = base.process.iter().map(accessed_pages).sum::<u64>();
        let mib = (accessed * weight).div_ceil(PAGES_PER_MIB);
        subject.working_set_mib = mib.clamp(1, memory_mib.max(1));
        Ok(subject)
    }

    /// Whether it is a recording, whose accesses a second are assumed.
    pub fn is_recorded(&self) -> bool {
        matches!(self.source, Source::Recorded { .. })
    }

    /// The seed of the first run.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// A top tier of so many points of the working set, in MiB.
    pub fn mib_of(&self, points: u32) -> u64 {
        (self.working_set_mib * u64::from(points)).div_ceil(100)
    }

    /// The size, in points, that has room for all memory above the kernel's watermarks.
    pub fn points_max(&self) -> u32 {
        let all_mib = self.memory_mib + self.memory_mib / 20 + 64 * self.weight.min(4);
        (100 * all_mib)
            .div_ceil(self.working_set_mib)
            .min(u64::from(u32::MAX)) as u32
    }

    /// The latency of the nearest lower-tier node beyond that of the top tier, in ns, and that of
    /// the top tier.
    pub fn latencies_ns(&self) -> (f64, f64) {
        let node = self
            .machine
            .node
            .iter()
            .zip(0..)
            .find(|(it, _)| it.is_top_tier());
        let Some((node, nid)) = node else {
            return (0.0, 0.0);
        };
        let near = node.latency_ns.get(nid).copied().unwrap_or(0.0);
        let lower = self
            .machine
            .lower_tier()
            .filter_map(|nid| node.latency_ns.get(nid as usize));
        (lower.copied().fold(f64::INFINITY, f64::min) - near, near)
    }

    /// What runs for an answer.
    pub fn scenario(&self, ask: &Ask) -> Result<Scenario, Error> {
        let place = MISSES
            .iter()
            .position(|factor| *factor == ask.misses)
            .unwrap_or(1);
        let mut scenario = self.base(place)?;
        scenario.seed = ask.seed;
        let top_mib = match ask.top_mib {
            // Room for all, twice, so that no watermark is in the way.
            None => 2 * self.memory_mib + 1024 * self.weight,
            Some(mib) => mib,
        };
        let nodes = sized(&self.machine.node, top_mib, self.memory_mib, ask.latency);
        let machine = MachineSpec {
            node: nodes,
            ..self.machine.clone()
        };
        scenario.machine.node = thin::machine(&machine, self.weight).node;
        Ok(scenario)
    }

    /// The scenario of that many misses, thin, on a machine whose nodes are yet to be sized.
    fn base(&self, place: usize) -> Result<Scenario, Error> {
        let made = self.bases[place].get_or_init(|| {
            let made = self.make(MISSES[place]);
            made.map_err(|error| error.to_string())
        });
        made.clone().map_err(|what| {
            let (name, what) = what.split_once(": ").unwrap_or(("scenario", &what));
            Error::field(name, what)
        })
    }

    fn make(&self, factor: f64) -> Result<Scenario, Error> {
        let weight = self.weight;
        let nodes = sized(&self.machine.node, 1024 * weight, self.memory_mib, 1.0);
        let machine = MachineSpec {
            node: nodes,
            ..self.machine.clone()
        };
        let mut scenario = match &self.source {
            Source::Recorded { profile, misses } => {
                let assumed = Assumed {
                    machine: thin::machine(&machine, weight),
                    misses_per_cpu_s: misses * factor / weight as f64,
                };
                let mut scenario = replay::scenario(&self.name, profile, &assumed)?;
                let plans = scenario
                    .process
                    .iter()
                    .filter_map(|it| it.recorded.as_ref());
                let accesses = plans
                    .map(|it| it.plan.accesses())
                    .fold(0, u64::saturating_add);
                if accesses > EXACT_ACCESSES {
                    scenario.mode = Mode::Statistical;
                }
                scenario
            }
            Source::Described(described) => {
                let mut whole = Scenario {
                    name: self.name.clone(),
                    machine,
                    process: described.process.clone(),
                    ..**described
                };
                // What a benchmark does is decided on the machine that the file describes.
                let frozen = |it| thin::frozen(it, &described.machine);
                whole.process = described.process.iter().map(frozen).collect();
                whole.machine.costs.compute_ns /= factor;
                thin::scenario(&whole, weight)
            }
        };
        for process in &mut scenario.process {
            process.near_share = Some(1.0);
        }
        Ok(scenario)
    }
}

/// Nodes with so much top tier in all, each its part, and below as much as everything takes; the
/// lower tier so many times as far.
fn sized(nodes: &[NodeSpec], top_mib: u64, memory_mib: u64, latency: f64) -> Vec<NodeSpec> {
    let of_tier = |is_top: bool| {
        nodes
            .iter()
            .filter(move |node| node.is_top_tier() == is_top)
    };
    let sum = |is_top| {
        of_tier(is_top)
            .map(|node| node.memory_mib)
            .sum::<u64>()
            .max(1)
    };
    let (top, lower) = (sum(true), sum(false));
    // A twentieth and a bit for the watermarks.
    let lower_mib = memory_mib + memory_mib / 8 + 64 * of_tier(false).count() as u64;
    let part = |whole: u64, node: &NodeSpec, of: u64| {
        let part = u128::from(whole) * u128::from(node.memory_mib) / u128::from(of);
        (part as u64).max(1)
    };
    let is_lower: Vec<bool> = nodes.iter().map(|node| !node.is_top_tier()).collect();
    let node = |node: &NodeSpec| {
        let mut sized = node.clone();
        sized.resize(match node.is_top_tier() {
            true => part(top_mib, node, top),
            false => part(lower_mib, node, lower),
        });
        let to_nodes = sized.latency_ns.iter_mut().zip(&is_lower);
        let to_lower = to_nodes.filter(|(_, is_lower)| **is_lower);
        to_lower.for_each(|(ns, _)| *ns *= latency);
        sized
    };
    nodes.iter().map(node).collect()
}

/// How many pages each modelled one stands for: no more than it takes. Huge pages are few enough,
/// and do not fit between watermarks that are closer.
fn weight_of(
    memory_mib: u64,
    working_set_mib: u64,
    has_huge: bool,
    thinned_mib: impl Fn(u64) -> u64,
) -> u64 {
    let mut weight = 1;
    if has_huge {
        return weight;
    }
    while memory_mib / weight > MODELLED_MIB && weight < thin::WEIGHT_MAX {
        let next = 2 * weight;
        let larger = (thinned_mib(next) * next) as f64 / memory_mib as f64 - 1.0;
        if working_set_mib / next < WORKING_SET_MIB_MIN || larger > SMALL_SHARE_MAX {
            break;
        }
        weight = next;
    }
    weight
}

/// Pages that any interval of a profile touched.
pub fn touched_pages(profile: &Profile) -> u64 {
    let of = |process: &pghot_profile::Process| {
        let mut pages = Pages::new(process.pages());
        let touched = process.intervals.iter().map(|it| &it.touched);
        touched
            .flat_map(|it| it.runs())
            .for_each(|run| pages.add(run));
        pages.count()
    };
    profile.processes.iter().map(of).sum()
}

/// Pages that a process accesses in any of its phases.
fn accessed_pages(process: &crate::scenario::ProcessSpec) -> u64 {
    let mut pages = Pages::new(process.pages());
    let phases = process.recorded.iter().flat_map(|it| &it.plan.phases);
    for phase in phases.filter(|phase| phase.accesses > 0) {
        match &phase.pattern {
            Pattern::Random(range) | Pattern::Stream(range) => pages.add(range.clone()),
            Pattern::Repeated { pages: range, .. } => pages.add(range.clone()),
            Pattern::Skewed {
                hot,
                hot_percent,
                all,
            } => {
                pages.add(hot.clone());
                if *hot_percent < 100 {
                    pages.add(all.clone());
                }
            }
            Pattern::Weighted(parts) => {
                parts
                    .shares()
                    .for_each(|(range, _)| pages.add(range.clone()));
            }
            Pattern::Beside { hot, scanned, .. } => {
                pages.add(hot.clone());
                pages.add(scanned.clone());
            }
            Pattern::Sparse {
                pages: range,
                stride,
            } => {
                for page in range.clone().step_by(*stride as usize) {
                    pages.add(page..page + 1);
                }
            }
        }
    }
    pages.count()
}

/// A set of pages, a bit each.
struct Pages(Vec<u64>);

impl Pages {
    fn new(pages: u32) -> Pages {
        Pages(vec![0; pages.div_ceil(64) as usize])
    }

    fn add(&mut self, range: std::ops::Range<u32>) {
        let mut page = range.start;
        while page < range.end {
            let end = range.end.min((page / 64 + 1) * 64);
            let Some(word) = self.0.get_mut((page / 64) as usize) else {
                return;
            };
            let bits = u64::MAX >> (64 - (end - page));
            *word |= bits << (page % 64);
            page = end;
        }
    }

    fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }
}
