//! The daemon itself: `pghot run`, and `pghot restore` after one that was killed.

use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command};
use pghot_daemon::config::DAEMON_OPTIONS;
use pghot_daemon::log::Log;
use pghot_daemon::run;
use pghot_linux::keeper::Keeper;
use pghot_linux::{PROC, SysRoot, refused_calls, rights};
use pghot_sources::tunables;

use crate::args::{config, option_arg, options, paths, tunable_arg};
use crate::output::{lines, say};

/// The command `pghot run`.
pub fn run_command() -> Command {
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
            "Run the daemon in the foreground until SIGINT or SIGTERM ends it. SIGHUP has it read \
             its config file again, as `pghot reload` does. The kernel settings that it changes \
             are put back at the end, and after a kill -9 by its keeper, a small process of its \
             own. If that is killed too, `pghot restore` or the next `pghot run` does it.",
        )
        .after_help("RUST_LOG sets how much is logged, e.g. RUST_LOG=debug.")
        .arg(config())
        .args([dry_run, wait])
        .args(DAEMON_OPTIONS.iter().map(|option| option_arg(option.name)))
        .args(tunables::all().map(tunable_arg))
}

/// Runs it.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let mut options = options(matches)?;
    options.dry_run = matches.get_flag("dry_run");
    options.wait_for_lower_tier = matches.get_flag("wait_for_lower_tier");
    let (root, format) = (SysRoot::default(), options.log_format);
    // All before there is a second thread, so that the log comes after.
    if std::env::var_os(PROC).is_some() {
        rights::join_control_groups(&root)?;
    }
    rights::protect();
    let keeper = Keeper::fork(&root, &options.state_file, || Log::start(format))?;
    let sockets = [
        &options.socket,
        &options.status_socket,
        &options.hint_socket,
    ];
    let files = sockets.into_iter().chain(&options.record_file);
    let files: Vec<_> = files.map(|file| file.as_path()).collect();
    rights::drop_to(&options.user, &files)?;
    refused_calls::refuse()?;
    let log = Log::start(format)?;
    let ended = run::run(options, &root, keeper);
    Ok(ended.inspect_err(|error| log.note_failure(error))?)
}

/// The command `pghot restore`.
pub fn restore_command() -> Command {
    Command::new("restore")
        .about("Put back the kernel settings that a killed daemon left changed")
        .args([config(), option_arg("state_file")])
}

/// Runs it.
pub fn restore(matches: &ArgMatches) -> Result<()> {
    let said = run::restore(&SysRoot::default(), &paths(matches)?.state_file)?;
    match said.is_empty() {
        true => say("There is nothing to put back.\n"),
        false => say(&lines(&said)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::assignments;

    #[test]
    fn every_option_has_its_flag() {
        let options = DAEMON_OPTIONS.iter().map(|option| option.name);
        let names: Vec<_> = options.chain(tunables::all().map(|t| t.name)).collect();
        let flags = names
            .iter()
            .map(|name| format!("--{}=7", name.replace('_', "-")));
        let line = ["pghot".to_owned(), "run".to_owned()]
            .into_iter()
            .chain(flags);
        let line = line.skip(1);
        let matches = run_command().try_get_matches_from(line).unwrap();
        let given: Vec<_> = assignments(&matches).into_iter().map(|a| a.name).collect();
        assert_eq!(given, names);
        assert!(names.contains(&"promote_rate_limit_MBps"));
    }
}
