//! The commands that ask the running daemon, or tell it something.

use anyhow::{Result, anyhow};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use pghot_daemon::config::DAEMON_OPTIONS;
use pghot_daemon::metrics::{Format, render};
use pghot_daemon::owners::By;
use pghot_daemon::protocol::{DECISIONS_MAX, Request, Response, ask, ask_as_reader};
use pghot_hint::wire::refusal_sentence;
use pghot_hint::{Answer, Hints, Range};
use pghot_sources::{app_hint, tunables};

use crate::args::{Usage, config, json, option_arg, options};
use crate::output::{lines, say, say_json};
use crate::{show_explain, show_owners, show_status};

/// The command `pghot status`.
pub fn status_command() -> Command {
    let by = Arg::new("by")
        .long("by")
        .value_name("OWNER")
        .value_parser(["cgroup", "process"])
        .help("Show whose memory is in which tier and whose pages moved instead");
    Command::new("status")
        .about("Show what the daemon does, and why nothing moves if nothing does")
        .args([by, json()])
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
        Response::Owners(owners) if matches.get_flag("json") => say_json(&owners),
        Response::Owners(owners) => say(&show_owners::text(&owners)),
        Response::Status(status) if matches.get_flag("json") => say_json(&status),
        Response::Status(status) => say(&show_status::text(&status)),
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
        .args([openmetrics, config(), option_arg("socket")])
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
        Response::Explanation(explanation) if json => say_json(&explanation),
        Response::Decisions(decisions) if json => say_json(&decisions),
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
             reported, which with freq_threshold 1 promotes them. Takes the source app_hint \
             (enabled_sources {:#x}), and root.",
            app_hint::DESCRIPTOR.bit
        ))
        .args([pid, address, length, config(), option_arg("hint_socket")])
}

/// Runs it.
pub fn hint(matches: &ArgMatches) -> Result<()> {
    let number = |id: &str| matches.get_one::<u64>(id).copied().unwrap_or_default();
    let pid = matches.get_one::<u32>("pid").copied().unwrap_or_default();
    let (address, length) = (number("address"), number("length"));
    let socket = options(matches)?.hint_socket;
    let hints = Hints::connect(&socket).map_err(|error| {
        anyhow!(
            "nobody takes hints on {}: {error}; start pghot with the source app_hint \
             (enabled_sources {:#x})",
            socket.display(),
            app_hint::DESCRIPTOR.bit
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

/// The command `pghot set`.
pub fn set_command() -> Command {
    let names: Vec<&str> = tunables::all().map(|tunable| tunable.name).collect();
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

/// Runs it.
pub fn set(matches: &ArgMatches) -> Result<()> {
    let text = |id: &str| matches.get_one::<String>(id).cloned().unwrap_or_default();
    let (name, value) = (text("name"), text("value"));
    // Known without the daemon; the range is not, for it depends on the daemon's mode.
    if DAEMON_OPTIONS.iter().any(|option| option.name == name) {
        let flag = name.replace('_', "-");
        let sentence = format!("{name} is fixed while the daemon runs: restart it with --{flag}");
        return Err(Usage(sentence).into());
    }
    if let Err(error) = tunables::find(&name) {
        return Err(Usage(error.to_string()).into());
    }
    match request(matches, &Request::Set { name, value })? {
        Response::Done { name, value } => say(&format!("{name} is {value} now\n")),
        _ => Err(unexpected()),
    }
}

/// Asks the daemon, where that is enough as a reader; its refusal is an error.
fn request(matches: &ArgMatches, request: &Request) -> Result<Response> {
    let options = options(matches)?;
    let response = match request {
        Request::Status | Request::Owners { .. } | Request::ExplainLast { .. } => {
            ask_as_reader(&options, request)
        }
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
