//! A sweep in parts: every n-th point on each of n machines, and the parts put together again into
//! what one machine would have said, to the byte.
//!
//! Point 0 is the run with everything in the top tier that all others are compared with. It belongs
//! to one shard as any other point does, so no shard runs it for itself; a shard keeps times, and
//! slowdowns are computed when all are there.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZero;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::parquet::{self, Damage};
use super::plan::{Plan, Point};
use super::{Outcome, Row, Sweep, rows};
use crate::Error;
use crate::parallel;

/// The most shards of one sweep.
const SHARDS_MAX: u32 = super::plan::RUNS_MAX as u32;

/// Of the file of a shard.
const FORMAT: u32 = 1;

/// What wrote a shard: another model may say something else.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// One part of a sweep of so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Shard {
    number: u32,
    of: u32,
}

impl Shard {
    /// All of a sweep.
    pub const WHOLE: Shard = Shard { number: 1, of: 1 };

    /// Whether it has a point.
    fn has(self, point: usize) -> bool {
        point as u32 % self.of == self.number - 1
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let wrong = || format!("{text} is not a shard: it must be like 2/8, from 1/8 to 8/8");
        let (number, of) = text.split_once('/').ok_or_else(wrong)?;
        let [number, of] = [number, of].map(|part| part.parse::<u32>().map_err(|_| wrong()));
        let (number, of) = (number?, of?);
        match (1..=of).contains(&number) && of <= SHARDS_MAX {
            true => Ok(Shard { number, of }),
            false => Err(wrong()),
        }
    }
}

impl TryFrom<String> for Shard {
    type Error = String;

    fn try_from(text: String) -> Result<Shard, String> {
        text.parse()
    }
}

impl From<Shard> for String {
    fn from(shard: Shard) -> String {
        shard.to_string()
    }
}

/// What a shard's file says of its sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    pub(super) format: u32,
    /// The pghot that ran it.
    pub(super) version: String,
    /// The scenario's name.
    scenario: String,
    /// CRC-32 of all that the scenario says.
    scenario_crc32: u32,
    first_seed: u64,
    pub(super) plan: Plan,
    shard: Shard,
}

/// A run, with its number in the sweep.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Run {
    pub point: u32,
    pub system: String,
    pub settings: String,
    pub top_percent: u32,
    pub seed: u64,
    pub outcome: Outcome,
}

impl Run {
    fn new(number: usize, point: &Point, outcome: Outcome) -> Run {
        Run {
            point: number as u32,
            system: point.system.clone(),
            settings: point.settings_text(),
            top_percent: point.top_percent,
            seed: point.seed,
            outcome,
        }
    }

    /// Whether it is the run of that point.
    fn is_of(&self, point: &Point) -> bool {
        self.system == point.system
            && self.settings == point.settings_text()
            && self.top_percent == point.top_percent
            && self.seed == point.seed
    }
}

/// A shard that was run.
#[derive(Debug, Clone, PartialEq)]
pub struct Ran {
    pub(super) header: Header,
    pub(super) runs: Vec<Run>,
}

/// A shard that is none, or not of this sweep.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum MergeError {
    /// The file is no shard.
    #[error("{file} is not a shard of a sweep: {why}; `pghot sim sweep --shard` writes them")]
    Damaged {
        /// The file.
        file: String,
        /// Why not.
        why: Damage,
    },
    /// It does not fit the others.
    #[error("{file}: {field}: {what}")]
    Field {
        /// The file.
        file: String,
        /// The field.
        field: String,
        /// What is wrong with it.
        what: String,
    },
    /// No shard at all.
    #[error("there are no shards to merge; `pghot sim sweep --shard` writes them")]
    Nothing,
    /// Not all are there.
    #[error("of {file}'s sweep the shards {missing} are missing; run them, or name their files")]
    Missing {
        /// One that is there.
        file: String,
        /// Which are not.
        missing: String,
    },
}

impl Sweep {
    /// Runs a shard, with at most `jobs` runs at the same time, or as many as there are CPUs;
    /// `progress` is told how many of how many are done. In the order of the points, whichever
    /// thread was first.
    pub fn run_shard(
        &self,
        shard: Shard,
        jobs: Option<NonZero<usize>>,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Ran, Error> {
        let own = points(&self.plan, self.scenario.seed)?.into_iter();
        let own: Vec<_> = own.enumerate().filter(|(n, _)| shard.has(*n)).collect();
        let run = |(number, point): &(usize, Point)| {
            let outcome = match number {
                0 => self.run_all_near(point),
                _ => self.run_one(point),
            };
            outcome.map(|outcome| Run::new(*number, point, outcome))
        };
        let runs = parallel::each_of(&own, jobs, run, &|done| progress(done, own.len()));
        let header = Header {
            format: FORMAT,
            version: VERSION.to_owned(),
            scenario: self.scenario.name.clone(),
            scenario_crc32: crc32_of(&self.scenario),
            first_seed: self.scenario.seed,
            plan: self.plan.clone(),
            shard,
        };
        Ok(Ran {
            header,
            runs: runs.into_iter().collect::<Result<_, Error>>()?,
        })
    }
}

/// The baseline, and behind it the points of the plan.
fn points(plan: &Plan, first_seed: u64) -> Result<Vec<Point>, Error> {
    let baseline = Point {
        system: "none".to_owned(),
        settings: Vec::new(),
        top_percent: 100,
        seed: first_seed,
    };
    let mut points = vec![baseline];
    points.extend(plan.points(first_seed)?);
    Ok(points)
}

/// CRC-32 of what a value shows of itself, which of all that decides a run is everything.
fn crc32_of(value: &impl fmt::Debug) -> u32 {
    struct Sink(crc32fast::Hasher);
    impl fmt::Write for Sink {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.update(text.as_bytes());
            Ok(())
        }
    }
    let mut sink = Sink(crc32fast::Hasher::new());
    // This sink takes everything.
    let _ = fmt::write(&mut sink, format_args!("{value:?}"));
    sink.0.finalize()
}

