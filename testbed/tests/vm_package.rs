//! The Debian package in a guest that runs a real Debian with systemd: installed, used, killed,
//! hung, upgraded, removed and purged; whatever happens, the host is as it was.
//!
//! It takes `make package` and `testbed/setup.sh --package` before, and minutes, so it is left to
//! `make package-test` and `make test-long`.

#[path = "vm/by_kernel.rs"]
mod by_kernel;
#[path = "vm/debian.rs"]
mod debian;
#[path = "vm/guest.rs"]
mod guest;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use pghot_testbed::{DEBIAN_FILES, documents, number};
use serde_json::Value;

use debian::Host;

/// What `systemd-analyze security` may say of the unit at most, in tenths: 0 is best, and 100 no
/// protection at all.
const EXPOSURE_MAX: &str = "29";

/// The step after which there is one.
const BOARD: &str = "a live board";

/// From the package to a board that shows what happens.
const BOARD_MAX: Duration = Duration::from_secs(300);

/// As the end of Debian's file: it scrapes itself.
const SCRAPES: &str = "global:\n  scrape_interval: 15s\n\
                       scrape_configs:\n  - job_name: prometheus\n    \
                       static_configs:\n      - targets: ['localhost:9090']\n";

const BALANCING: &str = "/proc/sys/kernel/numa_balancing";

fn main() -> ExitCode {
    by_kernel::main("tiered3-debian::the_package_comes_and_goes", comes_and_goes)
}

