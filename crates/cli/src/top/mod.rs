//! `pghot top`: the live view, on a terminal or as one frame of text.

mod block;
mod blocks;
mod budget;
mod cell;
mod detail;
mod draw;
#[cfg(test)]
mod film;
mod history;
mod keys;
pub mod look;
#[cfg(test)]
mod many;
mod model;
mod nodes;
mod rates;
#[cfg(test)]
mod reasons;
mod rows;
mod screen;
mod table;
#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;
mod view;
mod watch;

use std::io::{IsTerminal, stdout};
use std::thread;

use anyhow::{Result, anyhow};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use pghot_daemon::config::Options;
use pghot_daemon::protocol::{Request, ask_as_reader};
use pghot_linux::SysRoot;

use crate::args::{config, option_arg, paths};
use crate::exit::Failure;
use crate::output::say;
use look::Look;
use model::Model;
use view::{Tab, View};
use watch::{PERIOD, Watcher};

/// Columns of a frame of text, if nothing else is asked for.
const WIDTH: &str = "100";

/// The command.
pub fn command() -> Command {
    let once = Arg::new("once")
        .long("once")
        .action(ArgAction::SetTrue)
        .help("Print one frame as text and end; rates are those of one second");
    let width = Arg::new("width")
        .long("width")
        .value_name("N")
        .value_parser(value_parser!(u16).range(20..=1000))
        .default_value(WIDTH)
        .requires("once")
        .help("Columns of the frame that --once prints");
    Command::new("top")
        .about("Watch what the daemon does, live")
        .long_about(
            "Watch what the daemon does, live: memory of the nodes, pages up and down per second, \
             what the policy does and why, the sources and what they cost, and who has far memory. \
             The key `?` explains all keys, `q` ends it. Members of the group `pghot` may use it \
             without being root.",
        )
        .args([once, width])
        .args([config(), option_arg("socket"), option_arg("status_socket")])
}

/// Runs it.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let options = paths(matches)?;
    let look = Look::of(|name| std::env::var(name).ok());
    if matches.get_flag("once") {
        let width = matches.get_one::<u16>("width").copied();
        return say(&once(options, look, width.unwrap_or_default())?);
    }
    let is_dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
    if !stdout().is_terminal() || is_dumb {
        let sentence = "`pghot top` needs a terminal that it can draw on, and this is none: use \
                        `pghot top --once` or `pghot status`";
        return Err(Failure::Usage(sentence.to_owned()).into());
    }
    screen::run(options, look)
}

/// Two looks make rates. Without control groups, processes are shown.
fn once(options: Options, look: Look, width: u16) -> Result<String> {
    // Says why nobody answers, and with which status this ends.
    ask_as_reader(&options, &Request::Status)?;
    let mut watcher = Watcher::new(options, SysRoot::default());
    let (mut model, mut view) = (Model::default(), View::default());
    for _ in 0..2 {
        if model.status.is_some() {
            thread::sleep(PERIOD);
        }
        let seen = watcher.look();
        if let Err(sentence) = &seen.status {
            return Err(anyhow!(sentence.clone()));
        }
        model.take(seen);
        if matches!(model.groups, Some(Err(_))) {
            view.tab = Tab::Programs;
        }
        // Also the groups are looked at twice.
        watcher.turn_to(view.focus());
    }
    Ok(draw::text(&model, &view, look, width))
}
