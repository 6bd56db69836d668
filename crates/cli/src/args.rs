//! Arguments that several commands take. Flags of options come from the daemon's two tables, so
//! that a new tunable has its flag, its help and its manual entry without a change here.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, value_parser};
use pghot_daemon::config::{self, Assignment, DAEMON_OPTIONS, DEFAULT_CONFIG, Options, Origin};
use pghot_engine::Tunable;
use pghot_hotness::Format;
use pghot_sources::tunables;

/// Something on the command line is wrong; the sentence says what.
#[derive(Debug)]
pub struct Usage(pub String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Asks for JSON.
pub fn json() -> Arg {
    Arg::new("json")
        .long("json")
        .action(ArgAction::SetTrue)
        .help("Print JSON")
}

/// The config file.
pub fn config() -> Arg {
    Arg::new("config")
        .long("config")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help(format!(
            "The config file, in TOML [default: {DEFAULT_CONFIG}, if it exists]"
        ))
}

/// The flag of a daemon option.
pub fn option_arg(name: &'static str) -> Arg {
    let arg = Arg::new(name).long(name.replace('_', "-"));
    match DAEMON_OPTIONS.iter().find(|option| option.name == name) {
        None => arg,
        Some(option) => arg
            .value_name(option.value_name)
            .help(format!("{} [default: {}]", option.doc, option.default)),
    }
}

/// The flag of a tunable.
pub fn tunable_arg(tunable: &'static Tunable) -> Arg {
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
    let names = options.chain(tunables::all().map(|tunable| tunable.name));
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

/// What the config file and the command line say.
pub fn options(matches: &ArgMatches) -> Result<Options> {
    let file = matches.get_one::<PathBuf>("config");
    let options = config::load(file.map(PathBuf::as_path), assignments(matches));
    options.map_err(|error| match error.is_usage() {
        true => Usage(error.to_string()).into(),
        false => error.into(),
    })
}
