//! A real terminal, which is tmux, with `pghot top` in it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::PGHOT;

/// A tmux server of its own with one terminal.
pub struct Tmux {
    dir: tempfile::TempDir,
}

impl Tmux {
    /// Runs `pghot top` there, and then tells how it ended and how the terminal is set.
    pub fn start(socket: &Path, columns: u32, rows: u32) -> Tmux {
        Tmux::start_with("", socket, columns, rows)
    }

    /// The same with some variables of the environment.
    pub fn start_with(variables: &str, socket: &Path, columns: u32, rows: u32) -> Tmux {
        let dir = tempfile::tempdir().unwrap();
        let tmux = Tmux { dir };
        let script = format!(
            "{variables} {PGHOT} top --socket {}; echo ended with $?; stty -a; exec sleep 600",
            socket.display()
        );
        let size = [columns.to_string(), rows.to_string()];
        let start = ["new-session", "-d", "-x", &size[0], "-y", &size[1]];
        tmux.run(&[&start[..], &["sh", "-c", &script]].concat());
        tmux
    }

    /// Asks the server, and returns what it prints.
    pub fn run(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command
            .arg("-u")
            .arg("-S")
            .arg(self.dir.path().join("tmux"));
        command.args(["-f", "/dev/null"]).args(arguments);
        command
            .env("LC_ALL", "C.UTF-8")
            .env("TERM", "xterm-256color");
        let ran = command
            .output()
            .expect("tmux is needed: run testbed/setup.sh");
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(ran.status.success(), "tmux {arguments:?}: {said}");
        String::from_utf8(ran.stdout).unwrap()
    }

    /// As if these were typed.
    pub fn keys(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    /// Waits until the screen is as wanted, and returns it.
    pub fn wait(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let screen = self.run(&["capture-pane", "-p"]);
            if is_so(&screen) {
                return screen;
            }
            assert!(Instant::now() < deadline, "no {what}:\n{screen}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The same until the screen has a text.
    pub fn wait_for(&self, text: &str) -> String {
        self.wait(text, |screen| screen.contains(text))
    }

    /// The process of `pghot top`.
    pub fn pid(&self) -> u32 {
        let shell = self.run(&["display-message", "-p", "#{pane_pid}"]);
        let shell = shell.trim();
        let children = format!("/proc/{shell}/task/{shell}/children");
        let children = fs::read_to_string(children).unwrap();
        children.trim().parse().expect("one child")
    }

    /// That `pghot top` has ended, and the terminal is as it was.
    pub fn assert_restored(&self) {
        let screen = self.wait("end", |screen| {
            screen.contains("ended with 0") && screen.contains("echoctl")
        });
        let has = |setting: &str| {
            screen
                .split_whitespace()
                .any(|word| word.trim_end_matches(';') == setting)
        };
        assert!(
            has("icanon") && has("echo") && has("isig") && has("opost"),
            "{screen}"
        );
        assert!(
            !screen.contains("POLICY"),
            "the alternate screen is left: {screen}"
        );
        assert_eq!(
            self.run(&["display-message", "-p", "#{cursor_flag}"])
                .trim(),
            "1"
        );
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}
