//! What one expects of a command line: an exit status for each kind of error, what was meant, and
//! what a shell wants to know.

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Nobody has this user's files.
const NOBODY: u32 = 65534;

struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn ran(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn pghot(args: &[&str]) -> Ran {
    ran(Command::new(env!("CARGO_BIN_EXE_pghot")).args(args))
}

/// Without root's rights, whoever runs the tests.
fn pghot_as_nobody(dir: &Path, args: &[&str]) -> Ran {
    let copy = dir.join("pghot");
    if !copy.exists() {
        // By a process of its own: one that another test starts meanwhile would inherit the open
        // file, and then it cannot be run.
        let mut cp = Command::new("cp");
        let copied = cp.arg(env!("CARGO_BIN_EXE_pghot")).arg(&copy).status();
        assert!(copied.unwrap().success());
    }
    let mut command = Command::new(copy);
    command.args(args).current_dir("/");
    // SAFETY: takes nothing and cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    ran(&mut command)
}

/// The same mistake, on the command line and in the file, has the same status.
#[test]
fn one_kind_of_error_has_one_status() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let none = file("none.toml", "");
    let high = file("high.toml", "freq_threshold = 9");
    let typo = file("typo.toml", "freq_treshold = 2");
    let source = file("source.toml", "enabled_sources = [\"hint_faults\"]");
    let mode = file("mode.toml", "mode = \"fast\"");
    let broken = file("broken.toml", "mode = ");
    let socket = dir.path().join("sock");
    let socket = socket.to_str().unwrap();
    let run = |config: &str| vec!["run".to_owned(), "--config".into(), config.into()];
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let with = |mut line: Vec<String>, more: &str| {
        line.extend(words(more));
        line
    };
    let table = [
        (run(&high), 2),
        (with(run(&none), "--freq-threshold 9"), 2),
        (run(&typo), 2),
        (with(run(&none), "--freq-treshold 2"), 2),
        (words("set freq_treshold 2"), 2),
        (run(&source), 2),
        (with(run(&none), "--enabled-sources hint_faults"), 2),
        (run(&mode), 2),
        (with(run(&none), "--mode fast"), 2),
        (run(&broken), 2),
        (words("statu"), 2),
        (words("sim tables chunk"), 2),
        (words("man statu"), 2),
        (words("completions csh"), 2),
        (words(&format!("status --socket {socket}")), 3),
        (words(&format!("status --json --socket {socket}")), 3),
        (words(&format!("metrics --socket {socket}")), 3),
        (words(&format!("top --once --socket {socket}")), 3),
        (words(&format!("reload --socket {socket}")), 3),
        (words(&format!("explain --last 3 --socket {socket}")), 3),
        (words(&format!("set freq_threshold 2 --socket {socket}")), 3),
        (
            words(&format!("set freq_threshold 2 --save --socket {socket}")),
            3,
        ),
        (words(&format!("hint 1 1000 --hint-socket {socket}")), 3),
        (run("/nonexistent.toml"), 1),
    ];
    for (line, code) in table {
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        let ran = pghot(&line);
        assert_eq!(ran.code, Some(code), "{line:?}: {}", ran.stderr);
        assert!(ran.stdout.is_empty() && !ran.stderr.is_empty(), "{line:?}");
    }
}

#[test]
fn without_rights_the_status_is_4_and_says_as_whom() {
    let dir = tempfile::tempdir().unwrap();
    let set_mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set_mode(dir.path(), 0o755);
    let closed = dir.path().join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::write(closed.join("pghot.toml"), "").unwrap();
    set_mode(&closed, 0o000);
    let path = |file: &str| closed.join(file).to_str().unwrap().to_owned();
    let (file, socket) = (path("pghot.toml"), path("sock"));
    for (args, part) in [
        (vec!["record", "--seconds", "1"], "run as root"),
        (
            vec!["run", "--config", &file],
            "cannot read the config file",
        ),
        (
            vec!["set", "freq_threshold", "2", "--socket", &socket],
            "as root",
        ),
        (
            vec!["status", "--socket", &socket, "--status-socket", &socket],
            "as root",
        ),
        (
            vec!["hint", "1", "1000", "--hint-socket", &socket],
            "nobody takes hints",
        ),
        (
            vec!["restore", "--state-file", &path("state.json")],
            "state.json",
        ),
    ] {
        let ran = pghot_as_nobody(dir.path(), &args);
        assert_eq!(ran.code, Some(4), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(part), "{args:?}: {}", ran.stderr);
        assert_eq!(ran.stderr.trim_end().lines().count(), 1, "{}", ran.stderr);
    }
    set_mode(&closed, 0o755);
}

#[test]
fn what_was_meant_is_asked_for_everywhere() {
    for (args, meant) in [
        (&["statu"][..], "status"),
        (&["run", "--freq-treshold", "2"], "freq-threshold"),
        (&["set", "freq_treshold", "2"], "freq_threshold"),
        (
            &[
                "run",
                "--config",
                "/dev/null",
                "--enabled-sources",
                "pgscan",
            ],
            "pgtscan",
        ),
        (&["sim", "tables", "chunk"], "chunks"),
        (&["man", "sim", "replai"], "replay"),
    ] {
        let ran = pghot(args);
        assert!(ran.stderr.contains(meant), "{args:?}: {}", ran.stderr);
    }
}

#[test]
fn completions_know_what_a_value_can_be() {
    for shell in ["bash", "zsh", "fish"] {
        let ran = pghot(&["completions", shell]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        for value in ["page_cache", "nearest", "numab2"] {
            assert!(ran.stdout.contains(value), "{shell}: {value}");
        }
        // Of fish's, clap knows no values without a flag.
        let is_fish = shell == "fish";
        for value in ["promote_rate_limit_MBps", "chunks"] {
            assert!(is_fish || ran.stdout.contains(value), "{shell}: {value}");
        }
    }
}

/// As bash asks when somebody types the beginning of a value and a tab.
#[test]
fn bash_completes_what_a_tunable_can_be() {
    let completed = |words: &str, typed: &str| {
        let script = format!(
            "source <({} completions bash); COMP_WORDS=(pghot {words} '{typed}'); \
             COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _pghot pghot '{typed}' \"${{COMP_WORDS[COMP_CWORD - 1]}}\"; echo ${{COMPREPLY[@]}}",
            env!("CARGO_BIN_EXE_pghot")
        );
        let ran = ran(Command::new("bash").args(["-c", &script]));
        assert_eq!(ran.stderr, "", "{script}");
        ran.stdout.trim().to_owned()
    };
    assert_eq!(completed("set enabled_sources", "page"), "page_cache");
    assert_eq!(completed("set target_nid", "near"), "nearest");
    assert_eq!(completed("set", "target"), "target_nid");
    assert_eq!(completed("run --enabled-sources", "page"), "page_cache");
    // What is no word goes through as it is.
    assert_eq!(completed("set freq_threshold", "3"), "");
}

#[test]
fn manual_pages_are_printed() {
    for (args, title) in [
        (&["man"][..], ".TH pghot 1"),
        (&["man", "set"], ".TH pghot-set 1"),
        (&["man", "sim", "replay"], ".TH pghot-sim-replay 1"),
    ] {
        let ran = pghot(args);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(
            ran.stdout.contains(title),
            "{args:?}: {}",
            &ran.stdout[..200]
        );
    }
    let page = pghot(&["man"]).stdout;
    assert!(
        page.contains("Exit status") && page.contains("pghot\\-reload"),
        "{page}"
    );
}
