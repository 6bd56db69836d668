//! What each command does.

use std::io::{ErrorKind, IsTerminal, Write, stderr, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::ArgMatches;
use pghot_daemon::config::{self, DAEMON_OPTIONS, Options};
use pghot_daemon::doctor::{self, Grade};
use pghot_daemon::metrics::{Format, render};
use pghot_daemon::protocol::{Request, Response, ask, ask_as_reader};
use pghot_daemon::run;
use pghot_engine::Tunable;
use pghot_hint::wire::refusal_sentence;
use pghot_hint::{Answer, Hints, Range};
use pghot_linux::SysRoot;
use tracing_subscriber::EnvFilter;

use crate::{Usage, args, generate, record, show_doctor, show_explain, show_status, sim, top};

/// Runs the command that was given.
pub fn dispatch(matches: &ArgMatches) -> Result<ExitCode> {
    match matches.subcommand() {
        Some(("run", matches)) => run_daemon(matches),
        Some(("status", matches)) => status(matches),
        Some(("metrics", matches)) => metrics(matches),
        Some(("top", matches)) => options(matches).and_then(|options| top::run(matches, options)),
        Some(("explain", matches)) => explain(matches),
        Some(("hint", matches)) => hint(matches),
        Some(("set", matches)) => set(matches),
        Some(("doctor", matches)) => return diagnose(matches),
        Some(("restore", matches)) => restore(matches),
        Some(("record", matches)) => {
            options(matches).and_then(|options| record::run(matches, &options.socket))
        }
        Some(("sim", matches)) => sim::dispatch(matches),
        Some(("generate", matches)) => generate(matches),
        _ => Err(Usage("a command is missing, see `pghot --help`".into()).into()),
    }
    .map(|()| ExitCode::SUCCESS)
}

fn options(matches: &ArgMatches) -> Result<Options> {
    let file = matches.get_one::<PathBuf>("config");
    let options = config::load(file.map(PathBuf::as_path), args::assignments(matches));
    options.map_err(|error| match error.is_usage() {
        true => Usage(error.to_string()).into(),
        false => error.into(),
    })
}

fn run_daemon(matches: &ArgMatches) -> Result<()> {
    let mut options = options(matches)?;
    options.dry_run = matches.get_flag("dry_run");
    options.wait_for_lower_tier = matches.get_flag("wait_for_lower_tier");
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal())
        .with_target(false)
        .init();
    Ok(run::run(options, &SysRoot::default())?)
}

/// Asks the daemon, where that is enough as a reader; its refusal is an error.
fn request(matches: &ArgMatches, request: &Request) -> Result<Response> {
    let options = options(matches)?;
    let response = match request {
        Request::Status | Request::ExplainLast { .. } => ask_as_reader(&options, request),
        Request::Explain { .. } | Request::Set { .. } => ask(&options.socket, request),
    };
    match response? {
        Response::Error(sentence) => Err(anyhow!(sentence)),
        response => Ok(response),
    }
}

fn unexpected() -> anyhow::Error {
    anyhow!("the daemon answered something else: it is another version of pghot")
}

/// Prints; a reader that has seen enough (`pghot status | head`) is no error.
pub fn say(text: &str) -> Result<()> {
    match stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(anyhow!("cannot write to the standard output: {error}"))
        }
        _ => Ok(()),
    }
}

/// The same of a value, as JSON.
pub fn say_json(value: &impl serde::Serialize) -> Result<()> {
    say(&format!("{}\n", serde_json::to_string_pretty(value)?))
}

fn status(matches: &ArgMatches) -> Result<()> {
    match request(matches, &Request::Status)? {
        Response::Status(status) if matches.get_flag("json") => say_json(&status),
        Response::Status(status) => say(&show_status::text(&status)),
        _ => Err(unexpected()),
    }
}

fn metrics(matches: &ArgMatches) -> Result<()> {
    let format = match matches.get_flag("openmetrics") {
        true => Format::OpenMetrics,
        false => Format::Classic,
    };
    match request(matches, &Request::Status)? {
        Response::Status(status) => say(&render(&status, format)),
        _ => Err(unexpected()),
    }
}

