//! `pghot sim sweep`: how much of the top tier a scenario needs, and what a tunable is worth.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};
use pghot_sim::sweep::report::{answers, csv, page};
use pghot_sim::sweep::shard::{Merged, Ran, Shard, merge};
use pghot_sim::sweep::{Plan, Sweep, curves, parquet};

use crate::args::jobs;
use crate::exit::Failure;
use crate::output::say;
use crate::progress::Progress;
use crate::sim_compare::{scenario, systems};
use crate::sim_replay;

/// The command.
pub fn command() -> Command {
    let vary = Arg::new("vary")
        .long("vary")
        .value_name("SYSTEM.NAME=V1,V2")
        .action(ArgAction::Append)
        .help(
            "Values of a system's setting, as pghot.freq_threshold=1,2; every combination is run",
        );
    let top = Arg::new("top")
        .long("top")
        .value_name("PERCENTS")
        .value_delimiter(',')
        .value_parser(value_parser!(u32).range(1..=100))
        .default_value("100,90,80,70,60,50,40,30,20")
        .help("Sizes of the top tier, in percent of the scenario's; the rest becomes lower tier");
    let seeds = Arg::new("seeds")
        .long("seeds")
        .value_name("N")
        .value_parser(value_parser!(u64).range(1..))
        .default_value("1")
        .help("Runs of each");
    let shard = Arg::new("shard")
        .long("shard")
        .value_name("I/N")
        .value_parser(|text: &str| text.parse::<Shard>())
        .help(
            "Run part I of N, into sweep-I-of-N.parquet; `pghot sim merge` makes of all parts what \
             one run gives",
        );
    Command::new("sweep")
        .about("Vary the size of the top tier, and settings: how much DRAM can be dropped?")
        .args([scenario(), systems(), vary, top, seeds, slowdown(), out()])
        .args([shard, jobs(), sim_replay::misses()])
}

/// The command that puts shards together.
pub fn merge_command() -> Command {
    let shards = Arg::new("shards")
        .value_name("FILES")
        .value_hint(ValueHint::FilePath)
        .value_parser(value_parser!(PathBuf))
        .num_args(1..)
        .required(true)
        .help("All shards of one sweep, in any order");
    Command::new("merge")
        .about("Put the shards of a sweep together: the files that one run would have written")
        .args([shards, slowdown(), out()])
}

fn slowdown() -> Arg {
    Arg::new("slowdown")
        .long("slowdown")
        .value_name("PERCENT")
        .value_parser(value_parser!(f64))
        .default_value("2")
        .help("The slowdown that is still accepted, for the answer")
}

fn out() -> Arg {
    Arg::new("out")
        .long("out")
        .value_name("DIR")
        .value_hint(ValueHint::DirPath)
        .value_parser(value_parser!(PathBuf))
        .default_value("out")
        .help("Where sweep.csv, sweep.html and sweep.parquet go")
}

/// Runs it.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let path = matches.get_one::<PathBuf>("scenario");
    let path = path.ok_or_else(|| anyhow!("a scenario is missing"))?;
    let limit_percent = limit_percent(matches)?;
    let sweep = Sweep {
        scenario: sim_replay::load(path, matches)?,
        plan: plan(matches)?,
    };
    let progress = Progress::new();
    let tell = |done, all| {
        progress.tell(done as f64 / all as f64, &format!("{done} of {all} runs"));
    };
    let jobs = matches.get_one("jobs").copied();
    match matches.get_one::<Shard>("shard") {
        Some(shard) => {
            let ran = sweep.run_shard(*shard, jobs, &tell)?;
            drop(progress);
            let name = format!("sweep-{}.parquet", shard.to_string().replace('/', "-of-"));
            let path = write(matches, &name, &ran.to_parquet()?)?;
            say(&format!("{}\n", path.display()))
        }
        None => {
            let merged = sweep.run(jobs, &tell)?;
            drop(progress);
            write_all(matches, &merged, limit_percent)
        }
    }
}

