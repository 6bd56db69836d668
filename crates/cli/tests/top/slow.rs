//! A terminal that is not read for a while: what is shown after that is what is now.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command};
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use crate::PGHOT;
use crate::fake::FakeDaemon;

const ROWS: u16 = 40;
const COLUMNS: u16 = 120;

/// How long nobody reads.
const STALL: Duration = Duration::from_secs(2);

/// A terminal, and what its screen shows as far as it was read.
struct Pty {
    terminal: File,
    screen: vt100::Parser,
    /// Bytes that were read.
    read: usize,
    child: Child,
}

impl Pty {
    fn start(socket: &str) -> Pty {
        let (mut terminal, mut program) = (-1, -1);
        let size = libc::winsize {
            ws_row: ROWS,
            ws_col: COLUMNS,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let null = std::ptr::null_mut();
        // SAFETY: both numbers are written, and the size is read; nothing is kept.
        let opened =
            unsafe { libc::openpty(&mut terminal, &mut program, null, null.cast(), &size) };
        assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
        // SAFETY: they were just opened, and nobody else has them.
        let [terminal, program] = [terminal, program].map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        let mut command = Command::new(PGHOT);
        command.args(["top", "--socket", socket]);
        command
            .env("LC_ALL", "C.UTF-8")
            .env("TERM", "xterm-256color");
        command.stdin(program.try_clone().unwrap());
        command.stdout(program.try_clone().unwrap());
        command.stderr(program);
        let child = command.spawn().unwrap();
        Pty {
            terminal: terminal.into(),
            screen: vt100::Parser::new(ROWS, COLUMNS, 0),
            read: 0,
            child,
        }
    }

    /// Reads until the screen is as wanted or the time is over.
    fn read_until(&mut self, end: Instant, is_so: impl Fn(&str) -> bool) -> Result<(), String> {
        loop {
            let shown = self.screen.screen().contents();
            let left = end.saturating_duration_since(Instant::now());
            if is_so(&shown) {
                return Ok(());
            }
            if left.is_zero() {
                return Err(shown);
            }
            let mut wait = libc::pollfd {
                fd: self.terminal.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one descriptor, which lives as long as the call.
            if unsafe { libc::poll(&mut wait, 1, left.as_millis() as i32) } == 1 {
                let mut bytes = [0; 4096];
                let length = self.terminal.read(&mut bytes).unwrap();
                self.read += length;
                self.screen.process(&bytes[..length]);
            }
        }
    }

    fn keys(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).unwrap();
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn uptime_s(screen: &str) -> Option<u64> {
    let (_, after) = screen.lines().next()?.split_once("  up ")?;
    after.split_once(" s")?.0.parse().ok()
}

#[test]
fn after_a_stall_the_screen_is_current_within_two_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("sock");
    let daemon = FakeDaemon::start(&socket, "0");
    let mut pty = Pty::start(socket.to_str().unwrap());
    let soon = Instant::now() + Duration::from_secs(30);
    pty.read_until(soon, |screen| screen.contains("1,000 pages/s"))
        .unwrap();

    let before = pty.read;
    // Each key has the whole picture drawn: far more than a terminal holds for its reader.
    let end = Instant::now() + STALL;
    while Instant::now() < end {
        pty.keys("?");
        thread::sleep(Duration::from_millis(2));
    }
    pty.keys("\x1b");
    thread::sleep(Duration::from_millis(50));
    pty.keys("/now_");
    let asked = daemon.asked.load(Relaxed);
    let is_current = |screen: &str| {
        let is_new = uptime_s(screen).is_some_and(|up_s| up_s + 1 >= asked);
        is_new && screen.contains("filter: now__")
    };
    let told = pty.read_until(Instant::now() + Duration::from_secs(2), is_current);
    if let Err(screen) = told {
        panic!("{asked} seconds up:\n{screen}");
    }
    // What the terminal held, and all that came of the keys, which is one picture.
    let read = pty.read - before;
    assert!((4096..200_000).contains(&read), "{read}");
}
