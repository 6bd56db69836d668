//! `pghot top` in a real terminal of the guest, which is tmux: pages go up, the window becomes
//! smaller, the daemon dies and comes back.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pghot_testbed::Vm;

use crate::rig::{Daemon, promotes_all};
use crate::session::make_terminals;
use crate::{Ctx, Test};

pub const TESTS: &[Test] =
    &[Test::new("a_terminal_outlives_the_daemon", "tiered3", outlives).long()];

const LIMIT: Duration = Duration::from_secs(60);

/// What runs there; the shell tells how it ended.
const SCRIPT: &str = "pghot top; echo ended with $?; exec sleep 600";

/// Where the guest has its only locale.
const LOCALES: &str = "/tmp/locale";

/// Asks the server of tmux, and returns what it prints.
fn tmux(vm: &Vm, arguments: &[&str]) -> Result<String> {
    let argv = ["tmux", "-u", "-S", "/tmp/tmux", "-f", "/dev/null"];
    let env = [("LOCPATH", LOCALES), ("LC_CTYPE", "C.UTF-8")];
    let ran = vm.exec_with(&[&argv, arguments].concat(), &env, b"")?;
    Ok(ran.success()?.stdout)
}

/// Waits until the screen is as wanted, and returns it.
fn wait(vm: &Vm, what: &str, is_so: impl Fn(&str) -> bool) -> Result<String> {
    let mut screen = String::new();
    let waited = vm.wait_until(what, LIMIT, || {
        screen = tmux(vm, &["capture-pane", "-p"]).unwrap_or_default();
        Ok(is_so(&screen))
    });
    waited.with_context(|| format!("the screen:\n{screen}"))?;
    Ok(screen)
}

/// The number behind a word, as it is shown.
fn shown(screen: &str, word: &str) -> Option<u64> {
    let mut words = screen.split_whitespace();
    words.find(|it| *it == word)?;
    words.next()?.replace(',', "").parse().ok()
}

fn outlives(ctx: &mut Ctx) -> Result<()> {
    let vm = &ctx.vm;
    make_terminals(vm)?;
    vm.mkdir(&format!("{LOCALES}/C.utf8"))?;
    vm.write(
        &format!("{LOCALES}/C.utf8/LC_CTYPE"),
        vm.read_bytes("/bin/LC_CTYPE")?,
    )?;
    let daemon = Daemon::start(vm, &["--freq-threshold", "1"])?;
    tmux(vm, &["new-session", "-d", "-x", "110", "-y", "34", SCRIPT])?;
    wait(vm, "the sources", |screen| screen.contains("hint_fault"))?;
    promotes_all(vm, &daemon)?;
    wait(vm, "the promoted pages", |screen| {
        shown(screen, "moved").is_some_and(|pages| pages >= 8192)
    })?;

    tmux(vm, &["resize-window", "-x", "60", "-y", "20"])?;
    let small = wait(vm, "a smaller picture", |screen| {
        let is_narrow = screen.lines().all(|line| line.chars().count() <= 60);
        is_narrow && screen.contains("node 2")
    })?;
    ensure!(small.lines().count() <= 20, "{small}");

    const LOST: &str = "pghot is not running";
    daemon.kill()?;
    let lost = wait(vm, "the loss", |screen| screen.contains(LOST))?;
    ensure!(lost.contains("node 2"), "what was known is gone:\n{lost}");
    let daemon = Daemon::start(vm, &[])?;
    wait(vm, "its return", |screen| {
        screen.contains("node 2") && !screen.contains(LOST)
    })?;

    tmux(vm, &["send-keys", "q"])?;
    wait(vm, "the end", |screen| screen.contains("ended with 0"))?;
    tmux(vm, &["kill-server"])?;
    daemon.stop()?;
    Ok(())
}
