//! Init of the test guests: prepares the file system, then answers the host on a serial line.
//!
//! It runs as two processes. The first, pid 1, only reaps: every orphan of the guest ends up there.
//! The second serves; its children are its own, so nobody else can collect their exit status.

mod files;
mod processes;

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{process, ptr, thread};

use pghot_testbed::protocol::{self, Answer, Bytes, Call, HELLO, Reply, Request};
use processes::Processes;

/// The serial line to the host; the first one is the kernel's console.
const LINE: &str = "/dev/ttyS1";

fn main() -> io::Result<()> {
    if process::id() != 1 {
        return serve();
    }
    files::mount_all()?;
    let server = Command::new("/proc/self/exe").spawn()?;
    reap_until(server.id());
    power_off()
}

/// Collects ended children until the server is among them.
fn reap_until(server: u32) {
    loop {
        // SAFETY: a null status pointer is allowed.
        let pid = unsafe { libc::waitpid(-1, ptr::null_mut(), 0) };
        if u32::try_from(pid) == Ok(server) {
            return;
        }
    }
}

fn power_off() -> io::Result<()> {
    // SAFETY: takes a number and, if it succeeds, does not return.
    unsafe { libc::reboot(libc::RB_POWER_OFF) };
    Err(io::Error::last_os_error())
}

/// Answers requests, each in a thread of its own so that a wait delays nobody.
fn serve() -> io::Result<()> {
    let line = open_line()?;
    let replies = Arc::new(Mutex::new(line.try_clone()?));
    let processes = Arc::new(Processes::default());
    reply(&replies, HELLO, Ok(Answer::Done));

    let mut requests = BufReader::new(line);
    // A damaged request ends the guest: the host sees that at once, and there is nothing to save.
    while let Some(Request { id, call }) = protocol::receive(&mut requests)? {
        if matches!(call, Call::PowerOff) {
            reply(&replies, id, Ok(Answer::Done));
            break;
        }
        let (replies, processes) = (Arc::clone(&replies), Arc::clone(&processes));
        thread::spawn(move || {
            let result = answer(&processes, call).map_err(|error| error.to_string());
            reply(&replies, id, result);
        });
    }
    Ok(())
}

fn answer(processes: &Processes, call: Call) -> io::Result<Answer> {
    match call {
        Call::Spawn { argv, env, stdin } => processes.spawn(&argv, env, stdin.0),
        Call::Output { process } => processes.output(process),
        Call::Wait {
            process,
            timeout_ms,
        } => processes.wait(process, Duration::from_millis(timeout_ms)),
        Call::Kill { pid, signal } => processes::kill(pid, signal),
        Call::Sweep => processes.sweep(),
        Call::Read { path } => Ok(Answer::Data(Bytes(std::fs::read(path)?))),
        Call::Write { path, data, append } => files::write(&path, &data.0, append),
        Call::Exists { path } => Ok(Answer::Exists(std::fs::exists(path)?)),
        Call::List { path } => files::list(&path),
        Call::Mkdir { path } => std::fs::create_dir_all(path).map(|()| Answer::Done),
        Call::PowerOff => Ok(Answer::Done),
    }
}

/// A reply that cannot be sent has nobody to be reported to; the host's time limit finds out.
fn reply(line: &Mutex<File>, id: u64, result: Result<Answer, String>) {
    let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = protocol::send(&mut *line, &Reply { id, result });
}

/// Opens the line as a plain byte pipe: no echo, no line editing, no signal characters.
fn open_line() -> io::Result<File> {
    let line = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOCTTY)
        .open(LINE)?;
    // SAFETY: termios is plain data for which all zeroes is a valid value.
    let mut mode: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and `mode` outlives the calls.
    let done = unsafe {
        libc::tcgetattr(line.as_raw_fd(), &mut mode) == 0 && {
            libc::cfmakeraw(&mut mode);
            libc::cfsetspeed(&mut mode, libc::B115200);
            libc::tcsetattr(line.as_raw_fd(), libc::TCSANOW, &mode) == 0
        }
    };
    if done {
        Ok(line)
    } else {
        Err(io::Error::last_os_error())
    }
}
