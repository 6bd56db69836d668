//! `pghot profile`: recorded profiles as a table for SQL, and back.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};
use pghot_profile::part::Part;
use pghot_profile::table::{self, TableWriter};
use pghot_profile::{Profile, file};

use crate::args::json;
use crate::exit::Failure;
use crate::json::{ProfileRow, Profiles, Versioned};
use crate::output::{say, say_json};
use crate::record;

/// The command and what belongs to it.
pub fn command() -> Command {
    Command::new("profile")
        .about("Recorded profiles as a table for SQL, and back")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(export_command())
        .subcommand(import_command())
        .subcommand(show_command())
        .subcommand(split_command())
}

fn files(help: &'static str) -> Arg {
    Arg::new("files")
        .value_name("FILES")
        .value_hint(ValueHint::FilePath)
        .value_parser(value_parser!(PathBuf))
        .num_args(1..)
        .required(true)
        .help(help)
}

fn out(help: &'static str) -> Arg {
    Arg::new("out")
        .long("out")
        .short('o')
        .value_name("FILE")
        .value_hint(ValueHint::FilePath)
        .value_parser(value_parser!(PathBuf))
        .required(true)
        .help(help)
}

fn export_command() -> Command {
    let host = Arg::new("host")
        .long("host")
        .value_name("NAME")
        .help("The host's name in the table, of one profile; the file's without");
    let names = Arg::new("no-names")
        .long("no-names")
        .action(ArgAction::SetTrue)
        .help("Leave out the names of programs and control groups");
    Command::new("export")
        .about("Write profiles, of many hosts, into one table in Parquet")
        .args([files(
            "Profiles, as `pghot record` wrote them, one of each host",
        )])
        .args([host, names, out("Where the table goes")])
}

fn import_command() -> Command {
    let table = files("The table, as `pghot profile export` wrote it").num_args(1);
    let host = Arg::new("host")
        .long("host")
        .value_name("NAME")
        .required(true)
        .help("Whose profile");
    Command::new("import")
        .about("Write the profile of one host of a table, for `pghot sim` and `pghot heatmap`")
        .args([table, host, out("Where the profile goes")])
}

fn show_command() -> Command {
    let files = files("Profiles, or tables of them");
    Command::new("show")
        .about("Say how much memory each program has and touches")
        .args([files, json()])
}

fn split_command() -> Command {
    let profile = files("The profile, as `pghot record` wrote it").num_args(1);
    Command::new("split")
        .about("Write a profile of each control group, to size and replay it alone")
        .args([
            profile,
            out("The folder where they go, in folders like those of the groups"),
        ])
}

/// Runs what was asked for.
pub fn dispatch(matches: &ArgMatches) -> Result<()> {
    match matches.subcommand() {
        Some(("export", matches)) => export(matches),
        Some(("import", matches)) => import(matches),
        Some(("show", matches)) => show(matches),
        Some(("split", matches)) => split(matches),
        _ => Err(Failure::Usage("a command is missing, see `pghot profile --help`".into()).into()),
    }
}

fn paths<'a>(matches: &'a ArgMatches, name: &str) -> Vec<&'a PathBuf> {
    matches.get_many(name).unwrap_or_default().collect()
}

fn path_of<'a>(matches: &'a ArgMatches, name: &str) -> Result<&'a PathBuf> {
    let path = matches.get_one::<PathBuf>(name);
    path.ok_or_else(|| anyhow!("{name} is missing"))
}