/// Puts shards together.
pub fn run_merge(matches: &ArgMatches) -> Result<()> {
    let limit_percent = limit_percent(matches)?;
    let read = |path: &PathBuf| {
        let bytes = fs::read(path).map_err(|error| {
            let sentence = format!("cannot read {}: {error}", path.display());
            anyhow::Error::new(error).context(sentence)
        })?;
        let name = path.display().to_string();
        let ran = Ran::from_parquet(&name, bytes)?;
        Ok((name, ran))
    };
    let paths = matches.get_many::<PathBuf>("shards").unwrap_or_default();
    let shards = paths.map(read).collect::<Result<_>>()?;
    write_all(matches, &merge(shards)?, limit_percent)
}

fn limit_percent(matches: &ArgMatches) -> Result<f64> {
    let limit_percent = matches.get_one::<f64>("slowdown").copied().unwrap_or(2.0);
    match limit_percent.is_finite() && limit_percent >= 0.0 {
        true => Ok(limit_percent),
        false => Err(Failure::Usage(format!(
            "--slowdown {limit_percent}: it is not a percentage"
        ))
        .into()),
    }
}

fn plan(matches: &ArgMatches) -> Result<Plan> {
    let plan = Plan {
        systems: all(matches, "systems"),
        settings: all(matches, "vary")
            .iter()
            .map(|text| varied(text))
            .collect::<Result<_>>()?,
        top_percents: matches
            .get_many("top")
            .unwrap_or_default()
            .copied()
            .collect(),
        seeds: matches.get_one::<u64>("seeds").copied().unwrap_or(1),
    };
    let mut settings = plan.settings.iter();
    let unknown = settings.find(|(system, _, _)| !plan.systems.contains(system));
    if let Some((system, name, _)) = unknown {
        return Err(Failure::Usage(format!(
            "--vary {system}.{name}: {system} is not among the systems that run"
        ))
        .into());
    }
    Ok(plan)
}

fn write_all(matches: &ArgMatches, merged: &Merged, limit_percent: f64) -> Result<()> {
    let Merged { scenario, rows } = merged;
    let curves = curves(rows);
    write(matches, "sweep.csv", &csv(rows)?)?;
    write(matches, "sweep.parquet", &parquet::write(rows)?)?;
    let page = page(scenario, &curves, limit_percent);
    let path = write(matches, "sweep.html", page.as_bytes())?;
    for answer in answers(&curves, limit_percent) {
        say(&format!("{answer}\n"))?;
    }
    say(&format!("all of it: {}\n", path.display()))
}

/// Puts a file into the folder of results, whole or not at all, and says where it is.
fn write(matches: &ArgMatches, name: &str, bytes: &[u8]) -> Result<PathBuf> {
    let out = matches
        .get_one::<PathBuf>("out")
        .map_or(Path::new("out"), PathBuf::as_path);
    fs::create_dir_all(out).map_err(|error| anyhow!("cannot make {}: {error}", out.display()))?;
    let path = out.join(name);
    let part = out.join(format!("{name}.part"));
    fs::write(&part, bytes)
        .and_then(|()| fs::rename(&part, &path))
        .map_err(|error| anyhow!("cannot write {}: {error}", path.display()))?;
    Ok(path)
}

fn all(matches: &ArgMatches, name: &str) -> Vec<String> {
    matches
        .get_many(name)
        .unwrap_or_default()
        .cloned()
        .collect()
}

/// `SYSTEM.NAME=V1,V2`
fn varied(text: &str) -> Result<(String, String, Vec<String>)> {
    let parts = text
        .split_once('=')
        .and_then(|(name, values)| Some((name.split_once('.')?, values)));
    let Some(((system, name), values)) = parts else {
        return Err(Failure::Usage(format!(
            "--vary {text}: it must be like pghot.freq_threshold=1,2"
        ))
        .into());
    };
    let values = values.split(',').map(str::to_owned).collect();
    Ok((system.to_owned(), name.to_owned(), values))
}
