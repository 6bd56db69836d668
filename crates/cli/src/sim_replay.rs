//! `pghot sim replay`: a recorded profile on a modelled machine.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use clap::{Arg, ArgMatches, Command, value_parser};
use pghot_profile::file;
use pghot_sim::scenario::Scenario;
use pghot_sim::scenario::replay::{self, Assumed, MISSES_PER_CPU_S};

use crate::sim_compare::{compare, run_args};

/// The command.
pub fn command() -> Command {
    let profile = Arg::new("profile")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .required(true)
        .help("The profile, as `pghot record` wrote it");
    let machine = Arg::new("machine")
        .long("machine")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .conflicts_with("top-mib")
        .help("A scenario whose machine is taken");
    let top = Arg::new("top-mib")
        .long("top-mib")
        .value_name("MIB")
        .value_parser(value_parser!(u64).range(1..))
        .help("Size of the top tier; half of the recorded memory if left out");
    Command::new("replay")
        .about("Replay a recorded profile under several systems and compare them")
        .long_about(
            "Replay a recorded profile under several systems and compare them. The profile says \
             which memory was touched when; how often is estimated, and how much it matters \
             follows from --misses. Compared is the time that threads worked. `pghot sim sweep` \
             takes profiles, too.",
        )
        .args([profile, machine, top, misses()])
        .args(run_args())
}

/// How many accesses a recorded program makes.
pub fn misses() -> Arg {
    Arg::new("misses")
        .long("misses")
        .value_name("N")
        .value_parser(value_parser!(f64))
        .default_value(MISSES_PER_CPU_S.to_string())
        .help(
            "Accesses that miss all caches in a second of CPU time, for profiles (`perf stat -e \
             cache-misses` tells)",
        )
}

/// Replays.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let path = matches.get_one::<PathBuf>("profile");
    let path = path.ok_or_else(|| anyhow!("a profile is missing"))?;
    let profile = file::load(path)?;
    let machine = match matches.get_one::<PathBuf>("machine") {
        Some(machine) => Scenario::load(machine)?.machine,
        None => {
            let top_mib = matches.get_one("top-mib").copied();
            let half_mib = replay::memory_mib(&profile) / 2;
            replay::machine(&profile, top_mib.unwrap_or(half_mib))
        }
    };
    let assumed = Assumed {
        machine,
        misses_per_cpu_s: misses_of(matches),
    };
    let scenario = replay::scenario(&name_of(path), &profile, &assumed)?;
    compare(scenario, matches)
}

/// A scenario from a file of either kind. A profile gets a machine whose top tier has room for all
/// of it.
pub fn load(path: &Path, matches: &ArgMatches) -> Result<Scenario> {
    if !file::is_profile(path) {
        return Ok(Scenario::load(path)?);
    }
    let profile = file::load(path)?;
    let all_mib = replay::memory_mib(&profile);
    let assumed = Assumed {
        // A twentieth and a bit for the watermarks.
        machine: replay::machine(&profile, all_mib + all_mib / 20 + 16),
        misses_per_cpu_s: misses_of(matches),
    };
    Ok(replay::scenario(&name_of(path), &profile, &assumed)?)
}

/// What the command line says of them.
pub fn misses_of(matches: &ArgMatches) -> f64 {
    matches
        .get_one("misses")
        .copied()
        .unwrap_or(MISSES_PER_CPU_S)
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}
