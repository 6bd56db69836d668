//! The keeper's process: forked while there is one thread, and left with nothing but its work.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use pghot_events::event;
use rustix::process::{Pid, setsid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_name, set_no_new_privs,
};

use super::books::Books;
use crate::refused_calls;

/// Signals that are meant for the daemon: whoever stops a service or a terminal job sends them to
/// all of its processes, and the keeper ends when the daemon has.
const NOT_FOR_US: [libc::c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Forks; the child keeps the books over its end of the pair, and ends when the daemon has ended.
pub(super) fn fork<L>(
    socket: OwnedFd,
    books: Books,
    start_log: impl FnOnce() -> L,
) -> io::Result<Pid> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("the process has threads already"));
    }
    // Opened by the daemon: it stays this process's, whoever has the number later.
    let daemon = File::open("/proc/self/stat")?;
    // SAFETY: the process has one thread, so the child may go on running any code.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let confined = confine(&socket, &daemon);
            // A log that cannot be written is the daemon's to complain of.
            let log = start_log();
            if let Err(error) = confined {
                event!(
                    keeper_not_confined,
                    "the keeper has more rights than it needs: {error}"
                );
            }
            books.keep(&socket, || is_dead(&daemon));
            drop(log);
            // SAFETY: ends the process without what the daemon has registered for its own end.
            unsafe { libc::_exit(0) }
        }
        child => Pid::from_raw(child).ok_or_else(|| io::Error::other("fork returned no pid")),
    }
}

/// Leaves the keeper its two files, the log, and two capabilities: for a setting that asks for one
/// (`kernel.numa_balancing`), and for files of other users (`/proc/PID/clear_refs`). It may run no
/// program. In a session of its own it survives whoever kills the daemon's group.
fn confine(socket: &OwnedFd, daemon: &File) -> io::Result<()> {
    for signal in NOT_FOR_US {
        // SAFETY: to ignore a signal runs no code of ours.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    let mut kept = [socket.as_raw_fd(), daemon.as_raw_fd()];
    kept.sort_unstable();
    close_between(libc::STDERR_FILENO, kept[0]);
    close_between(kept[0], kept[1]);
    close_between(kept[1], i32::MAX);
    set_name(c"pghot-keeper")?;
    // Refused only to who leads a group already, which a new child does not.
    setsid()?;
    std::env::set_current_dir("/")?;
    set_no_new_privs(true)?;
    let has = capabilities(None)?.permitted;
    let kept = has & (CapabilitySet::SYS_ADMIN | CapabilitySet::DAC_OVERRIDE);
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets)?;
    refused_calls::refuse().map_err(io::Error::other)
}

/// Closes the descriptors between two others.
fn close_between(below: i32, above: i32) {
    if above - below > 1 {
        // SAFETY: the keeper uses none of them.
        unsafe { libc::syscall(libc::SYS_close_range, below + 1, above - 1, 0) };
    }
}

/// Whether the daemon's first thread is gone or a zombie, by its `/proc/PID/stat`. The others
/// may never end: the kernel keeps them waiting for a page.
fn is_dead(stat: &File) -> bool {
    let mut text = [0; 512];
    let Ok(bytes) = stat.read_at(&mut text, 0) else {
        return true;
    };
    // The name, field 2, may hold blanks and parentheses: the state follows its last ')'.
    let after_name = text[..bytes].rsplit(|&byte| byte == b')').next();
    matches!(after_name, Some([b' ', b'Z' | b'X', ..]))
}
