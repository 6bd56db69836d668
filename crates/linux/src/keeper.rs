//! The keeper: a small process of root that holds the kernel settings for the daemon and puts them
//! back as soon as the daemon is gone, however it died.
//!
//! `pghot run` forks it before anything else. The daemon asks it over a socket pair with the few
//! words of `Request` (`wire.rs`), in which there is no path and no text; the end of that
//! connection is the end of the daemon. So settings are put back at once after a kill -9 too, and
//! the daemon itself needs no right to write them. The state file is for the case that both die.
//!
//! Two files of the kernel take commands so often that the daemon writes them itself: the keeper
//! only opens those.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{io, thread};

use pghot_engine::marking::Visits;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use rustix::process::{Pid, WaitOptions, waitpid};

use crate::SysRoot;
use crate::keeper::books::Books;
use crate::keeper::wire::{Answer, Request, exchange, pair};
use crate::knobs::{Foreign, Restored};

mod books;
mod process;
mod wire;

/// A setting could not be changed or put back.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// The kernel or the state file is in the way.
    #[error("{0}")]
    Refused(String),
    /// There is nobody any more who could.
    #[error(
        "pghot's keeper, the process that holds the kernel settings, has ended or does not \
         answer: `pghot restore` puts them back"
    )]
    Gone,
    /// It could not be started.
    #[error("cannot start the keeper, the process that puts kernel settings back: {0}")]
    Start(#[source] io::Error),
}

/// The daemon's end.
#[derive(Debug)]
pub struct Keeper {
    /// One request at a time; `None` once the keeper has failed.
    socket: Mutex<Option<OwnedFd>>,
    child: Option<Pid>,
}

impl Keeper {
    /// Forks the keeper, which notes changes in this state file. It has a log of its own, which
    /// `start_log` begins there and whose end is the end of what it returns.
    ///
    /// For a process with one thread: the child goes on running any code.
    pub fn fork<L>(
        root: &SysRoot,
        state_file: &Path,
        start_log: impl FnOnce() -> L,
    ) -> Result<Keeper, KeeperError> {
        let (own, its) = pair().map_err(KeeperError::Start)?;
        let books = Books::new(root, state_file);
        let child = process::fork(its, books, start_log).map_err(KeeperError::Start)?;
        Ok(Keeper {
            socket: Mutex::new(Some(own)),
            child: Some(child),
        })
    }

    /// The same in a thread of this process, for tests: what it does at the daemon's end it does
    /// when this is dropped.
    pub fn in_thread(root: &SysRoot, state_file: &Path) -> Result<Keeper, KeeperError> {
        let (own, its) = pair().map_err(KeeperError::Start)?;
        let books = Books::new(root, state_file);
        thread::Builder::new()
            .name("keeper".into())
            .spawn(move || books.keep(&its, || false))
            .map_err(KeeperError::Start)?;
        Ok(Keeper {
            socket: Mutex::new(Some(own)),
            child: None,
        })
    }

    /// Claims the state file, and returns what became of what a dead run left.
    pub fn begin(&self) -> Result<Vec<Restored>, KeeperError> {
        self.put_back_by(Request::Begin)
    }

    /// Turns hint faults on and the kernel's own promotion off.
    pub fn take_faults(&self) -> Result<(), KeeperError> {
        self.ask(Request::TakeFaults).map(drop)
    }

    /// Turns hint faults on the lower tier off again.
    pub fn stand_by(&self) -> Result<(), KeeperError> {
        self.ask(Request::StandBy).map(drop)
    }

    /// Tells the scanner how to mark; false where that is not for pghot to say.
    pub fn mark(&self, visits: Visits) -> Result<bool, KeeperError> {
        match self.ask(Request::Mark(visits))? {
            Answer::Marks(is_ours) => Ok(is_ours),
            _ => Err(KeeperError::Gone),
        }
    }

    /// The settings that somebody else has changed since.
    pub fn foreign(&self) -> Result<Vec<Foreign>, KeeperError> {
        match self.ask(Request::Foreign)? {
            Answer::Foreign(foreign) => Ok(foreign),
            _ => Err(KeeperError::Gone),
        }
    }

    /// Puts everything back, and keeps the claim: more may be set later.
    pub fn put_back(&self) -> Result<Vec<Restored>, KeeperError> {
        self.put_back_by(Request::PutBack)
    }

    /// Puts everything back. From then on, until it begins anew, nothing is set any more, whoever
    /// may still be running.
    pub fn restore(&self) -> Result<Vec<Restored>, KeeperError> {
        self.put_back_by(Request::Restore)
    }

    /// MGLRU's list of generations, for [`Commands`](crate::lru_gen::Commands).
    pub fn open_generations(&self) -> Result<File, KeeperError> {
        self.open(Request::OpenGenerations)
    }

    /// The file that clears the accessed bits of a process: `/proc/PID/clear_refs`, which its owner
    /// alone may write.
    pub fn open_clear_refs(&self, pid: i32) -> Result<File, KeeperError> {
        self.open(Request::OpenClearRefs(pid))
    }

    fn open(&self, request: Request) -> Result<File, KeeperError> {
        match self.ask(request)? {
            Answer::Opened { file: Some(file) } => Ok(file.into()),
            _ => Err(KeeperError::Gone),
        }
    }

    /// Whether it is still there.
    pub fn lives(&self) -> bool {
        let mut socket = self.lock();
        let mut byte = [0u8];
        let peek = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let has_ended = match &*socket {
            Some(fd) => recv(fd, &mut byte, peek).is_ok_and(|(_, bytes)| bytes == 0),
            None => true,
        };
        if has_ended {
            *socket = None;
        }
        !has_ended
    }

    fn put_back_by(&self, request: Request) -> Result<Vec<Restored>, KeeperError> {
        match self.ask(request)? {
            Answer::PutBack(report) => Ok(report),
            _ => Err(KeeperError::Gone),
        }
    }

    fn ask(&self, request: Request) -> Result<Answer, KeeperError> {
        let mut socket = self.lock();
        let asked = socket.as_ref().map(|fd| exchange(fd, request));
        match asked {
            Some(Ok(Answer::Refused(why))) => Err(KeeperError::Refused(why)),
            Some(Ok(answer)) => Ok(answer),
            // An answer that comes late would be taken for that of the next request.
            Some(Err(_)) | None => {
                *socket = None;
                Err(KeeperError::Gone)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Keeper {
    /// Lets the keeper put back what is left, and waits for its end.
    fn drop(&mut self) {
        if let Some(socket) = self.lock().take() {
            // Not only closed: a thread that never ends would keep a copy open.
            let _ = shutdown(&socket, Shutdown::Both);
        }
        if let Some(child) = self.child {
            let _ = waitpid(Some(child), WaitOptions::empty());
        }
    }
}
