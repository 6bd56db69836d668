//! The commands that ask the running daemon.

use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use pghot_daemon::metrics::{Format, render};
use pghot_daemon::owners::By;
use pghot_daemon::protocol::{DECISIONS_MAX, Request, Response, ask, ask_as_reader};
use pghot_hint::wire::refusal_sentence;
use pghot_hint::{Answer, Hints, Range};
use pghot_sources::app_hint;

use crate::args::{config, json, option_arg, paths};
use crate::exit::Failure;
use crate::json::{Decisions, Versioned};
use crate::output::{lines, say, say_json, write_page};
use crate::top::look::Look;
use crate::{show_explain, show_owners, show_status, status_page};

/// The command `pghot status`.
pub fn status_command() -> Command {
    let by = Arg::new("by")
        .long("by")
        .value_name("OWNER")
        .value_parser(["cgroup", "process"])
        .help("Show whose memory is in which tier and whose pages moved instead");
    let html = Arg::new("html")
        .long("html")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .conflicts_with_all(["json", "by"])
        .help("Write one page that works offline");
    Command::new("status")
        .about("Show what the daemon does, and why nothing moves if nothing does")
        .args([by, json(), html])
        .args([config(), option_arg("socket"), option_arg("status_socket")])
}

/// Runs it.
pub fn status(matches: &ArgMatches) -> Result<()> {
    let by = matches.get_one::<String>("by").map(String::as_str);
    let question = match by {
        None => Request::Status,
        Some("process") => Request::Owners { by: By::Process },
        Some(_) => Request::Owners { by: By::Cgroup },
    };
    match request(matches, &question)? {
        Response::Owners(owners) if matches.get_flag("json") => say_json(&Versioned::of(owners)),
        Response::Owners(owners) => say(&show_owners::text(&owners)),
        Response::Status(status) if matches.get_flag("json") => say_json(&status),
        Response::Status(status) => match matches.get_one::<PathBuf>("html") {
            Some(path) => write_page(path, &status_page::page(&status)),
            None => {
                let look = Look::of(|name| std::env::var(name).ok());
                say(&look.letters(&show_status::text(&status)))
            }
        },
        _ => Err(unexpected()),
    }
}

/// The command `pghot metrics`.
pub fn metrics_command() -> Command {
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
        .args([openmetrics, config()])
        .args([option_arg("socket"), option_arg("status_socket")])
}

/// Runs it.
pub fn metrics(matches: &ArgMatches) -> Result<()> {
    let format = match matches.get_flag("openmetrics") {
        true => Format::OpenMetrics,
        false => Format::Classic,
    };
    match request(matches, &Request::Status)? {
        Response::Status(status) => say(&render(&status, format)),
        _ => Err(unexpected()),
    }
}

/// The command `pghot explain`.
pub fn explain_command() -> Command {
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
        .value_parser(value_parser!(u32).range(1..=DECISIONS_MAX as i64))
        .conflicts_with_all(["pid", "address"])
        .help("Show the newest N decisions instead");
    Command::new("explain")
        .about("Explain why a page moved or stayed")
        .args([pid, address, last, json()])
        .args([config(), option_arg("socket"), option_arg("status_socket")])
}

/// Runs it.
pub fn explain(matches: &ArgMatches) -> Result<()> {
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
        Response::Explanation(explanation) if json => say_json(&Versioned::of(explanation)),
        Response::Decisions(decisions) if json => say_json(&Versioned::of(Decisions { decisions })),
        Response::Explanation(explanation) => say(&lines(&explanation.sentences)),
        Response::Decisions(decisions) => say(&show_explain::table(&decisions)),
        _ => Err(unexpected()),
    }
}

/// The command `pghot hint`.
pub fn hint_command() -> Command {
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
        .long_about(format!(
            "Hint that a process will use some of its memory: an access of each of its pages is \
             reported, which with freq_threshold 1 promotes them. It needs root, and `{}` among \
             enabled_sources.",
            app_hint::DESCRIPTOR.name
        ))
        .args([pid, address, length, config(), option_arg("hint_socket")])
}

/// Runs it.
pub fn hint(matches: &ArgMatches) -> Result<()> {
    let number = |id: &str| matches.get_one::<u64>(id).copied().unwrap_or_default();
    let pid = matches.get_one::<u32>("pid").copied().unwrap_or_default();
    let (address, length) = (number("address"), number("length"));
    let socket = paths(matches)?.hint_socket;
    let hints = Hints::connect(&socket).map_err(|error| {
        let sentence = format!(
            "nobody takes hints on {}: {error}; start pghot with `{}` among enabled_sources",
            socket.display(),
            app_hint::DESCRIPTOR.name
        );
        match error.kind() {
            ErrorKind::PermissionDenied => Failure::Denied(sentence),
            _ => Failure::NotRunning(sentence),
        }
    })?;
    let answer = hints.ask(pid, &[Range { address, length }]);
    match answer.map_err(|error| anyhow!("pghot gave no answer: {error}"))? {
        Answer {
            refusal: 0, pages, ..
        } => say(&format!("hinted {pages} pages in the lower tier\n")),
        Answer { refusal, .. } => Err(anyhow!(refusal_sentence(refusal))),
    }
}

/// Asks the daemon, where that is enough as a reader; its refusal is an error.
pub fn request(matches: &ArgMatches, request: &Request) -> Result<Response> {
    let options = paths(matches)?;
    let response = match request {
        Request::Status | Request::Owners { .. } | Request::ExplainLast { .. } => {
            ask_as_reader(&options, request)
        }
        Request::Explain { .. } | Request::Set { .. } | Request::Reload => {
            ask(&options.socket, request)
        }
    };
    match response? {
        Response::Error(sentence) => Err(anyhow!(sentence)),
        Response::Invalid(sentence) => Err(Failure::Usage(sentence).into()),
        response => Ok(response),
    }
}

/// An answer that does not belong to the question.
pub fn unexpected() -> anyhow::Error {
    anyhow!("the daemon answered something else: it is another version of pghot")
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
    fn addresses_are_hexadecimal() {
        assert_eq!(parse_address("0x7f00"), Ok(0x7f00));
        assert_eq!(parse_address("7f00"), Ok(0x7f00));
        for text in ["", "0x", "7g", "-1", "10000000000000000"] {
            assert!(parse_address(text).is_err(), "{text}");
        }
    }
}
