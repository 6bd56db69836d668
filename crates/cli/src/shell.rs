//! `pghot completions` and `pghot man`: what a shell and man(1) want to know, printed.

use anyhow::Result;
use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;
use clap_mangen::Man;
use pghot_engine::names::no_such;

use crate::exit::Failure;
use crate::output::say;

/// The command `pghot completions`.
pub fn completions_command() -> Command {
    let shell = Arg::new("shell")
        .value_name("SHELL")
        .value_parser(value_parser!(Shell))
        .required(true)
        .help("Which one");
    Command::new("completions")
        .about("Print the completions of a shell")
        .long_about(
            "Print the completions of a shell, for one that has none of the package. In bash: \
             `source <(pghot completions bash)`.",
        )
        .arg(shell)
}

/// Runs it, for the whole command line.
pub fn completions(matches: &ArgMatches, mut whole: Command) -> Result<()> {
    let mut text = Vec::new();
    if let Some(shell) = matches.get_one::<Shell>("shell") {
        clap_complete::generate(*shell, &mut whole, "pghot", &mut text);
    }
    say(&String::from_utf8_lossy(&text))
}

/// The command `pghot man`.
pub fn man_command() -> Command {
    let command = Arg::new("command")
        .value_name("COMMAND")
        .num_args(0..)
        .help("Of which command, as `pghot man sim run`; of pghot itself without");
    Command::new("man")
        .about("Print a manual page")
        .long_about("Print a manual page, for man(1): `pghot man set | man -l -`.")
        .arg(command)
}

/// Runs it, for the whole command line.
pub fn man(matches: &ArgMatches, mut whole: Command) -> Result<()> {
    whole.build();
    let mut page = &whole;
    for name in matches.get_many::<String>("command").unwrap_or_default() {
        let commands = || page.get_subcommands().filter(|it| !it.is_hide_set());
        let found = commands().find(|command| command.get_name() == name);
        page = found.ok_or_else(|| {
            let names = commands()
                .map(Command::get_name)
                .filter(|name| *name != "help");
            Failure::Usage(no_such("command", name, names))
        })?;
    }
    let name = page.get_display_name().unwrap_or("pghot").to_owned();
    let mut text = Vec::new();
    Man::new(page.clone().name(name)).render(&mut text)?;
    say(&String::from_utf8_lossy(&text))
}