impl Ran {
    /// A sweep's runs, if these are all of them.
    pub(super) fn into_whole(self) -> Merged {
        Merged {
            scenario: self.header.scenario,
            rows: rows(self.runs),
        }
    }

    /// Its file, in Parquet.
    pub fn to_parquet(&self) -> Result<Vec<u8>, Damage> {
        parquet::write_shard(&self.header, &self.runs)
    }

    /// Reads one, and checks that it is a whole one.
    pub fn from_parquet(file: &str, bytes: Vec<u8>) -> Result<Ran, MergeError> {
        let damaged = |why| MergeError::Damaged {
            file: file.to_owned(),
            why,
        };
        let (header, runs) = parquet::read_shard(bytes).map_err(damaged)?;
        let ran = Ran { header, runs };
        ran.check().map_err(|(field, what)| MergeError::Field {
            file: file.to_owned(),
            field,
            what,
        })?;
        Ok(ran)
    }

    /// Names the first field that cannot be.
    fn check(&self) -> Result<(), (String, String)> {
        let header = &self.header;
        let wrong = |field: &str, what: String| Err((field.to_owned(), what));
        if header.format != FORMAT {
            let what = format!("it is {}, and this pghot reads {FORMAT}", header.format);
            return wrong("format", what);
        }
        if header.version != VERSION {
            let what = format!("pghot {} ran it, and this is {VERSION}", header.version);
            return wrong("version", what);
        }
        let points = points(&header.plan, header.first_seed);
        let points = points.map_err(|error| ("plan".to_owned(), error.to_string()))?;
        let own = points.iter().enumerate();
        let own: Vec<_> = own.filter(|(n, _)| header.shard.has(*n)).collect();
        if own.len() != self.runs.len() {
            let what = format!("there are {}, and it has {}", own.len(), self.runs.len());
            return wrong("runs", what);
        }
        let fits = |(run, (n, point)): (&Run, &(usize, &Point))| {
            run.point as usize == *n && run.is_of(point)
        };
        if let Some(at) = self.runs.iter().zip(&own).position(|it| !fits(it)) {
            return wrong(
                &format!("runs[{at}]"),
                "it is not the run of its point".into(),
            );
        }
        Ok(())
    }
}

/// All fields that shards of one sweep have in common, by name.
fn common(header: &Header) -> [(&'static str, String); 8] {
    let plan = &header.plan;
    let varied = |(system, name, values): &(String, String, Vec<String>)| {
        format!("{system}.{name}={}", values.join(","))
    };
    let settings: Vec<String> = plan.settings.iter().map(varied).collect();
    let percents: Vec<String> = plan.top_percents.iter().map(u32::to_string).collect();
    [
        ("scenario", header.scenario.clone()),
        ("scenario_crc32", format!("{:08x}", header.scenario_crc32)),
        ("first_seed", header.first_seed.to_string()),
        ("systems", plan.systems.join(",")),
        ("settings", settings.join(" ")),
        ("top_percents", percents.join(",")),
        ("seeds", plan.seeds.to_string()),
        ("number of shards", header.shard.of.to_string()),
    ]
}

/// What a whole sweep says.
#[derive(Debug, Clone, PartialEq)]
pub struct Merged {
    /// The scenario's name.
    pub scenario: String,
    /// All runs, in the order of the points.
    pub rows: Vec<Row>,
}

/// Puts all shards of a sweep together, in any order; each with the name of its file.
pub fn merge(shards: Vec<(String, Ran)>) -> Result<Merged, MergeError> {
    let (first_file, first) = shards.first().ok_or(MergeError::Nothing)?;
    let mut files = BTreeMap::<u32, &str>::new();
    for (file, ran) in &shards {
        let wrong = |field: &str, what| {
            Err(MergeError::Field {
                file: file.clone(),
                field: field.to_owned(),
                what,
            })
        };
        let fields = common(&ran.header).into_iter().zip(common(&first.header));
        for ((field, own), (_, other)) in fields {
            if own != other {
                return wrong(
                    field,
                    format!("it is `{own}`, and in {first_file} `{other}`"),
                );
            }
        }
        let shard = ran.header.shard;
        if let Some(other) = files.insert(shard.number, file) {
            return wrong("shard", format!("it is {shard}, and so is {other}"));
        }
    }
    let of = first.header.shard.of;
    let missing = (1..=of).filter(|number| !files.contains_key(number));
    let mut missing: Vec<String> = missing
        .map(|it| Shard { number: it, of }.to_string())
        .collect();
    if !missing.is_empty() {
        let more = missing.len().saturating_sub(10);
        missing.truncate(10);
        if more > 0 {
            missing.push(format!("{more} more"));
        }
        return Err(MergeError::Missing {
            file: first_file.clone(),
            missing: missing.join(", "),
        });
    }
    let mut whole = first.clone();
    whole.runs = shards.into_iter().flat_map(|(_, ran)| ran.runs).collect();
    whole.runs.sort_by_key(|run| run.point);
    Ok(whole.into_whole())
}
