//! `pghot advise`: how much top tier do programs need, that were recorded or are described?

mod kept;
mod page;
mod text;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};
use pghot_profile::file;
use pghot_sim::advise::subject::Subject;
use pghot_sim::advise::{Advice, Question, advise, fit};
use pghot_sim::machine::MachineSpec;
use pghot_sim::scenario::Scenario;
use schemars::JsonSchema;
use serde::Serialize;

use crate::args::{jobs, json};
use crate::exit::Failure;
use crate::json::Versioned;
use crate::output::{say, say_json};
use crate::progress::Progress;
use crate::sim_replay;
use kept::{Before, KeptFile, fingerprint};

/// Slowdowns that can be asked for, in percent.
const SLOWDOWN_PERCENT: std::ops::RangeInclusive<f64> = 0.1..=1000.0;

/// What `--json` prints.
#[derive(Serialize, JsonSchema)]
pub struct Answers {
    /// One of each file, in the order of the command line.
    pub answers: Vec<Advice>,
    /// What all need together, each for itself; none if one of them has no answer.
    pub together: Option<Together>,
}

/// Sums over all answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Together {
    /// In MiB.
    pub top_mib: u64,
    /// At least.
    pub low_mib: u64,
    /// At most.
    pub high_mib: u64,
}

/// The command.
pub fn command() -> Command {
    let files = Arg::new("files")
        .value_name("FILE")
        .num_args(1..)
        .required(true)
        .value_hint(ValueHint::FilePath)
        .value_parser(value_parser!(PathBuf))
        .help("Profiles, as `pghot record` writes them, or scenarios, in TOML");
    let slowdown = Arg::new("slowdown")
        .long("slowdown")
        .value_name("PERCENT")
        .default_value("2%")
        .allow_negative_numbers(true)
        .help("The slowdown that is accepted, against everything in the top tier");
    let machine = Arg::new("machine")
        .long("machine")
        .value_name("FILE")
        .value_hint(ValueHint::FilePath)
        .value_parser(value_parser!(PathBuf))
        .help("A scenario whose latencies, kernel and costs are taken for profiles");
    let seeds = Arg::new("seeds")
        .long("seeds")
        .value_name("N")
        .value_parser(value_parser!(u64).range(1..=100))
        .default_value("3")
        .help("Runs with different seeds, for the interval");
    let only = Arg::new("only-answer")
        .long("only-answer")
        .action(ArgAction::SetTrue)
        .help("Do not try what would change the answer");
    let out = Arg::new("out")
        .long("out")
        .value_name("DIR")
        .value_hint(ValueHint::DirPath)
        .value_parser(value_parser!(PathBuf))
        .default_value("out")
        .help("Where advise.html goes, and finished runs, so that an interrupted command goes on");
    Command::new("advise")
        .about("Say how much fast memory recorded programs need, and whether pghot helps")
        .long_about(
            "Say how much fast memory recorded programs need for a slowdown that is accepted, how \
             far that may be off, and whether pghot helps. A profile is played on modelled \
             machines with less and less top tier, with no balancing, numa_balancing=2 and pghot. \
             Recordings that are too short or of idle programs are refused. Of several files each \
             is answered, and the sum is told.",
        )
        .args([
            files,
            slowdown,
            machine,
            sim_replay::misses(),
            seeds,
            only,
            out,
            jobs(),
            json(),
        ])
}

/// Runs it.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let question = question(matches)?;
    let files: Vec<&PathBuf> = matches.get_many("files").unwrap_or_default().collect();
    let out = matches.get_one::<PathBuf>("out");
    let out = out.map_or(Path::new("out"), PathBuf::as_path);
    // All of them, before the first takes its minute.
    let asked: Vec<Asked> = (files.iter())
        .map(|path| asked(path, matches))
        .collect::<Result<_>>()?;
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let progress = Progress::new();
    let mut answers = Vec::new();
    for (number, one) in asked.iter().enumerate() {
        // Read once more: of ten thousand hosts one at a time is held.
        let (subject, doubts) = subject(&one.path, matches)?;
        let kept = open(out, &asked, number, &progress)?;
        let tell = |done: usize, expected: usize| {
            let part = done as f64 / expected as f64;
            let share = (number as f64 + part) / asked.len() as f64;
            let what = format!("{}: {done} of about {expected} runs", subject.name);
            progress.tell(share, &what);
        };
        let advice = advise(&subject, &question, &doubts, &kept, &tell);
        answers.push(advice.map_err(|error| of_file(&one.path, error))?);
    }
    drop(progress);
    let together = together(&answers);
    let answers = Answers { answers, together };
    let path = out.join("advise.html");
    fs::write(&path, page::page(&answers))
        .map_err(|error| anyhow!("cannot write {}: {error}", path.display()))?;
    match matches.get_flag("json") {
        true => say_json(&Versioned::of(answers)),
        false => say(&format!(
            "{}all of it: {}\n",
            text::text(&answers),
            path.display()
        )),
    }
}

