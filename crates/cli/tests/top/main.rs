//! `pghot top` from outside: as text in a pipe, for a user without rights, and in a real terminal,
//! which is tmux. The daemon is a fake that answers on its sockets.

#![allow(clippy::unwrap_used)]

mod fake;
mod load;
mod slow;
mod tmux;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use fake::FakeDaemon;
use tmux::Tmux;

const PGHOT: &str = env!("CARGO_BIN_EXE_pghot");

/// A user without any rights.
const NOBODY: u32 = 65_534;

fn once(socket: &Path, arguments: &[&str], locale: &str) -> Output {
    let mut command = Command::new(PGHOT);
    command.args(["top", "--socket", socket.to_str().unwrap()]);
    command.args(arguments).env("LC_ALL", locale);
    command.output().unwrap()
}

#[test]
fn one_frame_in_a_pipe() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("sock");
    let _daemon = FakeDaemon::start(&socket, "0.0-fake");
    for (locale, mark) in [("C", "^ up"), ("C.UTF-8", "▲ up")] {
        let ran = once(&socket, &["--once", "--width", "72"], locale);
        let text = String::from_utf8(ran.stdout).unwrap();
        assert_eq!(ran.status.code(), Some(0), "{text}");
        assert!(text.starts_with("pghot 0.0-fake  Linux 6.12"), "{text}");
        let up = text.lines().find(|line| line.starts_with(mark)).unwrap();
        assert!(up.contains(" 1,000 pages/s      3.9 MiB/s"), "{up}");
        assert!(text.contains("the moon is in the wrong place"), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 72),
            "{text}"
        );
        assert!(
            !text.contains('\x1b') && (locale != "C" || text.is_ascii()),
            "{text}"
        );
    }
}

#[test]
fn without_terminal_or_daemon_it_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("sock");
    for (arguments, code, part) in [
        (&[][..], 2, "pghot top --once"),
        (&["--once"], 3, "start it with `pghot run`"),
        (&["--once", "--width", "7"], 2, "20..=1000"),
        (&["--width", "80"], 2, "--once"),
    ] {
        let ran = once(&socket, arguments, "C");
        let said = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(code), "{said}");
        assert!(said.contains(part) && ran.stdout.is_empty(), "{said}");
    }
}

/// A command as a user without rights; as the own user, if that has none already.
fn as_nobody(dir: &Path) -> Command {
    let binary = dir.join("pghot");
    // By a process of its own: one that another test starts meanwhile would inherit the open file,
    // and then it cannot be run.
    let copied = Command::new("cp").arg(PGHOT).arg(&binary).status();
    assert!(copied.unwrap().success());
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(binary);
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    status.lines().any(|line| line.starts_with("Uid:\t0\t0"))
}

#[test]
fn a_reader_without_rights_is_answered_on_the_status_socket() {
    let dir = tempfile::tempdir().unwrap();
    let (control, readers) = (dir.path().join("sock"), dir.path().join("status"));
    let _owner = FakeDaemon::start(&control, "for-root");
    let _readers = FakeDaemon::start(&readers, "for-readers");
    fs::set_permissions(&control, fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(&readers, fs::Permissions::from_mode(0o666)).unwrap();
    let ask = |arguments: &[&str]| {
        let mut command = as_nobody(dir.path());
        command.args(arguments);
        command.args(["--socket", control.to_str().unwrap()]);
        command.args(["--status-socket", readers.to_str().unwrap()]);
        let ran = command.output().unwrap();
        let text = [ran.stdout, ran.stderr].concat();
        (ran.status.code(), String::from_utf8(text).unwrap())
    };
    for arguments in [&["status"][..], &["top", "--once"]] {
        let (code, text) = ask(arguments);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.starts_with("pghot for-readers"), "{text}");
    }
    fs::set_permissions(&readers, fs::Permissions::from_mode(0o000)).unwrap();
    let (code, text) = ask(&["top", "--once"]);
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains("join the group pghot"), "{text}");
}

#[test]
fn a_terminal_shows_it_live_and_is_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("sock");
    let daemon = FakeDaemon::start(&socket, "first");
    let tmux = Tmux::start(&socket, 80, 24);
    tmux.wait_for("1,000 pages/s");
    tmux.keys(&["?"]);
    tmux.wait_for("KEYS AND WORDS");
    tmux.keys(&["?", "Tab"]);
    tmux.wait_for("[programs]");
    tmux.keys(&["Tab"]);
    tmux.wait_for("no decision was made yet");
    tmux.keys(&["/", "a", "b", "q"]);
    tmux.wait_for("filter: abq_");
    tmux.keys(&["Enter", "Tab"]);
    tmux.wait_for("with \"abq\"");
    // Smaller and larger, as by the mouse.
    for (columns, rows) in [("20", "5"), ("120", "40"), ("40", "15")] {
        tmux.run(&["resize-window", "-x", columns, "-y", rows]);
        let wide = columns.parse::<usize>().unwrap();
        let keys = if wide > 30 { "Tab" } else { "q quit" };
        let is_drawn = |screen: &str| {
            let last = screen.lines().last().unwrap_or_default();
            screen.lines().count() == rows.parse::<usize>().unwrap() && last.contains(keys)
        };
        let screen = tmux.wait("picture of another size", is_drawn);
        assert!(
            screen.lines().all(|line| line.chars().count() <= wide),
            "{screen}"
        );
    }
    // The daemon ends, and another one starts.
    tmux.run(&["resize-window", "-x", "80", "-y", "24"]);
    drop(daemon);
    let screen = tmux.wait_for("! pghot is not running");
    assert!(
        screen.contains("pghot first"),
        "the last picture stays: {screen}"
    );
    let _daemon = FakeDaemon::start(&socket, "second");
    let screen = tmux.wait("new daemon", |screen| screen.contains("1,000 pages/s"));
    assert!(
        screen.contains("pghot second") && !screen.contains("! pghot"),
        "{screen}"
    );
    tmux.keys(&["q"]);
    tmux.assert_restored();
}

#[test]
fn a_signal_gives_the_terminal_back() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("sock");
    for signal in ["TERM", "HUP", "INT"] {
        let tmux = Tmux::start(&socket, 80, 60);
        tmux.wait_for("! pghot is not running");
        let kill = Command::new("kill")
            .arg(format!("-{signal}"))
            .arg(tmux.pid().to_string())
            .status();
        assert!(kill.unwrap().success());
        tmux.assert_restored();
    }
}

/// A terminal that nothing can be drawn on is none.
#[test]
fn a_dumb_terminal_is_told_what_to_use_instead() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("sock");
    let _daemon = FakeDaemon::start(&socket, "0");
    let tmux = Tmux::start_with("TERM=dumb", &socket, 160, 40);
    let screen = tmux.wait("end", |screen| {
        screen.contains("ended with ") && screen.contains("echoctl")
    });
    assert!(screen.contains("ended with 2"), "{screen}");
    assert!(
        screen.starts_with("pghot: `pghot top` needs a terminal"),
        "{screen}"
    );
    assert!(screen.contains("`pghot top --once`"), "{screen}");
    assert!(!screen.contains("MEMORY"), "{screen}");
}
