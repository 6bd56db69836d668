//! `pghot sim`: the simulator on the command line.

use anyhow::{Result, anyhow};
use clap::{Arg, ArgMatches, Command, value_parser};
use pghot_engine::names::no_such;
use pghot_sim::tables::{TABLES, Table};
use pghot_sim::{chaos, harm};

use crate::args::{Known, json};
use crate::exit::Failure;
use crate::json::{Tables, Versioned};
use crate::output::{say, say_json};
use crate::progress::Progress;
use crate::{sim_compare, sim_replay, sim_sweep};

/// Runs of one command: what came of them is kept until the end.
const RUNS_MAX: u64 = 1_000_000;

/// The command and what belongs to it.
pub fn command() -> Command {
    Command::new("sim")
        .about("Run pghot's engine, and models of others, on a modelled machine")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(sim_compare::command())
        .subcommand(sim_replay::command())
        .subcommand(sim_sweep::command())
        .subcommand(sim_sweep::merge_command())
        .subcommand(tables_command())
        .subcommand(chaos_command())
        .subcommand(harm_command())
}

fn tables_command() -> Command {
    let names = Arg::new("names")
        .value_name("NAMES")
        .num_args(0..)
        .value_parser(Known::described(TABLES.iter().map(|it| (it.name, it.doc))))
        .hide_possible_values(true)
        .help("Which tables; all without");
    let list = TABLES
        .iter()
        .map(|table| format!("  {:<12} {}", table.name, table.doc));
    let list: Vec<String> = list.collect();
    Command::new("tables")
        .about("Show the published tables, each cell beside what the model says")
        .after_help(format!("Tables:\n{}", list.join("\n")))
        .args([names, json()])
}

fn chaos_command() -> Command {
    Command::new("chaos")
        .about("Try the engine on random machines on which much goes wrong")
        .args(seeds())
}

fn harm_command() -> Command {
    Command::new("harm")
        .about("Compare pghot's defaults with doing nothing on random machines and workloads")
        .after_help(
            "Shows a line for each, with how long programs worked under no balancing, \
             numa_balancing=2 and pghot, and then a summary.",
        )
        .args(seeds())
}

/// Which of the runs that a number decides.
fn seeds() -> [Arg; 2] {
    let seed = Arg::new("seed")
        .value_name("SEED")
        .value_parser(value_parser!(u64).range(..=u64::MAX - RUNS_MAX))
        .default_value("0")
        .help("The first run");
    let runs = Arg::new("runs")
        .long("runs")
        .value_name("N")
        .value_parser(value_parser!(u64).range(1..=RUNS_MAX))
        .default_value("1")
        .help("How many runs, with seeds one after the other");
    [seed, runs]
}

/// Runs what was asked for.
pub fn dispatch(matches: &ArgMatches) -> Result<()> {
    match matches.subcommand() {
        Some(("run", matches)) => sim_compare::run(matches),
        Some(("replay", matches)) => sim_replay::run(matches),
        Some(("sweep", matches)) => sim_sweep::run(matches),
        Some(("merge", matches)) => sim_sweep::run_merge(matches),
        Some(("tables", matches)) => tables(matches),
        Some(("chaos", matches)) => run_chaos(matches),
        Some(("harm", matches)) => run_harm(matches),
        _ => Err(Failure::Usage("a command is missing, see `pghot sim --help`".into()).into()),
    }
}

fn tables(matches: &ArgMatches) -> Result<()> {
    let names: Vec<&String> = matches.get_many("names").unwrap_or_default().collect();
    for name in &names {
        if !TABLES.iter().any(|table| table.name == *name) {
            let message = no_such("table", name, TABLES.iter().map(|table| table.name));
            return Err(Failure::Usage(message).into());
        }
    }
    let mut all = Vec::new();
    for table in TABLES {
        if names.is_empty() || names.iter().any(|name| *name == table.name) {
            all.extend((table.make)()?);
        }
    }
    match matches.get_flag("json") {
        true => say_json(&Versioned::of(Tables { tables: all })),
        false => say(&all.iter().map(Table::text).collect::<Vec<_>>().join("\n")),
    }
}

fn run_chaos(matches: &ArgMatches) -> Result<()> {
    let (first, runs) = numbers(matches);
    let last = first.saturating_add(runs - 1);
    let progress = Progress::new();
    let told = |done: u64| {
        progress.tell(done as f64 / runs as f64, &format!("{done} of {runs} runs"));
    };
    let found = chaos::campaign(first..last.saturating_add(1), &told);
    drop(progress);
    let story = found.map_err(|found| anyhow!(found))?;
    let seeds = match runs {
        1 => format!("seed {first}"),
        _ => format!("seeds {first} to {last}"),
    };
    say(&format!(
        "{seeds}: nothing wrong; {} pages promoted, {} demoted, {} refused, the daemon killed {} \
         times, {} processes started anew, {} nodes taken offline\n",
        story.promoted_pages,
        story.demoted_pages,
        story.refused_pages,
        story.restarts,
        story.respawns,
        story.offlinings
    ))?;
    Ok(())
}

/// The first seed, and how many.
fn numbers(matches: &ArgMatches) -> (u64, u64) {
    let number = |name| matches.get_one::<u64>(name).copied().unwrap_or(1);
    (number("seed"), number("runs"))
}

fn run_harm(matches: &ArgMatches) -> Result<()> {
    let (first, runs) = numbers(matches);
    let progress = Progress::new();
    let told = |done: usize| {
        progress.tell(done as f64 / runs as f64, &format!("{done} of {runs} runs"));
    };
    let outcomes = harm::outcomes(first..first.saturating_add(runs), &told);
    drop(progress);
    let outcomes = outcomes?;
    let lines: String = outcomes.iter().map(|it| format!("{it}\n")).collect();
    say(&format!(
        "{}\n{lines}\n{}",
        harm::Outcome::HEAD,
        harm::summary(&outcomes)
    ))?;
    Ok(())
}
