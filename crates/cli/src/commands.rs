//! The table of commands. It knows their modules, and these know nothing of it.

use std::process::ExitCode;

use anyhow::Result;
use clap::{ArgMatches, Command};

use crate::exit::Failure;
use crate::{
    advise, ask, change, daemon, doctor, exit, generate, heatmap, profile, record, shell, sim, top,
};

/// The whole command.
pub fn command() -> Command {
    Command::new("pghot")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Hot-page tracking and promotion for tiered memory on stock Linux kernels")
        .after_help(exit::HELP)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(daemon::run_command())
        .subcommand(ask::status_command())
        .subcommand(ask::metrics_command())
        .subcommand(top::command())
        .subcommand(ask::explain_command())
        .subcommand(ask::hint_command())
        .subcommand(change::set_command())
        .subcommand(change::reload_command())
        .subcommand(doctor::command())
        .subcommand(daemon::restore_command())
        .subcommand(record::command())
        .subcommand(heatmap::command())
        .subcommand(advise::command())
        .subcommand(profile::command())
        .subcommand(sim::command())
        .subcommand(shell::completions_command())
        .subcommand(shell::man_command())
        .subcommand(generate::command())
}

/// Runs the command that was given.
pub fn dispatch(matches: &ArgMatches) -> Result<ExitCode> {
    match matches.subcommand() {
        Some(("run", matches)) => daemon::run(matches),
        Some(("status", matches)) => ask::status(matches),
        Some(("metrics", matches)) => ask::metrics(matches),
        Some(("top", matches)) => top::run(matches),
        Some(("explain", matches)) => ask::explain(matches),
        Some(("hint", matches)) => ask::hint(matches),
        Some(("set", matches)) => change::set(matches),
        Some(("reload", matches)) => change::reload(matches),
        Some(("doctor", matches)) => return doctor::run(matches),
        Some(("restore", matches)) => daemon::restore(matches),
        Some(("record", matches)) => record::run(matches),
        Some(("heatmap", matches)) => heatmap::run(matches),
        Some(("advise", matches)) => advise::run(matches),
        Some(("profile", matches)) => profile::dispatch(matches),
        Some(("sim", matches)) => sim::dispatch(matches),
        Some(("completions", matches)) => shell::completions(matches, command()),
        Some(("man", matches)) => shell::man(matches, command()),
        Some(("generate", matches)) => generate::run(matches, command()),
        _ => Err(Failure::Usage("a command is missing, see `pghot --help`".into()).into()),
    }
    .map(|()| ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use pghot_sources::tunables;

    use super::*;

    #[test]
    fn the_command_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn everything_is_written() {
        let dir = tempfile::tempdir().unwrap();
        for what in ["man", "completions", "reference"] {
            let line = ["pghot", "generate", what, dir.path().to_str().unwrap()];
            dispatch(&command().try_get_matches_from(line).unwrap()).unwrap();
        }
        for file in [
            "pghot.1",
            "pghot-run.1",
            "pghot-explain.1",
            "pghot.bash",
            "_pghot",
        ] {
            let text = std::fs::read_to_string(dir.path().join(file)).unwrap();
            assert!(text.len() > 200, "{file}");
        }
        let reference = std::fs::read_to_string(dir.path().join("tunables.md")).unwrap();
        let run = std::fs::read_to_string(dir.path().join("pghot-run.1")).unwrap();
        for tunable in tunables::all() {
            assert!(reference.contains(&format!("## `{}`", tunable.name)));
            let flag = tunable.name.replace('_', "\\-");
            assert!(run.contains(&flag), "{flag}");
        }
    }

    /// Fewer than there are in the documents.
    const DOCUMENTED_MIN: usize = 25;

    /// Command lines of pghot in a document: in its blocks of shell, without their comments.
    fn documented(text: &str) -> Vec<String> {
        let mut is_shell = false;
        let mut found = Vec::new();
        for line in text.lines() {
            if let Some(language) = line.strip_prefix("```") {
                is_shell = language == "sh";
            }
            let command = line.strip_prefix("target/release/").unwrap_or(line);
            if is_shell && command.starts_with("pghot ") {
                let command = command.split(" # ").next().unwrap_or(command);
                found.push(command.to_owned());
            }
        }
        found
    }

    /// What stands for something else: a process, an address, and what may be left out.
    fn filled_in(word: &str) -> Option<&str> {
        match word {
            "PID" => Some("1"),
            "ADDRESS" => Some("7f5e1c200000"),
            _ if word.starts_with('[') => None,
            _ => Some(word),
        }
    }

    #[test]
    fn every_command_in_the_documents_is_one() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let pages = std::fs::read_dir(root.join("docs")).unwrap();
        let pages = pages.map(|entry| entry.unwrap().path());
        let others = ["README.md", "SECURITY.md", "CONTRIBUTING.md"].map(|name| root.join(name));
        let mut commands = 0;
        for page in pages.chain(others).filter(|page| page.is_file()) {
            for line in documented(&std::fs::read_to_string(&page).unwrap()) {
                let words = line.split_whitespace().filter_map(filled_in);
                let parsed = command().try_get_matches_from(words);
                assert!(parsed.is_ok(), "{}: {line}: {parsed:?}", page.display());
                commands += 1;
            }
        }
        assert!(commands >= DOCUMENTED_MIN, "{commands}");
    }
}
