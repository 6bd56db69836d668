//! How much top tier does a program need, for a slowdown that is accepted? One answer, with how far
//! it may be off, under no balancing, the kernel's tiering and pghot.
//!
//! | module | job |
//! |---|---|
//! | [`subject`] | what is asked about, on machines of any size |
//! | [`fit`] | whether a recording is good enough |
//! | [`search`] | the smallest size that suffices |
//! | [`point`] | one run |
//! | [`interval`] | how far the answer may be off, and what to do |
//! | [`change`] | what would change the answer |
//!
//! Sizes are in points: hundredths of the working set, which is all memory that is accessed. The
//! slowdown is that of the work against everything in the top tier. The interval has three
//! parts, which have nothing to do with each other: other seeds, a lower tier that is nearer or
//! further ([`interval::LATENCY_BAND`]), and the model's own error: the accesses that the lower
//! tier serves may be more or fewer by [`interval::MODEL_FACTORS`].

pub mod change;
pub mod fit;
pub mod interval;
pub mod point;
mod runner;
pub mod search;
pub mod subject;

use std::num::NonZero;

use schemars::JsonSchema;
use serde::Serialize;

use crate::Error;
use change::Change;
use interval::{Band, LATENCY_BAND, Verdict, model_factor, together};
use point::Came;
use runner::{Limit, Runner};
use subject::Subject;

/// The systems that are compared: those a machine can be set to.
pub const SYSTEMS: [&str; 3] = ["none", "numab2", "pghot"];

/// Runs with other seeds that a band takes, at most: as many as bisection of the whole range.
const BAND_RUNS: u32 = 8;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Question {
    /// The slowdown that is accepted, in percent.
    pub slowdown_percent: f64,
    /// Runs with different seeds.
    pub seeds: u64,
    /// Sizes up to the working set that are looked at first.
    pub coarse_steps: u32,
    /// Whether to try what would change the answer.
    pub with_changes: bool,
    /// Runs at the same time, or as many as there are CPUs. It changes no answer.
    pub jobs: Option<NonZero<usize>>,
}

impl Default for Question {
    fn default() -> Question {
        Question {
            slowdown_percent: 2.0,
            seeds: 3,
            coarse_steps: search::COARSE_STEPS,
            with_changes: true,
            jobs: None,
        }
    }
}

/// Runs that are done, kept for whoever asks again.
pub trait Kept: Sync {
    /// What a run came to, by its key.
    fn find(&self, key: &str) -> Option<Came>;
    /// Keeps it.
    fn keep(&self, key: &str, came: &Came) -> Result<(), Error>;
}

/// A size of the top tier.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Size {
    /// In MiB.
    pub mib: u64,
    /// In percent of the working set.
    pub percent: u32,
}

/// How much one system needs.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Need {
    /// The system.
    pub system: String,
    /// The answer; none if even all memory in the top tier is too slow.
    pub top: Option<Size>,
    /// At least.
    pub low: Option<Size>,
    /// At most.
    pub high: Option<Size>,
    /// The parts of the interval, in percent of the working set.
    pub parts: Option<Parts>,
    /// Two sizes, in percent of the working set, of which the larger was clearly slower.
    pub rises: Option<(u32, u32)>,
    /// The runs with the first seed, by size.
    pub curve: Vec<CurvePoint>,
}

/// The parts of an interval, each around the answer, in percent of the working set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Parts {
    /// With other seeds.
    pub seeds: Band,
    /// With a lower tier that is nearer, or further.
    pub latency: Band,
    /// By the model's published error.
    pub model: Band,
}

/// One size of one system.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct CurvePoint {
    /// The size.
    pub size: Size,
    /// Slowdown, in percent; none if the work was not done in time.
    pub slowdown_percent: Option<f64>,
    /// The same if the model errs to the good side.
    pub slowdown_low_percent: Option<f64>,
    /// And to the bad side.
    pub slowdown_high_percent: Option<f64>,
    /// What the run came to.
    #[serde(flatten)]
    pub came: Came,
}

/// The answer for one subject.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Advice {
    /// The profile or the scenario.
    pub name: String,
    /// The slowdown that is accepted, in percent.
    pub slowdown_percent: f64,
    /// All memory of its processes, in MiB.
    pub memory_mib: u64,
    /// What of it is accessed, in MiB.
    pub working_set_mib: u64,
    /// Pages that each modelled page stands for.
    pub page_weight: u64,
    /// What to do.
    pub verdict: Verdict,
    /// The answer: what the system of the verdict needs.
    pub top: Option<Size>,
    /// At least.
    pub low: Option<Size>,
    /// At most.
    pub high: Option<Size>,
    /// By system.
    pub needs: Vec<Need>,
    /// What would change the answer, most first.
    pub changes: Vec<Change>,
    /// Why the interval is wider than the model says, and what else is to be known.
    pub remarks: Vec<String>,
}

/// What one system was found to need, in points.
struct Found {
    system: &'static str,
    answer: Option<u32>,
    seeds: Band,
    latency: Band,
    model: Band,
}