/// What is done, and what does it.
type Step = (&'static str, fn(&Host) -> Result<()>);

/// One guest for all of it, because each step takes the host as the one before left it.
fn comes_and_goes(kernel: &str) -> Result<()> {
    let host = Host::boot(kernel)?;
    let begin = Instant::now();
    let steps: [Step; 10] = [
        ("installing", installs),
        (BOARD, is_watched),
        ("promoting", promotes),
        ("promoting a file", promotes_a_file),
        ("every source", every_source_runs),
        ("a recording", records),
        ("kill -9", is_killed),
        ("a hang", hangs),
        ("the upgrade", upgrades),
        ("going", goes),
    ];
    for (what, step) in steps {
        let start = Instant::now();
        step(&host).with_context(|| format!("{what}; the journal:\n{}", host.journal()))?;
        println!(
            "{kernel}: {what} took {:.0} s",
            start.elapsed().as_secs_f64()
        );
        let took = begin.elapsed();
        ensure!(what != BOARD || took < BOARD_MAX, "{what} took {took:?}");
    }
    Ok(())
}

/// What docs/metrics.md says, but for installing Prometheus, which needs a network: it is there as
/// a service like Debian's. In the end it knows the rate at which pages go up.
fn is_watched(host: &Host) -> Result<()> {
    const TOML: &str = "/etc/pghot/pghot.toml";
    const UNIT: &str = "/run/systemd/system/prometheus.service";
    const EXAMPLES: &str = "/usr/share/doc/pghot/examples";
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let root = root.context("the testbed lies in a folder")?;
    let blocks = documents::blocks(root)?;
    let is_it = |command: &String| command.contains("prometheus.yml");
    let block = blocks.iter().find(|block| block.commands.iter().any(is_it));
    let commands = &block.context("no block sets up Prometheus")?.commands;
    ensure!(commands.len() <= 5, "{commands:#?}");
    // The image is one of those that leave out the documents of packages.
    let network = std::fs::read(root.join("packaging/network.conf"))?;
    host.vm.mkdir(EXAMPLES)?;
    host.vm
        .write(&format!("{EXAMPLES}/network.conf"), network)?;
    host.run(&["cp", TOML, "/tmp/pghot.toml"])?;
    host.vm.mkdir("/etc/prometheus")?;
    host.vm.write("/etc/prometheus/prometheus.yml", SCRAPES)?;
    let start = format!(
        "[Service]\nExecStart={DEBIAN_FILES}/prometheus \
         --config.file=/etc/prometheus/prometheus.yml --storage.tsdb.path=/run/prometheus\n"
    );
    host.vm.write(UNIT, start)?;
    for command in &commands[1..] {
        host.shell(command)?;
    }
    host.wait_active()?;
    // A rate takes a look before and one after.
    wait_for_series(host, "pghot_promoted_pages_total")?;
    promote(host, "hotset --size-mib 32 --seconds 120")?;
    wait_for_series(host, "rate(pghot_promoted_pages_total%5B5m%5D)%20%3E%200")?;
    host.run(&["systemctl", "stop", "prometheus"])?;
    host.run(&["mv", "/tmp/pghot.toml", TOML])?;
    let unit = "/etc/systemd/system/pghot.service.d";
    let made = ["/etc/prometheus", "/run/prometheus", UNIT, unit, EXAMPLES];
    host.run(&[&["rm", "-r"], &made[..]].concat())?;
    host.run(&["systemctl", "daemon-reload"])?;
    host.run(&["systemctl", "restart", "pghot"])?;
    host.wait_active()
}

/// Waits until Prometheus answers a query, which is as an URL has it.
fn wait_for_series(host: &Host, query: &str) -> Result<()> {
    let ask = format!(
        "exec 3<>/dev/tcp/127.0.0.1/9090 && \
         printf '%s\\r\\n\\r\\n' 'GET /api/v1/query?query={query} HTTP/1.0' >&3 && cat <&3"
    );
    let mut said = String::new();
    let waited = host.vm.wait_until("Prometheus answers", BOARD_MAX, || {
        said = match host.run(&["bash", "-c", &ask]) {
            Ok(said) => said,
            Err(error) => format!("{error:#}"),
        };
        Ok(said.contains("\"success\"") && said.contains("\"value\""))
    });
    waited.with_context(|| said.clone())
}

/// One command, and the daemon is at work, with the rights that the unit leaves it.
fn installs(host: &Host) -> Result<()> {
    host.run(&["apt-get", "install", "--yes", &host.package])?;
    host.wait_active()?;
    ensure!(
        host.settings()? != host.settings_before,
        "pghot has changed no setting"
    );
    host.run(&[
        "systemd-analyze",
        "security",
        "--threshold",
        EXPOSURE_MAX,
        "pghot.service",
    ])?;
    let status = host.run(&["systemctl", "show", "--property=StatusText", "pghot"])?;
    ensure!(status.contains("pages promoted from node 2"), "{status}");
    // The group may read, and nobody else.
    host.run_as("pghot", &["pghot", "status"])?;
    let started = "PGHOT_EVENT=daemon_started";
    let started = host.run(&["journalctl", "--unit=pghot", "--output=cat", started])?;
    ensure!(started.contains("promoting from node 2"), "{started}");
    let set = ["pghot", "set", "freq_threshold", "1"];
    ensure!(host.run_as("pghot", &set).is_err());
    ensure!(host.run_as("1000", &["pghot", "status"]).is_err());
    Ok(())
}

/// Runs a workload as a user, which is the harder case: for root's own memory fewer capabilities
/// do. All of it is hot; returns how many of its pages are left in the lower tier.
fn promote(host: &Host, workload: &str) -> Result<f64> {
    let usual = "--home 2 --fast 0,1 --cpus 0 --until-promoted";
    let argv = workload.split(' ').chain(usual.split(' '));
    let said = host.run_as("1000", &argv.collect::<Vec<_>>())?;
    let done = said.lines().rev().find(|line| line.contains("\"done\""));
    let done: Value = serde_json::from_str(done.context("the workload did not say `done`")?)?;
    ensure!(done["errors"] == 0, "pages lost their content: {done}");
    Ok(number(&done, "/hot_left")?)
}

/// Base pages that pghot has promoted. None may have been refused to it.
fn moved(host: &Host) -> Result<f64> {
    let status = host.status()?;
    let outcome = |name| number(&status, &format!("/lower_tier/0/totals/outcomes/{name}"));
    ensure!(outcome("denied")? == 0.0, "{status:#}");
    Ok(outcome("moved")?)
}

fn promotes(host: &Host) -> Result<()> {
    let left = promote(host, "hotset --size-mib 32 --seconds 120")?;
    ensure!(left == 0.0, "{left} pages are left: {:#}", host.status()?);
    ensure!(moved(host)? >= 8192.0, "not by pghot: {:#}", host.status()?);
    Ok(())
}

/// A user's file, which pghot finds by its number, through what the unit shows it of the mounts.
fn promotes_a_file(host: &Host) -> Result<()> {
    host.run(&["install", "--directory", "--owner=1000", "/home/user"])?;
    host.run(&["pghot", "set", "enabled_sources", "0x8"])?;
    let before = moved(host)?;
    let left = promote(
        host,
        "pagecache --file /home/user/file --size-mib 16 --seconds 120",
    )?;
    ensure!(left <= 16.0, "{left} pages are left: {:#}", host.status()?);
    let by_pghot = moved(host)? - before;
    ensure!(
        by_pghot >= 4080.0,
        "{by_pghot} by pghot: {:#}",
        host.status()?
    );
    host.run(&["pghot", "set", "enabled_sources", "0x5"])?;
    host.run(&["rm", "-r", "/home/user"])?;
    Ok(())
}

/// None lacks a capability, a system call or a file. An emulator has no hardware samples.
fn every_source_runs(host: &Host) -> Result<()> {
    host.run(&["pghot", "set", "enabled_sources", "0x3f"])?;
    let status = host.status()?;
    let sources = status["sources"].as_array().context("no sources")?;
    let can_run = |source: &&Value| source["name"] != "hw_sample";
    for source in sources.iter().filter(can_run) {
        let is_well = source["state"] == "running" || source["state"] == "standing_by";
        ensure!(is_well, "{source:#}");
    }
    // Page tables of a user's process are cleared through a file that is his. The kernel's
    // balancing, which is as before pghot now, would move his pages too.
    host.run(&["pghot", "set", "enabled_sources", "0x4"])?;
    host.vm.write(BALANCING, "0")?;
    let before = host.recorded("pgtscan")?;
    promote(host, "hotset --size-mib 8 --seconds 20")?;
    let recorded = host.recorded("pgtscan")?;
    ensure!(recorded > before, "{:#}", host.status()?);
    host.vm.write(BALANCING, "1")?;
    host.run(&["pghot", "set", "enabled_sources", "0x5"])?;
    Ok(())
}

/// Into the one directory that the unit lets it write to, as its user, who alone may read it; what
/// is there goes with the purge.
fn records(host: &Host) -> Result<()> {
    const CONFIG: &str = "/etc/pghot/pghot.toml";
    const PROFILE: &str = "/var/lib/pghot/pghot.profile";
    let before = host.vm.read(CONFIG)?;
    let record = format!("record_file = \"{PROFILE}\"\nrecord_seconds = 2\n");
    host.vm.write(CONFIG, format!("{before}{record}"))?;
    host.run(&["systemctl", "restart", "pghot"])?;
    host.wait_active()?;
    promote(host, "hotset --size-mib 8 --seconds 20")?;
    let kept = || -> Result<f64> { Ok(number(&host.status()?, "/recording/profiles")?) };
    let done = (host.vm).wait_until("a profile is kept", Duration::from_secs(120), || {
        Ok(kept().is_ok_and(|profiles| profiles > 0.0))
    });
    done.with_context(|| format!("{:#}", host.status().unwrap_or_default()["recording"]))?;
    let whose = host.run(&["stat", "--format=%U %a", PROFILE])?;
    ensure!(whose.trim() == "pghot 600", "{whose}");
    host.vm.write(CONFIG, &before)?;
    host.run(&["systemctl", "restart", "pghot"])?;
    host.wait_active()
}

/// The daemon runs as its user, its keeper as root. First without a restart, to see that the
/// keeper, or if both are killed systemd alone, puts the settings back; then with it.
fn is_killed(host: &Host) -> Result<()> {
    let uid = |pid: &str| {
        let of_status = format!("grep ^Uid: /proc/{pid}/status");
        let line = host.run(&["sh", "-c", &of_status])?;
        let uid = line.split_whitespace().nth(1).map(str::to_owned);
        uid.context("no uid")
    };
    let pid = host.main_pid()?;
    // Forked before anything else, so the first of its children.
    let children = host.run(&["cat", &format!("/proc/{pid}/task/{pid}/children")])?;
    let keeper = children.split_whitespace().next();
    let keeper = keeper.context("there is no keeper")?;
    ensure!(uid(&pid)? == host.run(&["id", "--user", "pghot"])?.trim());
    ensure!(uid(keeper)? == "0", "the keeper is not root");
    host.override_unit(Some("Restart=no"))?;
    host.signal(libc::SIGKILL)?;
    host.wait_state("failed")?;
    host.ensure_settings_are_back()?;
    host.run(&["systemctl", "reset-failed", "pghot"])?;
    host.run(&["systemctl", "start", "pghot"])?;
    host.wait_active()?;
    host.run(&[
        "systemctl",
        "kill",
        "--signal=KILL",
        "--kill-whom=all",
        "pghot",
    ])?;
    host.wait_state("failed")?;
    host.ensure_settings_are_back()?;
    host.override_unit(None)?;
    host.run(&["systemctl", "start", "pghot"])?;
    host.wait_active()?;

    let (pid, restarts) = (host.main_pid()?, host.restarts()?);
    host.signal(libc::SIGKILL)?;
    host.wait_restarted(restarts)?;
    ensure!(host.main_pid()? != pid);
    is_as_it_was_while_stopped(host)
}

/// A process that does nothing any more, and a thread that never comes back while the others go on,
/// as one that waits for a dead server. The watchdog is a shorter one.
fn hangs(host: &Host) -> Result<()> {
    host.override_unit(Some("WatchdogSec=10s"))?;
    host.run(&["systemctl", "restart", "pghot"])?;
    let restarts = host.restarts()?;
    host.signal(libc::SIGSTOP)?;
    host.wait_restarted(restarts)?;

    let restarts = host.restarts()?;
    host.freeze_thread("migrator2")?;
    host.wait_restarted(restarts)?;
    let said = "the migrator of node 2 has made no progress for 10 s";
    ensure!(host.journal().contains(said), "the thread is not named");
    host.override_unit(None)?;
    is_as_it_was_while_stopped(host)
}

fn is_as_it_was_while_stopped(host: &Host) -> Result<()> {
    host.run(&["systemctl", "stop", "pghot"])?;
    host.ensure_settings_are_back()?;
    host.run(&["systemctl", "reset-failed", "pghot"])?;
    host.run(&["systemctl", "start", "pghot"])?;
    host.wait_active()
}

fn upgrades(host: &Host) -> Result<()> {
    let pid = host.main_pid()?;
    let newer = host.make_newer_package()?;
    host.run(&["apt-get", "install", "--yes", &newer])?;
    host.run(&["rm", &newer])?;
    host.wait_active()?;
    ensure!(host.main_pid()? != pid, "the old daemon runs on");
    let version = host.run(&["dpkg-query", "--show", "--showformat=${Version}", "pghot"])?;
    ensure!(version.ends_with("+newer"), "{version}");
    is_as_it_was_while_stopped(host)
}

fn goes(host: &Host) -> Result<()> {
    host.run(&["apt-get", "remove", "--yes", "pghot"])?;
    host.ensure_settings_are_back()?;
    ensure!(
        host.vm.exists("/etc/pghot/pghot.toml")?,
        "the configuration stays until the purge"
    );
    ensure!(!host.vm.exists("/usr/bin/pghot")?);
    host.run(&["apt-get", "purge", "--yes", "pghot"])?;
    host.ensure_settings_are_back()?;
    let left = host.new_files()?;
    ensure!(left.is_empty(), "the purge leaves {}", left.join(", "));
    let group = host.run(&["getent", "group", "pghot"])?;
    ensure!(
        group.starts_with("pghot:"),
        "groups stay, as Debian wants it"
    );
    Ok(())
}
