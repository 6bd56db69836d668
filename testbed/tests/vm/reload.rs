//! The config file of a running daemon: read again on a signal and by a command, and written by
//! `set --save`.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pghot_testbed::{Status, Vm};

use crate::rig::{Daemon, finish, go, hold_hotset, kernel_settings, number, promotes_all, refused};
use crate::{Ctx, Test};

const FILE: &str = "/tmp/pghot.toml";

pub const TESTS: &[Test] = &[
    Test::new(
        "a_signal_has_the_config_file_read_again",
        "tiered3",
        a_signal_has_the_file_read_again,
    ),
    Test::new(
        "what_is_saved_outlives_the_daemon",
        "tiered3",
        what_is_saved_outlives_the_daemon,
    ),
];

/// A program's pages go up while the file is read again and again; half of the times it is wrong,
/// or was not written to its end.
fn a_signal_has_the_file_read_again(ctx: &mut Ctx) -> Result<()> {
    const RELOADS: u32 = 40;
    const WRONG: [&str; 3] = [
        "freq_threshold = 1\nkmigrated_sleep_ms = 10\n",
        "freq_threshold = 1\nkmigrated_sle",
        "freq_threshold = 1\nenabled_sources = \"hint_faults\"\n",
    ];
    let vm = &ctx.vm;
    let before = kernel_settings(vm)?;
    vm.write(FILE, "freq_threshold = 1\n")?;
    let flags = ["--size-mib", "32", "--until-promoted", "--seconds", "120"];
    let hot = hold_hotset(vm, &flags)?;
    let daemon = Daemon::start(vm, &["--config", FILE])?;
    go(vm)?;
    for n in 1..=RELOADS {
        let (is_right, sleep_ms) = (n % 2 == 0, 50 + n);
        match is_right {
            true => vm.write(
                FILE,
                format!("freq_threshold = 1\nkmigrated_sleep_ms = {sleep_ms}"),
            )?,
            false => vm.write(FILE, WRONG[n as usize / 2 % WRONG.len()])?,
        }
        vm.kill(daemon.pid(), libc::SIGHUP)?;
        let mut status = daemon.status()?;
        vm.wait_until("the file is read", Duration::from_secs(60), || {
            status = daemon.status()?;
            Ok(number(&status, "/reload/count").is_ok_and(|count| count == f64::from(n)))
        })?;
        let now_ms = number(&status, "/settings/kmigrated_sleep_ms/value")?;
        let warns = status["warnings"]
            .to_string()
            .contains("nothing has changed");
        ensure!(warns != is_right, "{status:#}");
        match is_right {
            true => ensure!(now_ms == f64::from(sleep_ms), "{status:#}"),
            false => ensure!(now_ms != 10.0 && !status["reload"]["error"].is_null()),
        }
    }
    let done = finish(hot)?;
    ensure!(done["hot_left"] == 0, "{done}\n{:#}", daemon.status()?);
    let log = daemon.stop()?.stderr;
    for told in ["kmigrated_sleep_ms 52 -> 54", "did you mean `hint_fault`?"] {
        ensure!(log.contains(told), "no word of {told}: {log}");
    }
    ensure!(kernel_settings(vm)? == before, "settings are not back");
    Ok(())
}

/// Comments stay, a value that is refused is not saved, and the next daemon has what was saved.
fn what_is_saved_outlives_the_daemon(ctx: &mut Ctx) -> Result<()> {
    let vm = &ctx.vm;
    vm.write(FILE, "# Mine.\nfreq_threshold = 2 # two\n")?;
    let flag = ["--kmigrated-sleep-ms", "150"];
    let daemon = Daemon::start(vm, &[&["--config", FILE], &flag[..]].concat())?;
    // Without --config: the daemon knows its file.
    let said = vm.exec(&["pghot", "set", "freq_threshold", "1", "--save"])?;
    ensure!(!said.success()?.stdout.contains("warning"));
    ensure!(vm.read(FILE)? == "# Mine.\nfreq_threshold = 1 # two\n");
    let set = |value| vm.exec(&["pghot", "set", "freq_threshold", value, "--save"]);
    is_refused_with(2, set("9")?, "1 to 3")?;
    ensure!(vm.read(FILE)? == "# Mine.\nfreq_threshold = 1 # two\n");
    let reload = || vm.exec(&["pghot", "reload"]);
    ensure!(
        reload()?
            .success()?
            .stdout
            .contains("no tunable has changed")
    );
    let said = vm.exec(&["pghot", "set", "kmigrated_sleep_ms", "200", "--save"])?;
    let said = said.success()?.stdout;
    ensure!(said.contains("started with --kmigrated-sleep-ms"), "{said}");
    vm.write(
        FILE,
        "freq_threshold = 1\nmode = \"precision\"\nenabled_sources = [\"pgtscan\"]\n",
    )?;
    let said = reload()?.success()?.stdout;
    for told in [
        "enabled_sources hint_fault,pgtscan,page_cache -> pgtscan",
        "needs a restart",
    ] {
        ensure!(said.contains(told), "{said}");
    }
    vm.write(FILE, "freq_threshold = \n")?;
    is_refused_with(2, reload()?, "not TOML")?;
    refuses_a_read_only_folder(vm)?;
    vm.write(FILE, "freq_threshold = 1\n")?;
    daemon.stop()?;
    let daemon = Daemon::start(vm, &["--config", FILE])?;
    let value = daemon.number("/settings/freq_threshold/value")?;
    ensure!(value == 1.0, "freq_threshold is {value}");
    promotes_all(vm, &daemon)?;
    daemon.stop()?;
    Ok(())
}

/// One sentence, and nothing has changed.
fn refuses_a_read_only_folder(vm: &Vm) -> Result<()> {
    let threshold = || -> Result<f64> {
        let status = vm.exec(&["pghot", "status", "--json"])?.success()?.stdout;
        number(
            &serde_json::from_str(&status)?,
            "/settings/freq_threshold/value",
        )
    };
    let before = threshold().context("before")?;
    let output = vm.exec(&[
        "pghot",
        "set",
        "freq_threshold",
        "3",
        "--save",
        "--config",
        "/proc/pghot.toml",
    ])?;
    ensure!(output.stderr.trim_end().lines().count() == 1, "{output:?}");
    refused(output, "cannot save into /proc/pghot.toml")?;
    ensure!(threshold()? == before);
    Ok(())
}

fn is_refused_with(code: i32, output: pghot_testbed::Output, word: &str) -> Result<()> {
    ensure!(output.status == Status::Code(code), "{output:?}");
    refused(output, word)
}
