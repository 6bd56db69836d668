//! The commands of the documents, run as they stand there: the simulator's on the host, with a
//! profile that was recorded in a guest, and all others in that guest, beside a daemon and a
//! program for the examples. Recordings are cut short.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pghot_testbed::{Status, Vm, documents, guest_binary};

use crate::rig::{Daemon, UNHURRIED, start_hotset};
use crate::{Ctx, Test};

pub const TESTS: &[Test] = &[Test::new(
    "every_command_of_the_documents_runs",
    "tiered3",
    every_command_runs,
)
.limit(Duration::from_secs(1200))
.long()];

/// Where a recording goes.
const FOLDER: &str = "/tmp/documents";
const PROFILE: &str = "pghot.profile";

/// A command, and its place in the documents.
type Documented = (String, String);

fn every_command_runs(ctx: &mut Ctx) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let root = root.context("the testbed lies in a folder")?;
    let mut commands = commands(root)?;
    ensure!(commands.len() > 30, "{commands:#?}");
    let begins = |start: &'static str| move |it: &mut Documented| it.0.starts_with(start);
    let on_host = |it: &mut Documented| {
        let of_profile = it.0.contains(PROFILE) && !it.0.starts_with("pghot record");
        let of_host = [
            "pghot sim",
            "pghot advise",
            "pghot generate",
            "pghot profile",
        ];
        of_profile || of_host.iter().any(|start| it.0.starts_with(start))
    };
    let on_host: Vec<Documented> = commands.extract_if(.., on_host).collect();
    let daemons: Vec<Documented> = commands.extract_if(.., begins("pghot run")).collect();
    let restore: Vec<Documented> = commands.extract_if(.., begins("pghot restore")).collect();
    let vm = &ctx.vm;
    vm.mkdir(FOLDER)?;
    for (command, place) in daemons {
        let flags: Vec<&str> = command.split_whitespace().skip(2).collect();
        let started = Daemon::start(vm, &flags).and_then(Daemon::stop);
        started.with_context(|| format!("{place}: {command}"))?;
    }
    beside_a_program(vm, &commands)?;
    for it in &restore {
        in_guest(vm, it)?;
    }
    let profile = vm.read_bytes(&format!("{FOLDER}/{PROFILE}"))?;
    vm.exec(&["rm", "-r", FOLDER])?.success()?;
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join(PROFILE), profile)?;
    std::os::unix::fs::symlink(root.join("crates"), folder.path().join("crates"))?;
    let pghot = guest_binary("pghot")?;
    for (command, place) in on_host {
        let command = command.replace("redis-server", "hotset");
        let output = Command::new("sh")
            .args(["-c", &command.replacen("pghot", &shown(&pghot), 1)])
            .current_dir(folder.path())
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        if command.starts_with("pghot advise pghot.profile") {
            // A few seconds are no ground for advice.
            let is_refused = output.status.code() == Some(2) && said.contains("pghot record");
            ensure!(is_refused, "{place}: {command}: {}: {said}", output.status);
            continue;
        }
        ensure!(output.status.success(), "{place}: {command}: {said}");
        println!("{place}: {command}: {} bytes", output.stdout.len());
    }
    Ok(())
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// All that are to be run here: the tests of `fleet` run what is of it.
fn commands(root: &Path) -> Result<Vec<Documented>> {
    let blocks = documents::blocks(root)?.into_iter();
    let run = blocks.filter(|block| block.not_run.is_none() && !block.place.starts_with("fleet/"));
    let commands = run.flat_map(|block| {
        let place = block.place;
        let of_block = block.commands.into_iter();
        of_block.map(move |command| {
            let command = command.strip_prefix("target/release/").unwrap_or(&command);
            (command.to_owned(), place.clone())
        })
    });
    Ok(commands.collect())
}

/// Those that record go first, without a daemon: beside its sources they would be refused, unless
/// they say that they pause them.
fn beside_a_program(vm: &Vm, commands: &[Documented]) -> Result<()> {
    let flags = ["--size-mib", "32", "--seconds", "900"];
    let (mut program, _) = start_hotset(vm, &[&flags[..], UNHURRIED].concat())?;
    let pid = program.pid();
    let address = fullest_mapping(&vm.read(&format!("/proc/{pid}/numa_maps"))?)?;
    let filled_in = |(command, place): &Documented| {
        let command = filled_in(command, &pid.to_string(), &address);
        (command, place.clone())
    };
    let commands: Vec<Documented> = commands.iter().map(filled_in).collect();
    let goes_first = |(command, _): &&Documented| {
        command.starts_with("pghot record") && !command.contains("--pause-sources")
    };
    for command in commands.iter().filter(goes_first) {
        in_guest(vm, command)?;
    }
    let daemon = Daemon::start(vm, &["--enabled-sources", "hint_fault,pgtscan,app_hint"])?;
    for command in commands.iter().filter(|it| !goes_first(it)) {
        in_guest(vm, command)?;
    }
    program.kill()?;
    daemon.stop()?;
    Ok(())
}

/// Where it begins, in hexadecimal.
fn fullest_mapping(numa_maps: &str) -> Result<String> {
    let mapping = |line: &str| {
        let mut words = line.split_whitespace();
        let start = words.next()?.to_owned();
        let pages = words.find_map(|word| word.strip_prefix("anon="))?;
        Some((pages.parse::<u64>().ok()?, start))
    };
    let fullest = numa_maps.lines().filter_map(mapping).max();
    Ok(fullest.context("no mapping")?.1)
}

/// The examples stand for a process and an address, and a minute for as long as somebody likes.
fn filled_in(command: &str, pid: &str, address: &str) -> String {
    let mut before = "";
    let mut words = Vec::new();
    for word in command.split_whitespace() {
        match word {
            _ if word.starts_with('[') => {}
            _ if before == "--seconds" => words.push("4"),
            "PID" | "4711" | "4242" => words.push(pid),
            "ADDRESS" | "7f5e1c200000" => words.push(address),
            "redis-server" => words.push("hotset"),
            word => words.push(word),
        }
        before = word;
    }
    let records = ["record", "--pid"];
    let is_long = !command.contains("--seconds") && records.iter().any(|it| command.contains(it));
    if is_long {
        words.extend(["--seconds", "4"]);
    }
    words.join(" ")
}

fn in_guest(vm: &Vm, (command, place): &Documented) -> Result<()> {
    let script = match command.as_str() {
        // It ends at once where there is no terminal.
        "pghot top" => "pghot top --once".to_owned(),
        command => command.to_owned(),
    };
    let output = vm.exec(&["sh", "-c", &format!("cd {FOLDER} && {script}")])?;
    ensure!(
        output.status == Status::Code(0),
        "{place}: {command}: {output:#?}"
    );
    println!("{place}: {command}: {} bytes", output.stdout.len());
    Ok(())
}