/// Answers. `doubts` are about the recording, and widen the interval; `progress` is told how many
/// of about how many runs are done.
pub fn advise(
    subject: &Subject,
    question: &Question,
    doubts: &[String],
    kept: &dyn Kept,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Advice, Error> {
    let runner = Runner::new(subject, question, kept, progress);
    let base = |system| Limit::of(subject, system);
    runner.coarse(&SYSTEMS.map(base))?;
    let answers = runner.each(&SYSTEMS, |system| runner.smallest(&base(system)));
    let answers: Vec<Option<u32>> = answers.into_iter().collect::<Result<_, _>>()?;
    let found = bands(&runner, &answers)?;
    let max = subject.points_max();
    let own = |found: &Found| {
        let own = [found.seeds, found.model];
        found.answer.map(|answer| together(answer, &own, max, 1.0))
    };
    let verdict = Verdict::of(own(&found[0]), own(&found[1]), own(&found[2]));
    let changes = match question.with_changes {
        true => change::changes(&runner, verdict, &answers)?,
        false => Vec::new(),
    };
    let wider = fit::wider(doubts.len());
    let needs: Vec<Need> = found
        .iter()
        .map(|found| need(&runner, found, wider))
        .collect();
    let chosen = needs.iter().find(|need| need.system == verdict.system());
    let size = |of: fn(&Need) -> Option<Size>| chosen.and_then(of);
    Ok(Advice {
        name: subject.name.clone(),
        slowdown_percent: question.slowdown_percent,
        memory_mib: subject.memory_mib,
        working_set_mib: subject.working_set_mib,
        page_weight: subject.weight,
        verdict,
        top: size(|need| need.top),
        low: size(|need| need.low),
        high: size(|need| need.high),
        remarks: doubts.iter().cloned().chain(remarks(&needs)).collect(),
        needs,
        changes,
    })
}

/// A variation of one system's search.
enum Part {
    Seeds,
    Latency,
    Model,
}

/// The three bands of each system, all searched at the same time.
fn bands(runner: &Runner<'_>, answers: &[Option<u32>]) -> Result<Vec<Found>, Error> {
    let subject = runner.subject;
    let mut tasks: Vec<(usize, Part, Limit)> = Vec::new();
    for (number, system) in SYSTEMS.into_iter().enumerate() {
        let base = Limit::of(subject, system);
        for seed in 1..runner.question.seeds {
            let seed = subject.seed().wrapping_add(seed);
            tasks.push((
                number,
                Part::Seeds,
                Limit {
                    seed,
                    ..base.clone()
                },
            ));
        }
        for latency in [1.0 / LATENCY_BAND, LATENCY_BAND] {
            tasks.push((
                number,
                Part::Latency,
                Limit {
                    latency,
                    ..base.clone()
                },
            ));
        }
        let factor = model_factor(system);
        for far_factor in [1.0 / factor, factor]
            .into_iter()
            .filter(|factor| *factor != 1.0)
        {
            tasks.push((
                number,
                Part::Model,
                Limit {
                    far_factor,
                    ..base.clone()
                },
            ));
        }
    }
    // One that does not suffice at any size is off to the largest.
    let max = subject.points_max();
    let sizes = runner.each(&tasks, |(number, _, limit)| match answers[*number] {
        Some(answer) => Ok(runner.near(limit, answer, BAND_RUNS)?.unwrap_or(max)),
        None => Ok(max),
    });
    let sizes: Vec<u32> = sizes.into_iter().collect::<Result<_, Error>>()?;
    let found = |(number, system): (usize, &'static str)| {
        let answer = answers[number];
        let band = |is_it: fn(&Part) -> bool| {
            let own = tasks.iter().zip(&sizes);
            let own = own.filter(|((of, part, _), _)| *of == number && is_it(part));
            Band::of(answer.unwrap_or(max), own.map(|(_, size)| *size))
        };
        Found {
            system,
            answer,
            seeds: band(|part| matches!(part, Part::Seeds)),
            latency: band(|part| matches!(part, Part::Latency)),
            model: band(|part| matches!(part, Part::Model)),
        }
    };
    Ok(SYSTEMS.into_iter().enumerate().map(found).collect())
}

fn need(runner: &Runner<'_>, found: &Found, wider: f64) -> Need {
    let subject = runner.subject;
    let size = |percent: u32| Size {
        mib: subject.mib_of(percent),
        percent,
    };
    let parts = [found.seeds, found.latency, found.model];
    let whole = found
        .answer
        .map(|answer| together(answer, &parts, subject.points_max(), wider));
    let limit = Limit::of(subject, found.system);
    let known = runner.known(&limit);
    let point = |percent: u32, came: Came| {
        let slowdown = |factor| {
            let slowdown = came.slowdown_percent(runner.best_s(&limit)?, factor);
            slowdown.is_finite().then_some(slowdown)
        };
        let factor = model_factor(found.system);
        CurvePoint {
            size: size(percent),
            slowdown_percent: slowdown(1.0),
            slowdown_low_percent: slowdown(1.0 / factor),
            slowdown_high_percent: slowdown(factor),
            came,
        }
    };
    Need {
        system: found.system.to_owned(),
        top: found.answer.map(size),
        low: whole.map(|band| size(band.low)),
        high: whole.map(|band| size(band.high)),
        parts: found.answer.map(|_| Parts {
            seeds: found.seeds,
            latency: found.latency,
            model: found.model,
        }),
        rises: runner.rise(&limit),
        curve: known
            .into_iter()
            .map(|(percent, came)| point(percent, came))
            .collect(),
    }
}

fn remarks(needs: &[Need]) -> impl Iterator<Item = String> + '_ {
    let rising = needs
        .iter()
        .filter_map(|need| Some((&need.system, need.rises?)));
    rising.map(|(system, (smaller, larger))| {
        format!(
            "The curve of {system} does not fall everywhere: {larger} % of the working set was \
             slower than {smaller} %. The answer is the smallest size from which on all sizes that \
             were run hold."
        )
    })
}