fn explain(matches: &ArgMatches) -> Result<()> {
    let pid = matches.get_one::<u32>("pid").copied().unwrap_or_default();
    let address = matches
        .get_one::<u64>("address")
        .copied()
        .unwrap_or_default();
    let question = match matches.get_one::<u32>("last") {
        Some(&count) => Request::ExplainLast { count },
        None => Request::Explain { pid, address },
    };
    let json = matches.get_flag("json");
    match request(matches, &question)? {
        Response::Explanation(explanation) if json => say_json(&explanation),
        Response::Decisions(decisions) if json => say_json(&decisions),
        Response::Explanation(explanation) => say(&lines(&explanation.sentences)),
        Response::Decisions(decisions) => say(&show_explain::table(&decisions)),
        _ => Err(unexpected()),
    }
}

fn lines(sentences: &[String]) -> String {
    sentences
        .iter()
        .map(|sentence| format!("{sentence}\n"))
        .collect()
}

fn hint(matches: &ArgMatches) -> Result<()> {
    let number = |id: &str| matches.get_one::<u64>(id).copied().unwrap_or_default();
    let pid = matches.get_one::<u32>("pid").copied().unwrap_or_default();
    let (address, length) = (number("address"), number("length"));
    let socket = options(matches)?.hint_socket;
    let hints = Hints::connect(&socket).map_err(|error| {
        anyhow!(
            "nobody takes hints on {}: {error}; start pghot with the source app_hint \
             (enabled_sources 0x20)",
            socket.display()
        )
    })?;
    let answer = hints.ask(pid, &[Range { address, length }]);
    match answer.map_err(|error| anyhow!("pghot gave no answer: {error}"))? {
        Answer {
            refusal: 0, pages, ..
        } => say(&format!("hinted {pages} pages in the lower tier\n")),
        Answer { refusal, .. } => Err(anyhow!(refusal_sentence(refusal))),
    }
}

fn set(matches: &ArgMatches) -> Result<()> {
    let text = |id: &str| matches.get_one::<String>(id).cloned().unwrap_or_default();
    let (name, value) = (text("name"), text("value"));
    // Known without the daemon; the range is not, for it depends on the daemon's mode.
    if DAEMON_OPTIONS.iter().any(|option| option.name == name) {
        let flag = name.replace('_', "-");
        let sentence = format!("{name} is fixed while the daemon runs: restart it with --{flag}");
        return Err(Usage(sentence).into());
    }
    if let Err(error) = Tunable::find(&name) {
        return Err(Usage(error.to_string()).into());
    }
    match request(matches, &Request::Set { name, value })? {
        Response::Done { name, value } => say(&format!("{name} is {value} now\n")),
        _ => Err(unexpected()),
    }
}

fn diagnose(matches: &ArgMatches) -> Result<ExitCode> {
    let diagnosis = doctor::examine(&SysRoot::default());
    match matches.get_flag("json") {
        true => say_json(&diagnosis)?,
        false => say(&show_doctor::text(&diagnosis))?,
    }
    Ok(ExitCode::from((diagnosis.verdict == Grade::Fail) as u8))
}

fn restore(matches: &ArgMatches) -> Result<()> {
    let said = run::restore(&SysRoot::default(), &options(matches)?.state_file)?;
    match said.is_empty() {
        true => say("There is nothing to put back.\n"),
        false => say(&lines(&said)),
    }
}

fn generate(matches: &ArgMatches) -> Result<()> {
    let what = matches.get_one::<String>("what").map(String::as_str);
    let directory = matches
        .get_one::<PathBuf>("directory")
        .cloned()
        .unwrap_or_default();
    std::fs::create_dir_all(&directory)
        .map_err(|error| anyhow!("cannot create {}: {error}", directory.display()))?;
    match what {
        Some("man") => generate::man(&directory),
        Some("completions") => generate::completions(&directory),
        Some("config") => generate::config(&directory),
        _ => generate::reference(&directory),
    }
    .map_err(|error| anyhow!("cannot write into {}: {error}", directory.display()))
}
