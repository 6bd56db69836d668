//! The command line. Flags of options come from the daemon's two tables, so that a new tunable
//! has its flag, its help and its manual entry without a change here.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use pghot_daemon::config::{Assignment, DAEMON_OPTIONS, DEFAULT_CONFIG, Origin};
use pghot_engine::{TUNABLES, Tunable};
use pghot_hotness::Format;

use crate::{record, sim, top};

/// The whole command.
pub fn command() -> Command {
    Command::new("pghot")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Hot-page tracking and promotion for tiered memory on stock Linux kernels")
        .after_help("Exit status: 0 if all is well, 1 on an error, 2 for a wrong command line.")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(run())
        .subcommand(status())
        .subcommand(metrics())
        .subcommand(top::command(&[
            config(),
            option_arg("socket"),
            option_arg("status_socket"),
        ]))
        .subcommand(explain())
        .subcommand(hint())
        .subcommand(set())
        .subcommand(doctor())
        .subcommand(restore())
        .subcommand(record::command(&[config(), option_arg("socket")]))
        .subcommand(sim::command())
        .subcommand(generate())
}

fn run() -> Command {
    let dry_run = Arg::new("dry_run")
        .long("dry-run")
        .action(ArgAction::SetTrue)
        .help("Observe and decide, but move nothing");
    let wait = Arg::new("wait_for_lower_tier")
        .long("wait-for-lower-tier")
        .action(ArgAction::SetTrue)
        .help("Where there is no lower tier yet, wait until its memory comes online");
    Command::new("run")
        .about("Run the daemon in the foreground until a signal ends it")
        .long_about(
            "Run the daemon in the foreground until SIGINT or SIGTERM ends it. The kernel \
             settings that it changes are put back at the end; after a kill -9, `pghot restore` \
             or the next `pghot run` does it.",
        )
        .after_help("RUST_LOG sets how much is logged to the standard error, e.g. RUST_LOG=debug.")
        .arg(config())
        .args([dry_run, wait])
        .args(DAEMON_OPTIONS.iter().map(|option| option_arg(option.name)))
        .args(TUNABLES.iter().map(tunable_arg))
}

fn status() -> Command {
    Command::new("status")
        .about("Show what the daemon does, and why nothing moves if nothing does")
        .arg(json())
        .args([config(), option_arg("socket"), option_arg("status_socket")])
}

fn metrics() -> Command {
    let openmetrics = Arg::new("openmetrics")
        .long("openmetrics")
        .action(ArgAction::SetTrue)
        .help("Print OpenMetrics 1.0 instead of Prometheus's older text format");
    Command::new("metrics")
        .about("Print the daemon's metrics once, for Prometheus")
        .long_about(
            "Print the daemon's metrics once, in the text format of Prometheus, as promtool and \
             node_exporter's textfile collector read it. To have the daemon serve them over HTTP, \
             set metrics_address.",
        )
        .args([openmetrics, config(), option_arg("socket")])
}

fn explain() -> Command {
    let pid = Arg::new("pid")
        .value_name("PID")
        .value_parser(value_parser!(u32))
        .required_unless_present("last")
        .help("The process");
    let address = Arg::new("address")
        .value_name("ADDRESS")
        .value_parser(parse_address)
        .required_unless_present("last")
        .help("An address in it, in hexadecimal as /proc/PID/maps prints it");
    let last = Arg::new("last")
        .long("last")
        .value_name("N")
        .value_parser(value_parser!(u32).range(1..=pghot_daemon::protocol::DECISIONS_MAX as i64))
        .conflicts_with_all(["pid", "address"])
        .help("Show the newest N decisions instead");
    Command::new("explain")
        .about("Explain why a page moved or stayed")
        .args([pid, address, last, json()])
        .args([config(), option_arg("socket"), option_arg("status_socket")])
}

fn hint() -> Command {
    let pid = Arg::new("pid")
        .value_name("PID")
        .value_parser(value_parser!(u32).range(1..))
        .required(true)
        .help("The process");
    let address = Arg::new("address")
        .value_name("ADDRESS")
        .value_parser(parse_address)
        .required(true)
        .help("Where the memory begins, in hexadecimal as /proc/PID/maps prints it");
    let length = Arg::new("length")
        .value_name("LENGTH")
        .value_parser(value_parser!(u64))
        .default_value("4096")
        .help("Its bytes, at most 1 GiB");
    Command::new("hint")
        .about("Hint that a process will use some of its memory")
        .long_about(
            "Hint that a process will use some of its memory: an access of each of its pages is \
             reported, which with freq_threshold 1 promotes them. Takes the source app_hint \
             (enabled_sources 0x20), and root.",
        )
        .args([pid, address, length, config(), option_arg("hint_socket")])
}

