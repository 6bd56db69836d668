//! `pghot sim run`: a scenario under several systems. And the comparison of what they come to,
//! which a replayed profile has too.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use pghot_profile::file;
use pghot_sim::machine::PAGES_PER_MIB;
use pghot_sim::run::{Run, Simulation};
use pghot_sim::scenario::{Mode, Scenario, thin};
use pghot_sim::systems::{SYSTEMS, Setting};

use crate::args::{Known, json};
use crate::exit::Failure;
use crate::json::{Runs, Versioned};
use crate::output::{say, say_json};
use crate::progress::Progress;

/// The command.
pub fn command() -> Command {
    let mode = Arg::new("mode")
        .long("mode")
        .value_parser(["exact", "statistical"])
        .help("Make accesses one by one, or many at once; the scenario decides if left out");
    let thin = Arg::new("thin")
        .long("thin")
        .value_name("N")
        .value_parser(value_parser!(u64).range(2..=thin::WEIGHT_MAX))
        .help("Model a part of a large machine, each page of which stands for N");
    let list = SYSTEMS
        .iter()
        .map(|system| format!("  {:<12} {}", system.name, system.doc));
    let list: Vec<String> = list.collect();
    Command::new("run")
        .about("Run a scenario under several systems and compare them")
        .after_help(format!("Systems:\n{}", list.join("\n")))
        .args([scenario(), mode, thin])
        .args(run_args())
}

/// What a comparison of systems takes.
pub fn run_args() -> [Arg; 4] {
    let set = Arg::new("set")
        .long("set")
        .value_name("SYSTEM.NAME=VALUE")
        .action(ArgAction::Append)
        .help("A setting of a system, as pghot.freq_threshold=1");
    let seed = Arg::new("seed")
        .long("seed")
        .value_name("N")
        .value_parser(value_parser!(u64))
        .help("Another seed than the scenario's");
    [systems(), set, seed, json()]
}

/// The scenario's file.
pub fn scenario() -> Arg {
    Arg::new("scenario")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .required(true)
        .help("The scenario, in TOML")
}

/// The systems to run.
pub fn systems() -> Arg {
    Arg::new("systems")
        .long("systems")
        .value_name("NAMES")
        .value_delimiter(',')
        .value_parser(Known::described(
            SYSTEMS.iter().map(|system| (system.name, system.doc)),
        ))
        .hide_possible_values(true)
        .default_value("none,pghot,numab2")
        .help("Systems to compare, with commas")
}

/// Runs it.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let path = matches.get_one::<PathBuf>("scenario");
    let path = path.ok_or_else(|| anyhow!("a scenario is missing"))?;
    if file::is_profile(path) {
        let message = format!(
            "{} is a profile: `pghot sim replay` replays it",
            path.display()
        );
        return Err(Failure::Usage(message).into());
    }
    let mut scenario = Scenario::load(path)?;
    match matches.get_one::<String>("mode").map(String::as_str) {
        Some("exact") => scenario.mode = Mode::Exact,
        Some(_) => scenario.mode = Mode::Statistical,
        None => {}
    }
    if let Some(weight) = matches.get_one::<u64>("thin") {
        scenario = thinned(&scenario, *weight)?;
    }
    compare(scenario, matches)
}

fn thinned(scenario: &Scenario, weight: u64) -> Result<Scenario> {
    match thin::first_huge(scenario) {
        Some(number) => {
            let message = format!(
                "--thin {weight}: process[{number}] has huge pages, of which there are few: leave \
                 the flag out"
            );
            Err(Failure::Usage(message).into())
        }
        None => Ok(thin::scenario(scenario, weight)),
    }
}

/// Runs a scenario under the systems of the command line, and prints what they came to.
pub fn compare(mut scenario: Scenario, matches: &ArgMatches) -> Result<()> {
    if let Some(seed) = matches.get_one::<u64>("seed") {
        scenario.seed = *seed;
    }
    let sets: Vec<&String> = matches.get_many("set").unwrap_or_default().collect();
    let names: Vec<&String> = matches.get_many("systems").unwrap_or_default().collect();
    check_owners(&sets, &names)?;
    let mut runs = Vec::new();
    for name in names {
        let simulation = Simulation::new(&scenario, name, &settings_of(name, &sets)?)?;
        let progress = Progress::new();
        runs.push(simulation.finish(&mut |at_s, done| {
            let what = format!("{name}: {at_s:.0} simulated seconds");
            progress.tell(done.unwrap_or(0.0), &what);
        }));
    }
    match matches.get_flag("json") {
        true => say_json(&Versioned::of(Runs { runs })),
        false => say(&comparison(&runs)),
    }
}

/// A setting of a system that does not run would be silently lost.
fn check_owners(sets: &[&String], names: &[&String]) -> Result<()> {
    for set in sets {
        let owner = set.split_once('.').map(|(owner, _)| owner);
        if !owner.is_some_and(|owner| names.iter().any(|name| *name == owner)) {
            let message = format!(
                "--set {set}: it must begin with the name of one of the systems that run, and a dot"
            );
            return Err(Failure::Usage(message).into());
        }
    }
    Ok(())
}

/// The settings that are a system's own.
fn settings_of(system: &str, sets: &[&String]) -> Result<Vec<Setting>> {
    let own = sets
        .iter()
        .filter_map(|set| set.strip_prefix(system)?.strip_prefix('.'));
    own.map(|set| match set.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err(Failure::Usage(format!(
            "--set {system}.{set}: a value is missing, as in NAME=VALUE"
        ))
        .into()),
    })
    .collect()
}

fn comparison(runs: &[Run]) -> String {
    let Some(first) = runs.first() else {
        return String::new();
    };
    let time = match first.is_paced {
        true => "work, s",
        false => "time, s",
    };
    let weight = first.page_weight;
    let thin = match weight {
        1 => String::new(),
        _ => format!(", each page stands for {weight}"),
    };
    let mut text = format!(
        "{}, seed {}, {} accesses{thin}\n  {:<12} {:>10} {:>9} {:>7} {:>13} {:>12} {:>10} {:>10}\n",
        first.scenario,
        first.seed,
        first.counters.accesses * weight,
        "system",
        time,
        "vs first",
        "near",
        "promoted MiB",
        "demoted MiB",
        "stolen, s",
        "daemon, s"
    );
    for run in runs {
        let counters = &run.counters;
        let near = counters.near_accesses as f64 / counters.accesses.max(1) as f64;
        text += &format!(
            "  {:<12} {:>10.3} {:>8.1}% {:>7.3} {:>13} {:>12} {:>10.3} {:>10.3}{}\n",
            run.system,
            run.work_s(),
            (run.work_s() / first.work_s() - 1.0) * 100.0,
            near,
            counters.promoted_pages * weight / PAGES_PER_MIB,
            counters.demoted_pages * weight / PAGES_PER_MIB,
            counters.stolen_ns * 1e-9,
            counters.daemon_ns * 1e-9,
            if run.is_complete {
                ""
            } else {
                "  (not done at the limit)"
            }
        );
    }
    text
}
