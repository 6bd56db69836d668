//! What the keeper does: one request after the other, and at the end everything is put back.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pghot_engine::marking::{self, Visits};
use pghot_events::event;
use rustix::event::{PollFd, PollFlags, poll};

use super::wire::{self, Answer, Request, next_request};
use crate::SysRoot;
use crate::hint_fault_knobs::{mark, tiering_off, tiering_without_kernel_promotion};
use crate::knobs::{Knobs, KnobsError, log};
use crate::lru_gen;

/// Between two looks whether the daemon is dead although its descriptors are open: the kernel
/// closes them when the last thread is gone, and one may wait for a disk for ever.
const LOOK_INTERVAL: Duration = Duration::from_millis(400);

/// The settings, and where they are noted.
pub(super) struct Books {
    root: SysRoot,
    state_file: PathBuf,
    /// Between a begin and the restore after it.
    knobs: Option<Knobs>,
}

impl Books {
    pub fn new(root: &SysRoot, state_file: &Path) -> Books {
        Books {
            root: root.clone(),
            state_file: state_file.to_owned(),
            knobs: None,
        }
    }

    /// Answers until the other side ends, or is found dead; then puts back what is left.
    pub fn keep(mut self, socket: &OwnedFd, is_dead: impl Fn() -> bool) {
        while let Ok(Some(request)) = next(socket, &is_dead) {
            let answer = self.answer(request);
            let answer = answer.unwrap_or_else(|error| Answer::Refused(error.to_string()));
            if wire::answer(socket, &answer).is_err() {
                break;
            }
        }
        let left = self.knobs.take().map(|mut knobs| knobs.restore());
        match left {
            Some(Ok(report)) => log(&report),
            Some(Err(error)) => event!(
                setting_not_restored,
                "{error}; run `pghot restore` to try again"
            ),
            None => {}
        }
    }

    fn answer(&mut self, request: Request) -> Result<Answer, KnobsError> {
        match request {
            Request::Begin => {
                let (knobs, recovered) = Knobs::open(&self.root, &self.state_file)?;
                self.knobs = Some(knobs);
                Ok(Answer::PutBack(recovered))
            }
            Request::OpenGenerations => Ok(open(&lru_gen::path(&self.root))),
            Request::OpenClearRefs(pid) => {
                let process = self.root.proc.join(pid.to_string());
                Ok(open(&process.join("clear_refs")))
            }
            request => self.set(request),
        }
    }

    /// Answers what is about settings.
    fn set(&mut self, request: Request) -> Result<Answer, KnobsError> {
        let Some(knobs) = &mut self.knobs else {
            return Ok(Answer::Refused(
                "this pghot is ending, its settings are put back".to_owned(),
            ));
        };
        Ok(match request {
            Request::TakeFaults => {
                tiering_without_kernel_promotion(knobs)?;
                Answer::Done
            }
            Request::StandBy => {
                tiering_off(knobs)?;
                Answer::Done
            }
            Request::Mark(visits) if marking::SIZES_MB.contains(&visits.size_mb) => {
                Answer::Marks(mark(knobs, visits)?)
            }
            Request::Mark(Visits { size_mb, .. }) => {
                Answer::Refused(format!("{size_mb} MB is no size to mark at a visit"))
            }
            Request::Foreign => Answer::Foreign(knobs.foreign()),
            Request::PutBack => Answer::PutBack(knobs.put_back()?),
            Request::Restore => {
                let report = knobs.restore()?;
                self.knobs = None;
                Answer::PutBack(report)
            }
            Request::Begin | Request::OpenGenerations | Request::OpenClearRefs(_) => {
                Answer::Refused("this is about no setting".to_owned())
            }
        })
    }
}

/// Opens a file of the kernel that takes commands.
fn open(path: &Path) -> Answer {
    match File::options().write(true).open(path) {
        Ok(file) => Answer::Opened {
            file: Some(file.into()),
        },
        Err(error) => Answer::Refused(format!(
            "cannot open {} for writing: {error}",
            path.display()
        )),
    }
}

/// The next request; `None` at the end of the daemon.
fn next(socket: &OwnedFd, is_dead: impl Fn() -> bool) -> io::Result<Option<Request>> {
    let interval = LOOK_INTERVAL.try_into().map_err(io::Error::other)?;
    loop {
        let mut fds = [PollFd::new(socket, PollFlags::IN)];
        match poll(&mut fds, Some(&interval)) {
            Ok(0) | Err(rustix::io::Errno::INTR) if is_dead() => return Ok(None),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return next_request(socket),
            Err(error) => return Err(error.into()),
        }
    }
}
