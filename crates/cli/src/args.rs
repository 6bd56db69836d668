//! Arguments that several commands take. Flags of options come from the daemon's two tables, so
//! that a new tunable has its flag, its help and its manual entry without a change here.

use std::ffi::OsStr;
use std::num::NonZero;
use std::path::PathBuf;

use anyhow::Result;
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};
use pghot_daemon::config::{self, Assignment, DAEMON_OPTIONS, DEFAULT_CONFIG, Options, Origin};
use pghot_engine::{Kind, Tunable};
use pghot_hotness::Format;
use pghot_sources::tunables;

/// Takes any text, and tells shells what it should be: the error is for who knows more.
#[derive(Clone)]
pub struct Known(Vec<PossibleValue>);

impl Known {
    /// Of names alone.
    pub fn names(names: impl IntoIterator<Item = &'static str>) -> Known {
        Known(names.into_iter().map(PossibleValue::new).collect())
    }

    /// Each with what it is.
    pub fn described(all: impl IntoIterator<Item = (&'static str, &'static str)>) -> Known {
        let value = |(name, doc)| PossibleValue::new(name).help(first_sentence(doc));
        Known(all.into_iter().map(value).collect())
    }
}

impl TypedValueParser for Known {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().cloned()))
    }
}

/// The names of tunables.
pub fn known_tunables() -> Known {
    Known::described(tunables::all().map(|tunable| (tunable.name, tunable.doc)))
}

/// Without its full stop.
fn first_sentence(doc: &'static str) -> &'static str {
    let first = doc.split_once(". ").map_or(doc, |(first, _)| first);
    first.trim_end_matches('.')
}

/// How much of a machine runs of the simulator take.
pub fn jobs() -> Arg {
    Arg::new("jobs")
        .long("jobs")
        .value_name("N")
        .value_parser(value_parser!(NonZero<usize>))
        .help("Runs at the same time; as many as there are CPUs without")
}

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
        .value_hint(ValueHint::FilePath)
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
        Some(option) => {
            let arg = match option.value_name {
                "PATH" => arg.value_hint(ValueHint::FilePath),
                _ => arg,
            };
            let help = format!("{} [default: {}]", option.doc, option.default);
            arg.value_name(option.value_name).help(help)
        }
    }
}

/// The flag of a tunable.
pub fn tunable_arg(tunable: &'static Tunable) -> Arg {
    let summary = first_sentence(tunable.doc);
    let facts = facts(tunable);
    let arg = Arg::new(tunable.name)
        .long(tunable.name.replace('_', "-"))
        .value_name(match tunable.kind {
            Kind::Set { .. } => "NAMES",
            _ if tunable.unit.is_empty() => "N",
            _ => tunable.unit,
        })
        .allow_negative_numbers(true)
        .help_heading("Tunables")
        .help(format!("{summary} [{facts}]"))
        .long_help(format!("{} [{facts}]", tunable.doc));
    match words(tunable) {
        words if words.is_empty() => arg,
        words => arg.value_parser(Known::names(words)),
    }
    .hide_possible_values(true)
}

/// The words that a tunable takes instead of a number.
fn words(tunable: &Tunable) -> Vec<&'static str> {
    match tunable.kind {
        Kind::Number => Vec::new(),
        Kind::Node => vec!["nearest"],
        Kind::Set { members, .. } => {
            let names = members.iter().map(|(name, _)| *name);
            names.chain(["default", "none"]).collect()
        }
    }
}

/// The words of all tunables: completions are made before anybody has said which one it is.
pub fn known_words() -> Known {
    Known::names(tunables::all().flat_map(words))
}

/// Default and range of a tunable, in both modes where they differ.
pub fn facts(tunable: &Tunable) -> String {
    let of = |mode| {
        let (min, max) = (tunable.range)(mode);
        let show = |value| tunable.show(value);
        let default = tunable.show_default(mode);
        match tunable.kind {
            Kind::Set { .. } => format!("default {default}"),
            _ => format!("default {default}, {} to {}", show(min), show(max)),
        }
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
    Ok(config::load(
        file.map(PathBuf::as_path),
        assignments(matches),
    )?)
}

/// The same where only the paths matter: of what else is wrong in the file it warns.
pub fn paths(matches: &ArgMatches) -> Result<Options> {
    let file = matches.get_one::<PathBuf>("config");
    let (options, error) = config::load_paths(file.map(PathBuf::as_path), assignments(matches))?;
    if let Some(error) = error {
        eprintln!("pghot: warning: {error}");
    }
    Ok(options)
}
