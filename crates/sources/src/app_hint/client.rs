//! One connection: takes one message at a time, or as much out of its ring, and works it off in
//! bounded steps. While it does, the next ones wait in socket and ring, and when those are full,
//! the sender is told.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use pghot_hint::ring::Reader;
use pghot_hint::wire::{FLAG_ANSWER, FLAG_RING, Message, RANGES_MAX};
use pghot_hint::{Answer, Range};
use pghot_hotness::Pfn;
use pghot_linux::SysRoot;

use super::pages::{self, Pages, Refusal};
use super::socket::{self, Peer};

/// A connected process.
pub struct Client {
    socket: OwnedFd,
    peer: Peer,
    /// Of the process that connected, opened while it surely lived.
    own: File,
    ring: Option<Reader>,
    job: Option<Job>,
}

/// A message that is being worked off, or hints out of a ring.
#[derive(Default)]
struct Job {
    /// Of another process; `None` for the client's own.
    foreign: Option<File>,
    /// Still to come, the next one last.
    ranges: Vec<Range>,
    pages: Option<Pages>,
    wants_answer: bool,
    answer: Answer,
}

/// The connection is over, for this reason.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// The process closed it, or is gone.
    Closed,
    /// It does not speak our language.
    Malformed,
}

impl Client {
    /// Who connected, and its pages.
    pub fn admit(root: &SysRoot, socket: OwnedFd) -> io::Result<Client> {
        let peer = socket::peer(&socket)?;
        let own = pages::open(root, peer.pid)?;
        if !socket::peer_lives(&socket) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Client {
            socket,
            peer,
            own,
            ring: None,
            job: None,
        })
    }

    /// Who it is.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// For poll(2).
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Whether it has a message to be gone on with, or something in its ring.
    pub fn is_busy(&self) -> bool {
        self.job.is_some() || self.ring.as_ref().is_some_and(|ring| !ring.is_empty())
    }

    /// Takes the next message if none is in work: from the socket, else out of the ring. Says
    /// whether there was one.
    pub fn receive(
        &mut self,
        root: &SysRoot,
        refuse: &mut dyn FnMut(Refusal),
    ) -> Result<bool, End> {
        if self.job.is_some() {
            return Ok(false);
        }
        let (bytes, file) = match socket::receive(&self.socket) {
            Ok((bytes, _)) if bytes.is_empty() => return Err(End::Closed),
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.take_from_ring();
                return Ok(self.job.is_some());
            }
            Err(_) => return Err(End::Closed),
        };
        let Some(mut message) = Message::decode(&bytes) else {
            refuse(Refusal::Malformed);
            return Err(End::Malformed);
        };
        let foreign = match message.pid {
            0 => Ok(None),
            pid if pid == self.peer.pid => Ok(None),
            _ if self.peer.uid != 0 => Err(Refusal::Foreign),
            pid => pages::open(root, pid)
                .map(Some)
                .map_err(|_| Refusal::NoProcess),
        };
        let mut job = Job {
            wants_answer: message.flags & FLAG_ANSWER != 0,
            ..Job::default()
        };
        if message.flags & FLAG_RING != 0 {
            // A second ring takes the place of the first.
            match file.map(Reader::open) {
                Some(Ok(ring)) => self.ring = Some(ring),
                _ => note(&mut job.answer, Refusal::BadRing, refuse),
            }
        }
        match foreign {
            Ok(foreign) => {
                message.ranges.reverse();
                (job.foreign, job.ranges) = (foreign, message.ranges);
            }
            Err(refusal) => {
                for _ in &message.ranges {
                    note(&mut job.answer, refusal, refuse);
                }
            }
        }
        self.job = Some(job);
        Ok(true)
    }

    fn take_from_ring(&mut self) {
        let taken = self.ring.as_mut().map(|ring| ring.take(RANGES_MAX));
        if let Some(mut ranges) = taken.filter(|ranges| !ranges.is_empty()) {
            ranges.reverse();
            self.job = Some(Job {
                ranges,
                ..Job::default()
            });
        }
    }

    /// Looks up to about `limit` pages up, and answers when all is done. `sink` says whether a page
    /// is in the lower tier.
    pub fn work(
        &mut self,
        limit: u64,
        refuse: &mut dyn FnMut(Refusal),
        sink: &mut dyn FnMut(Pfn) -> bool,
    ) {
        let Some(job) = &mut self.job else { return };
        let pagemap = job.foreign.as_ref().unwrap_or(&self.own);
        let mut left = limit;
        while left > 0 {
            let Some(pages) = &mut job.pages else {
                let Some(range) = job.ranges.pop() else { break };
                match Pages::of(range) {
                    Ok(pages) => job.pages = Some(pages),
                    Err(refusal) => note(&mut job.answer, refusal, refuse),
                }
                continue;
            };
            let found = &mut job.answer.pages;
            let looked_up = pages.look_up(pagemap, left, &mut |pfn| *found += u64::from(sink(pfn)));
            match looked_up {
                Ok(n) => left = left.saturating_sub(n.max(1)),
                // The process is gone.
                Err(_) => {
                    note(&mut job.answer, Refusal::NoProcess, refuse);
                    job.pages = None;
                    continue;
                }
            }
            if pages.left() == 0 {
                job.pages = None;
            }
        }
        if job.pages.is_none() && job.ranges.is_empty() {
            if job.wants_answer {
                // A client that does not read has asked for nothing.
                let _ = socket::send(&self.socket, &job.answer.encode());
            }
            self.job = None;
        }
    }
}

/// Counts a refused range, for all and for its sender.
fn note(answer: &mut Answer, refusal: Refusal, refuse: &mut dyn FnMut(Refusal)) {
    refuse(refusal);
    answer.refused += 1;
    if answer.refusal == 0 {
        answer.refusal = refusal as u32;
    }
}