fn set() -> Command {
    let names: Vec<&str> = TUNABLES.iter().map(|tunable| tunable.name).collect();
    let name = Arg::new("name")
        .value_name("TUNABLE")
        .required(true)
        .help(format!("One of {}", names.join(", ")));
    let value = Arg::new("value")
        .value_name("VALUE")
        .required(true)
        .allow_negative_numbers(true)
        .help("Its new value; hexadecimal with 0x");
    Command::new("set")
        .about("Change a tunable of the running daemon")
        .args([name, value, config(), option_arg("socket")])
}

fn doctor() -> Command {
    Command::new("doctor")
        .about("Check what this kernel and machine offer, and what would fight with pghot")
        .after_help("Exit status: 1 if pghot cannot promote on this machine as it is.")
        .arg(json())
}

fn restore() -> Command {
    Command::new("restore")
        .about("Put back the kernel settings that a killed daemon left changed")
        .args([config(), option_arg("state_file")])
}

fn generate() -> Command {
    let what = Arg::new("what")
        .value_name("WHAT")
        .value_parser(["man", "completions", "reference", "config"])
        .required(true)
        .help("What to write");
    let directory = Arg::new("directory")
        .value_name("DIR")
        .value_parser(value_parser!(PathBuf))
        .required(true)
        .help("Where to");
    Command::new("generate")
        .about("Write man pages, shell completions, the reference of tunables or a config file")
        .hide(true)
        .args([what, directory])
}

fn json() -> Arg {
    Arg::new("json")
        .long("json")
        .action(ArgAction::SetTrue)
        .help("Print JSON")
}

fn config() -> Arg {
    Arg::new("config")
        .long("config")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help(format!(
            "The config file, in TOML [default: {DEFAULT_CONFIG}, if it exists]"
        ))
}

/// The flag of a daemon option.
fn option_arg(name: &'static str) -> Arg {
    let arg = Arg::new(name).long(name.replace('_', "-"));
    match DAEMON_OPTIONS.iter().find(|option| option.name == name) {
        None => arg,
        Some(option) => arg
            .value_name(option.value_name)
            .help(format!("{} [default: {}]", option.doc, option.default)),
    }
}

fn tunable_arg(tunable: &'static Tunable) -> Arg {
    let summary = tunable
        .doc
        .split_once(". ")
        .map_or(tunable.doc, |(first, _)| first);
    let facts = facts(tunable);
    Arg::new(tunable.name)
        .long(tunable.name.replace('_', "-"))
        .value_name(if tunable.unit.is_empty() {
            "N"
        } else {
            tunable.unit
        })
        .allow_negative_numbers(true)
        .help_heading("Tunables")
        .help(format!("{} [{facts}]", summary.trim_end_matches('.')))
        .long_help(format!("{} [{facts}]", tunable.doc))
}

/// Default and range of a tunable, in both modes where they differ.
pub fn facts(tunable: &Tunable) -> String {
    let of = |mode| {
        let (min, max) = (tunable.range)(mode);
        let show = |value| tunable.show(value);
        let default = tunable.show_default(mode);
        format!("default {default}, {} to {}", show(min), show(max))
    };
    let (default, precision) = (of(Format::Default), of(Format::Precision));
    match default == precision {
        true => default,
        false => format!("{default}; in precision mode {precision}"),
    }
}

/// The options that were set on the command line, whichever command it is.
pub fn assignments(matches: &ArgMatches) -> Vec<Assignment> {
    let options = DAEMON_OPTIONS.iter().map(|option| option.name);
    let names = options.chain(TUNABLES.iter().map(|tunable| tunable.name));
    let given = |name: &'static str| {
        // A command without this flag gives an error, which means the same as no value.
        let text = matches.try_get_one::<String>(name).ok().flatten()?;
        Some(Assignment {
            name: name.to_owned(),
            text: text.clone(),
            origin: Origin::Flag,
        })
    };
    names.filter_map(given).collect()
}

fn parse_address(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16)
        .map_err(|_| "it is not a hexadecimal number such as 7f5e1c200000".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_option_has_its_flag() {
        let options = DAEMON_OPTIONS.iter().map(|option| option.name);
        let names: Vec<_> = options.chain(TUNABLES.iter().map(|t| t.name)).collect();
        let flags = names
            .iter()
            .map(|name| format!("--{}=7", name.replace('_', "-")));
        let line = ["pghot".to_owned(), "run".to_owned()]
            .into_iter()
            .chain(flags);
        let matches = command().try_get_matches_from(line).unwrap();
        let (_, matches) = matches.subcommand().unwrap();
        let given: Vec<_> = assignments(matches).into_iter().map(|a| a.name).collect();
        assert_eq!(given, names);
        assert!(names.contains(&"promote_rate_limit_MBps"));
    }

    #[test]
    fn addresses_are_hexadecimal() {
        assert_eq!(parse_address("0x7f00"), Ok(0x7f00));
        assert_eq!(parse_address("7f00"), Ok(0x7f00));
        for text in ["", "0x", "7g", "-1", "10000000000000000"] {
            assert!(parse_address(text).is_err(), "{text}");
        }
    }
}
