//! The commands that change the running daemon: `pghot set` and `pghot reload`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command};
use pghot_daemon::config::DAEMON_OPTIONS;
use pghot_daemon::config::save::Save;
use pghot_daemon::protocol::{Request, Response};
use pghot_daemon::status::{ReloadReport, Status};
use pghot_sources::tunables;

use crate::args::{config, known_tunables, known_words, option_arg};
use crate::ask::{request, unexpected};
use crate::exit::Failure;
use crate::output::{lines, say};

/// The command `pghot set`.
pub fn set_command() -> Command {
    let name = Arg::new("name")
        .value_name("TUNABLE")
        .value_parser(known_tunables())
        .required(true)
        .help("Which one");
    let value = Arg::new("value")
        .value_name("VALUE")
        .value_parser(known_words())
        .hide_possible_values(true)
        .required(true)
        .allow_negative_numbers(true)
        .help("Its new value: a number, hexadecimal with 0x, or a word that the tunable takes");
    let save = Arg::new("save")
        .long("save")
        .action(ArgAction::SetTrue)
        .help("Write the value into the config file too, so that it outlives the daemon");
    Command::new("set")
        .about("Change a tunable of the running daemon")
        .long_about(
            "Change a tunable of the running daemon, until it ends or the config file is read \
             again and says something else than before. With --save the config file has the value \
             too; the rest of the file stays as it is.",
        )
        .args([name, value, save, config(), option_arg("socket")])
}

/// Runs it.
pub fn set(matches: &ArgMatches) -> Result<()> {
    let text = |id: &str| matches.get_one::<String>(id).cloned().unwrap_or_default();
    let (name, value) = (text("name"), text("value"));
    // Known without the daemon; the range is not, for it depends on the daemon's mode.
    if DAEMON_OPTIONS.iter().any(|option| option.name == name) {
        let flag = name.replace('_', "-");
        let sentence = format!("{name} is fixed while the daemon runs: restart it with --{flag}");
        return Err(Failure::Usage(sentence).into());
    }
    let tunable = tunables::find(&name).map_err(|error| Failure::Usage(error.to_string()))?;
    // Before the daemon is asked: if it cannot be saved, nothing changes.
    let save = match matches.get_flag("save") {
        true => {
            let named = matches.get_one::<PathBuf>("config");
            let named = named.map(|path| Save::begin(path)).transpose()?;
            let status = status(matches)?;
            let setting = status.settings.get(tunable.name);
            let has_flag = setting.is_some_and(|setting| setting.has_flag);
            let of_daemon = || Save::begin(Path::new(&status.config_file));
            Some((named.map_or_else(of_daemon, Ok)?, has_flag))
        }
        false => None,
    };
    let Response::Done { name, value } = request(matches, &Request::Set { name, value })? else {
        return Err(unexpected());
    };
    let Some((save, has_flag)) = save else {
        return say(&format!("{name} is {value} now\n"));
    };
    let path = save.path().display().to_string();
    save.finish(tunable, &value).map_err(|error| {
        let sentence = format!("{name} is {value} now, but: {error}");
        anyhow::Error::new(error).context(sentence)
    })?;
    let mut sentences = vec![format!("{name} is {value} now, and in {path}")];
    if has_flag {
        let flag = name.replace('_', "-");
        sentences.push(format!(
            "warning: pghot was started with --{flag}, which overrides the file: without a change \
             of that flag the next start brings its value back"
        ));
    }
    say(&lines(&sentences))
}

fn status(matches: &ArgMatches) -> Result<Status> {
    match request(matches, &Request::Status)? {
        Response::Status(status) => Ok(*status),
        _ => Err(unexpected()),
    }
}

/// The command `pghot reload`.
pub fn reload_command() -> Command {
    Command::new("reload")
        .about("Have the daemon read its config file again")
        .long_about(
            "Have the daemon read its config file again, as SIGHUP does. What has changed in it is \
             in force together, or, if anything in it is invalid, nothing is. A flag of `pghot \
             run` overrides the file; what `pghot set` changed stays until the file says something \
             else than before.",
        )
        .args([config(), option_arg("socket")])
}

/// Runs it.
pub fn reload(matches: &ArgMatches) -> Result<()> {
    let Response::Reloaded(report) = request(matches, &Request::Reload)? else {
        return Err(unexpected());
    };
    match report.error {
        Some(error) => Err(Failure::Usage(format!("nothing has changed: {error}")).into()),
        None => say(&lines(&sentences(&report))),
    }
}

/// What came of a reload that was right.
pub fn sentences(report: &ReloadReport) -> Vec<String> {
    let mut sentences: Vec<String> = report.changed.iter().map(|it| it.to_string()).collect();
    if sentences.is_empty() {
        sentences.push("no tunable has changed".to_owned());
    }
    sentences.extend(report.overridden.iter().cloned());
    sentences.extend(report.warnings());
    sentences
}
