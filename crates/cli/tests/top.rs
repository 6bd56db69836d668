//! `pghot top` from outside: as text in a pipe, for a user without rights, and in a real terminal,
//! which is tmux. The daemon is a fake that answers on its sockets.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use pghot_daemon::protocol::{Request, Response, read_request, to_line};
use pghot_daemon::status::{LowerNode, PastRuns, SourceReport, SourceState, Status, TopNode};
use pghot_engine::Outcome;

const PGHOT: &str = env!("CARGO_BIN_EXE_pghot");

/// A user without any rights.
const NOBODY: u32 = 65_534;

/// A daemon that is one second older at each question and promotes 1000 pages in it.
struct FakeDaemon {
    path: PathBuf,
    asked: Arc<AtomicU64>,
}

impl FakeDaemon {
    fn start(path: &Path, version: &'static str) -> FakeDaemon {
        let listener = UnixListener::bind(path).unwrap();
        let asked = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&asked);
        // Ends with the process: a connection after the end is refused, since the file is gone.
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut requests = BufReader::new(&stream);
                while let Ok(Some(Ok(request))) = read_request(&mut requests) {
                    let response = match request {
                        Request::Status => {
                            Response::Status(Box::new(status(version, count.fetch_add(1, Relaxed))))
                        }
                        _ => Response::Decisions(Vec::new()),
                    };
                    let _ = (&stream).write_all(&to_line(&response));
                }
            }
        });
        let path = path.to_owned();
        FakeDaemon { path, asked }
    }
}

impl Drop for FakeDaemon {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn status(version: &str, up_s: u64) -> Status {
    let mut lower = LowerNode {
        nid: 0,
        why: vec!["the moon is in the wrong place".into()],
        ..LowerNode::default()
    };
    lower.totals.outcomes.add(Outcome::Moved, 1000 * up_s);
    let source = SourceReport {
        name: "hint_fault".into(),
        state: SourceState::Running,
        why: None,
        stats: Some(Default::default()),
        cost: None,
        past: PastRuns::default(),
        details: Default::default(),
    };
    Status {
        version: version.into(),
        kernel: "6.12".into(),
        mode: "default".into(),
        uptime_s: up_s as f64,
        now_ms: 1_000_000 + 1000 * up_s,
        lower_tier: vec![lower],
        top_tier: vec![TopNode {
            nid: 1,
            room_pages: 256,
            free_space_shortcut: false,
        }],
        sources: vec![source],
        ..Status::default()
    }
}

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

/// A tmux server of its own with one terminal.
struct Tmux {
    dir: tempfile::TempDir,
}

impl Tmux {
    /// Runs `pghot top` there, and then tells how it ended and how the terminal is set.
    fn start(socket: &Path, columns: u32, rows: u32) -> Tmux {
        let dir = tempfile::tempdir().unwrap();
        let tmux = Tmux { dir };
        let script = format!(
            "{PGHOT} top --socket {}; echo ended with $?; stty -a; exec sleep 600",
            socket.display()
        );
        let size = [columns.to_string(), rows.to_string()];
        let start = ["new-session", "-d", "-x", &size[0], "-y", &size[1]];
        tmux.run(&[&start[..], &["sh", "-c", &script]].concat());
        tmux
    }

    fn run(&self, arguments: &[&str]) -> String {
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

    fn keys(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    /// Waits until the screen is as wanted, and returns it.
    fn wait(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
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

    fn wait_for(&self, text: &str) -> String {
        self.wait(text, |screen| screen.contains(text))
    }

    /// The process of `pghot top`.
    fn pid(&self) -> u32 {
        let shell = self.run(&["display-message", "-p", "#{pane_pid}"]);
        let shell = shell.trim();
        let children = format!("/proc/{shell}/task/{shell}/children");
        let children = fs::read_to_string(children).unwrap();
        children.trim().parse().expect("one child")
    }

    /// That `pghot top` has ended, and the terminal is as it was.
    fn assert_restored(&self) {
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

/// CPU time of a process, in ns.
fn cpu_ns(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let task = |entry: fs::DirEntry| {
        let text = fs::read_to_string(entry.path().join("schedstat")).unwrap();
        text.split_whitespace()
            .next()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    tasks.map(|entry| task(entry.unwrap())).sum()
}

#[test]
fn a_frame_a_second_takes_less_than_half_a_percent() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("sock");
    let daemon = FakeDaemon::start(&socket, "0");
    let tmux = Tmux::start(&socket, 200, 50);
    tmux.wait_for("1,000 pages/s");
    let (pid, first) = (tmux.pid(), daemon.asked.load(Relaxed));
    let (before_ns, before) = (cpu_ns(pid), Instant::now());
    let looks = 6;
    tmux.wait("looks", |_| daemon.asked.load(Relaxed) >= first + looks);
    let share = (cpu_ns(pid) - before_ns) as f64 / before.elapsed().as_nanos() as f64;
    println!("pghot top takes {:.3} % of a CPU", 100.0 * share);
    assert!(share < 0.005, "{share}");
    assert!(
        before.elapsed() > Duration::from_secs(looks - 2),
        "one frame a second"
    );
}
