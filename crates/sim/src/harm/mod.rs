//! Does pghot ever make things worse? Random machines and workloads, where moving pays or does not,
//! each under no balancing, under the kernel's tiering, and under pghot with its defaults. One
//! number decides all of a scenario, so one that is found can be had again.

mod machines;
mod picture;

use std::fmt;
use std::ops::Range;

use crate::Error;
use crate::parallel;
use crate::run::{Run, Simulation};

pub use machines::scenario;
pub use picture::picture;

/// A scenario's cost under one system may be so many percent above that of doing nothing.
pub const HARM_PERCENT: f64 = 1.0;

/// What came of one scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// Time that all threads together worked without balancing, in s.
    pub none_s: f64,
    /// The same under the kernel's tiering.
    pub numab2_s: f64,
    /// The same under pghot.
    pub pghot_s: f64,
    /// CPU time of pghot's threads, in s, which is not in the time above.
    pub daemon_s: f64,
    /// What it is, in a few words.
    pub what: String,
}

impl Outcome {
    /// By how many percent programs take longer than without balancing, under the kernel's tiering
    /// and under pghot. Less than 0 is a gain.
    pub fn percent(&self) -> [f64; 2] {
        [self.numab2_s, self.pghot_s].map(|it| (it / self.none_s - 1.0) * 100.0)
    }

    /// What [`Outcome`]'s lines are, in the same order.
    pub const HEAD: &'static str = "seed\tnone_s\tnumab2_s\tpghot_s\tdaemon_s\twhat";

    /// Reads a line as it is displayed; none if it is no such line.
    pub fn parse(line: &str) -> Option<Outcome> {
        let mut fields = line.splitn(6, '\t');
        let seed = fields.next()?.parse().ok()?;
        let mut seconds = || {
            fields
                .next()?
                .parse::<f64>()
                .ok()
                .filter(|it| it.is_finite())
        };
        Some(Outcome {
            seed,
            none_s: seconds().filter(|it| *it > 0.0)?,
            numab2_s: seconds()?,
            pghot_s: seconds()?,
            daemon_s: seconds()?,
            what: fields.next()?.to_owned(),
        })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome {
            seed,
            none_s,
            numab2_s,
            pghot_s,
            daemon_s,
            what,
        } = self;
        let seconds = [none_s, numab2_s, pghot_s, daemon_s].map(|it| format!("{it:.4}"));
        write!(f, "{seed}\t{}\t{what}", seconds.join("\t"))
    }
}

/// Runs a scenario for each of these seeds, on all CPUs; `progress` is told how many are done.
pub fn outcomes(
    seeds: Range<u64>,
    progress: &(dyn Fn(usize) + Sync),
) -> Result<Vec<Outcome>, Error> {
    let seeds: Vec<u64> = seeds.collect();
    let found = parallel::each(&seeds, |seed| outcome(*seed), progress);
    found.into_iter().collect()
}

fn outcome(seed: u64) -> Result<Outcome, Error> {
    let scenario = scenario(seed);
    let run = |system: &str| -> Result<Run, Error> {
        let run = Simulation::new(&scenario, system, &[])?.finish(&mut |_, _| {});
        let too_few = || {
            let seconds = scenario.seconds;
            let why = format!("{seconds} are too few for seed {seed} under {system}");
            Error::field("seconds", why)
        };
        run.is_complete.then_some(run).ok_or_else(too_few)
    };
    let (none, numab2, pghot) = (run("none")?, run("numab2")?, run("pghot")?);
    Ok(Outcome {
        seed,
        none_s: none.busy_s,
        numab2_s: numab2.busy_s,
        pghot_s: pghot.busy_s,
        daemon_s: pghot.counters.daemon_ns / 1e9,
        what: scenario.name,
    })
}

/// The percentages of one system, 0 for the kernel's tiering and 1 for pghot: the greatest gain
/// first.
fn sorted(outcomes: &[Outcome], system: usize) -> Vec<f64> {
    let mut percent: Vec<f64> = outcomes.iter().map(|it| it.percent()[system]).collect();
    percent.sort_by(f64::total_cmp);
    percent
}

/// A sentence for each of the two systems and for both together, and the seeds where pghot did most
/// harm.
pub fn summary(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for (system, number) in [("numab2", 0), ("pghot", 1)] {
        let percent = sorted(outcomes, number);
        let harmed = percent.iter().filter(|it| **it > HARM_PERCENT).count();
        let gained = percent.iter().filter(|it| **it < -HARM_PERCENT).count();
        let (least, most) = (percent.first(), percent.last());
        let middle = percent.get(percent.len() / 2);
        if let (Some(least), Some(middle), Some(most)) = (least, middle, most) {
            text += &format!(
                "{system}: of {} scenarios {gained} gain and {harmed} lose more than \
                 {HARM_PERCENT:.0} %; {least:+.1} % at best, {middle:+.1} % in the middle, \
                 {most:+.1} % at worst\n",
                percent.len()
            );
        }
    }
    if !outcomes.is_empty() {
        let times = outcomes.iter().map(|it| it.pghot_s / it.numab2_s);
        let quicker = times.clone().filter(|it| *it < 1.0 - HARM_PERCENT / 100.0);
        let slower = times.filter(|it| *it > 1.0 + HARM_PERCENT / 100.0);
        text += &format!(
            "pghot against numab2: {} are quicker and {} slower by more than {HARM_PERCENT:.0} %\n",
            quicker.count(),
            slower.count()
        );
    }
    let mut worst: Vec<&Outcome> = outcomes.iter().collect();
    worst.sort_by(|a, b| b.percent()[1].total_cmp(&a.percent()[1]));
    for it in worst
        .iter()
        .take(5)
        .filter(|it| it.percent()[1] > HARM_PERCENT)
    {
        text += &format!("seed {}: {:+.1} %, {}\n", it.seed, it.percent()[1], it.what);
    }
    text
}

#[cfg(test)]
mod tests;