fn host_of(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

fn export(matches: &ArgMatches) -> Result<()> {
    let out = path_of(matches, "out")?;
    let paths = paths(matches, "files");
    let named = matches.get_one::<String>("host");
    if named.is_some() && paths.len() > 1 {
        let sentence = "--host names the host of one profile, and there are more: export them one \
                        by one, or name their files after the hosts";
        return Err(Failure::Usage(sentence.into()).into());
    }
    let hosts: Vec<String> = (paths.iter())
        .map(|path| named.cloned().unwrap_or_else(|| host_of(path)))
        .collect();
    let mut sorted = hosts.clone();
    sorted.sort_unstable();
    if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        let host = &twice[0];
        let sentence =
            format!("two profiles are of the host {host}: name the files after the hosts");
        return Err(Failure::Usage(sentence).into());
    }
    let part = Part::create(out)?;
    let mut table = TableWriter::create(part.unfinished())?;
    for (path, host) in paths.iter().zip(&hosts) {
        let profile = file::load(path)?;
        let profile = match matches.get_flag("no-names") {
            true => profile.without_names(),
            false => profile,
        };
        table.add(host, &profile)?;
    }
    table.finish()?;
    part.rename()?;
    say(&format!("{}: {} hosts\n", out.display(), hosts.len()))
}

fn import(matches: &ArgMatches) -> Result<()> {
    let out = path_of(matches, "out")?;
    let table = path_of(matches, "files")?;
    let wanted = matches.get_one::<String>("host").map_or("", String::as_str);
    let mut found = Vec::new();
    table::read(table, &mut |host, profile| {
        if host == wanted {
            found.push(profile);
        }
    })?;
    let [profile] = found.as_slice() else {
        let sentence = match found.len() {
            0 => format!("{} has no host {wanted}", table.display()),
            n => format!("{} has the host {wanted} {n} times", table.display()),
        };
        return Err(Failure::Usage(sentence).into());
    };
    let bytes = file::encode(profile);
    Part::create(out)?.keep(&bytes)?;
    say(&record::summary(profile, bytes.len(), out))
}

fn split(matches: &ArgMatches) -> Result<()> {
    let out = path_of(matches, "out")?;
    let path = path_of(matches, "files")?;
    let parts = file::load(path)?.by_cgroup();
    let mut files = BTreeMap::new();
    for (cgroup, profile) in parts {
        // Of a path that the profile's check has let through.
        let relative = match cgroup.trim_start_matches('/') {
            "" if cgroup.is_empty() => "unknown",
            "" => "-",
            path => path,
        };
        let mut file = out.join(relative).into_os_string();
        file.push(".profile");
        if let Some((other, _)) = files.insert(PathBuf::from(file), (cgroup.clone(), profile)) {
            let sentence = format!("{cgroup} and {other} would both be {relative}.profile");
            return Err(Failure::Usage(sentence).into());
        }
    }
    let mut text = String::new();
    for (file, (_, profile)) in &files {
        let folder = file.parent().unwrap_or(out);
        fs::create_dir_all(folder)
            .map_err(|error| anyhow!("cannot create {}: {error}", folder.display()))?;
        let bytes = file::encode(profile);
        Part::create(file)?.keep(&bytes)?;
        text += &format!("{}: {} programs\n", file.display(), profile.processes.len());
    }
    say(&text)
}

fn show(matches: &ArgMatches) -> Result<()> {
    let mut rows = Vec::new();
    let mut add = |host: &str, profile: Profile| {
        for (process, number) in profile.processes.iter().zip(0..) {
            let set = process.working_set(profile.interval_ms);
            rows.push(ProfileRow {
                host: host.to_owned(),
                process: number,
                cgroup: process.cgroup.clone(),
                command: process.name.clone(),
                memory_mib: set.memory_mib,
                touched_mib_per_s: set.touched_mib_per_s,
                cpus: set.cpus,
            });
        }
    };
    for path in paths(matches, "files") {
        match file::is_profile(path) {
            true => add(&host_of(path), file::load(path)?),
            false => table::read(path, &mut add)?,
        }
    }
    if matches.get_flag("json") {
        return say_json(&Versioned::of(Profiles { profiles: rows }));
    }
    let mut text = format!(
        "{:<20} {:<18} {:>11} {:>22} {:>9}\n",
        "host", "program", "memory, MiB", "touched a second, MiB", "CPUs used"
    );
    for row in rows {
        text += &format!(
            "{:<20} {:<18} {:>11} {:>22.1} {:>9.2}\n",
            row.host, row.command, row.memory_mib, row.touched_mib_per_s, row.cpus
        );
    }
    say(&text)
}
