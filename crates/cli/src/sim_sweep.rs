//! `pghot sim sweep`: how much of the top tier a scenario needs, and what a tunable is worth.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use pghot_sim::sweep::report::{answers, page, write_csv};
use pghot_sim::sweep::{Sweep, curves};

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
    let slowdown = Arg::new("slowdown")
        .long("slowdown")
        .value_name("PERCENT")
        .value_parser(value_parser!(f64))
        .default_value("2")
        .help("The slowdown that is still accepted, for the answer");
    let out = Arg::new("out")
        .long("out")
        .value_name("DIR")
        .value_parser(value_parser!(PathBuf))
        .default_value("out")
        .help("Where sweep.csv and sweep.html go");
    Command::new("sweep")
        .about("Vary the size of the top tier, and settings: how much DRAM can be dropped?")
        .args([
            scenario(),
            systems(),
            vary,
            top,
            seeds,
            slowdown,
            out,
            sim_replay::misses(),
        ])
}

/// Runs it.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let path = matches.get_one::<PathBuf>("scenario");
    let path = path.ok_or_else(|| anyhow!("a scenario is missing"))?;
    let limit_percent = matches.get_one::<f64>("slowdown").copied().unwrap_or(2.0);
    if !(limit_percent.is_finite() && limit_percent >= 0.0) {
        return Err(Failure::Usage(format!(
            "--slowdown {limit_percent}: it is not a percentage"
        ))
        .into());
    }
    let sweep = Sweep {
        scenario: sim_replay::load(path, matches)?,
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
    let mut settings = sweep.settings.iter();
    let unknown = settings.find(|(system, _, _)| !sweep.systems.contains(system));
    if let Some((system, name, _)) = unknown {
        return Err(Failure::Usage(format!(
            "--vary {system}.{name}: {system} is not among the systems that run"
        ))
        .into());
    }
    let progress = Progress::new();
    let rows = sweep.run(&|done, all| {
        progress.tell(done as f64 / all as f64, &format!("{done} of {all} runs"));
    })?;
    drop(progress);
    let curves = curves(&rows);
    let out = matches
        .get_one::<PathBuf>("out")
        .map_or(Path::new("out"), PathBuf::as_path);
    fs::create_dir_all(out).map_err(|error| anyhow!("cannot make {}: {error}", out.display()))?;
    let cannot_write =
        |path: &Path, error: &dyn Display| anyhow!("cannot write {}: {error}", path.display());
    let path = out.join("sweep.csv");
    write_csv(&path, &rows).map_err(|error| cannot_write(&path, &error))?;
    let path = out.join("sweep.html");
    fs::write(&path, page(&sweep.scenario.name, &curves, limit_percent))
        .map_err(|error| cannot_write(&path, &error))?;
    #[cfg(feature = "parquet")]
    {
        let path = out.join("sweep.parquet");
        pghot_sim::sweep::parquet::write(&path, &rows)
            .map_err(|error| cannot_write(&path, &error))?;
    }
    for answer in answers(&curves, limit_percent) {
        say(&format!("{answer}\n"))?;
    }
    say(&format!(
        "all of it: {}\n",
        out.join("sweep.html").display()
    ))
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