fn question(matches: &ArgMatches) -> Result<Question> {
    let text = matches
        .get_one::<String>("slowdown")
        .map_or("2", String::as_str);
    let number = text.trim_end_matches('%').trim().parse::<f64>();
    let slowdown_percent = number
        .ok()
        .filter(|percent| SLOWDOWN_PERCENT.contains(percent));
    let Some(slowdown_percent) = slowdown_percent else {
        let (low, high) = (SLOWDOWN_PERCENT.start(), SLOWDOWN_PERCENT.end());
        let message = format!("--slowdown {text}: it must be a percentage from {low} to {high}");
        return Err(Failure::Usage(message).into());
    };
    Ok(Question {
        slowdown_percent,
        seeds: matches.get_one("seeds").copied().unwrap_or(3),
        with_changes: !matches.get_flag("only-answer"),
        jobs: matches.get_one("jobs").copied(),
        ..Question::default()
    })
}

/// A file that can be answered.
struct Asked {
    path: PathBuf,
    /// Tells it, and what is assumed, from all others.
    fingerprint: u64,
}

impl Asked {
    fn file_name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

fn asked(path: &Path, matches: &ArgMatches) -> Result<Asked> {
    subject(path, matches)?;
    let read = |path: &Path| fs::read(path).unwrap_or_default();
    let machine = matches.get_one::<PathBuf>("machine");
    let machine = machine.map(|machine| read(machine)).unwrap_or_default();
    let misses = sim_replay::misses_of(matches).to_bits().to_le_bytes();
    Ok(Asked {
        path: path.to_owned(),
        fingerprint: fingerprint(&[&read(path), &machine, &misses]),
    })
}

/// What a file describes, and what is doubtful about it.
fn subject(path: &Path, matches: &ArgMatches) -> Result<(Subject, Vec<String>)> {
    let of_path = |error| of_file(path, error);
    if !file::is_profile(path) {
        let scenario = Scenario::load(path).map_err(|error| neither(path, error))?;
        return Ok((Subject::described(&scenario).map_err(of_path)?, Vec::new()));
    }
    let profile = file::load(path)?;
    let doubts = fit::check(&profile)
        .map_err(|refusal| Failure::Usage(format!("{}: {refusal}", path.display())))?;
    let machine: Option<MachineSpec> = match matches.get_one::<PathBuf>("machine") {
        Some(machine) => {
            let described = Scenario::load(machine);
            Some(described.map_err(|error| of_file(machine, error))?.machine)
        }
        None => None,
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let misses = sim_replay::misses_of(matches);
    let subject = Subject::recorded(&name, &profile, machine, misses);
    Ok((subject.map_err(of_path)?, doubts))
}

/// What is no scenario could have been a profile.
fn neither(path: &Path, error: pghot_sim::Error) -> anyhow::Error {
    match error {
        pghot_sim::Error::Parse { .. } => Failure::Usage(format!(
            "{error}; and it is no profile, as `pghot record` writes them"
        ))
        .into(),
        other => of_file(path, other),
    }
}

/// An error about a field names the file that it is in.
fn of_file(path: &Path, error: pghot_sim::Error) -> anyhow::Error {
    match error {
        pghot_sim::Error::Field { .. } => {
            Failure::Usage(format!("{}: {error}", path.display())).into()
        }
        other => other.into(),
    }
}

/// Where the runs of one file are kept: by its name, with a number if there are several of it.
fn open(out: &Path, asked: &[Asked], number: usize, progress: &Progress) -> Result<KeptFile> {
    let name = &asked[number].file_name();
    let before = asked[..number].iter().filter(|it| it.file_name() == *name);
    let path = match before.count() {
        0 => out.join(format!("{name}.runs")),
        others => out.join(format!("{name}.{}.runs", others + 1)),
    };
    let (kept, before) = KeptFile::open(&path, asked[number].fingerprint)?;
    match before {
        Before::Nothing => {}
        Before::Runs(runs) => progress.note(&format!(
            "{}: {runs} finished runs are used, and need not run again",
            path.display()
        )),
        Before::Other => progress.note(&format!(
            "{}: the runs in it are of another file, other settings or another pghot, and are not \
             used",
            path.display()
        )),
    }
    Ok(kept)
}

fn together(answers: &[Advice]) -> Option<Together> {
    let sum = |of: fn(&Advice) -> Option<pghot_sim::advise::Size>| {
        let sizes = answers.iter().map(|answer| Some(of(answer)?.mib));
        sizes.sum::<Option<u64>>()
    };
    Some(Together {
        top_mib: sum(|answer| answer.top)?,
        low_mib: sum(|answer| answer.low)?,
        high_mib: sum(|answer| answer.high)?,
    })
}
