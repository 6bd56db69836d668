//! One connection: takes one message at a time, or as much out of its ring, and works it off in
//! bounded steps. While it does, the next ones wait in socket and ring, and when those are full,
//! the sender is told.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use pghot_hint::ring::Reader;
use pghot_hint::wire::{FLAG_ANSWER, FLAG_RING, Message, RANGES_MAX};
use pghot_hint::{Answer, Range};
use pghot_hotness::Pfn;
use pghot_linux::SysRoot;
use pghot_linux::pagemap::Pagemap;

use super::pages::{Pages, Refusal};
use super::socket::{self, Next, Peer};

/// A connected process.
pub struct Client {
    socket: OwnedFd,
    peer: Peer,
    /// Of the process that connected, opened while it surely lived.
    own: Pagemap,
    ring: Option<Reader>,
    job: Option<Job>,
}

/// A message that is being worked off, or hints out of a ring.
#[derive(Default)]
struct Job {
    /// Of another process; `None` for the client's own.
    foreign: Option<Pagemap>,
    /// Still to come, the next one last.
    ranges: Vec<Range>,
    pages: Option<Pages>,
    wants_answer: bool,
    answer: Answer,
    /// A new ring, to go with the answer.
    ring: Option<OwnedFd>,
}

/// The connection is over, for this reason.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// The process closed it, or is gone, and everything was read.
    Closed,
    /// It does not speak our language. What it sent besides is unknown.
    Malformed,
}

impl Client {
    /// Who connected, and its pages. The socket comes back if that cannot be told.
    pub fn admit(root: &SysRoot, socket: OwnedFd) -> Result<Client, OwnedFd> {
        match identify(root, &socket) {
            Ok((peer, own)) => Ok(Client {
                socket,
                peer,
                own,
                ring: None,
                job: None,
            }),
            Err(_) => Err(socket),
        }
    }

    /// Who it is.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Ends it, and leaves its socket, in which messages may wait.
    pub fn into_socket(self) -> OwnedFd {
        self.socket
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
        match socket::look(&self.socket) {
            Ok(Next::Message) => {}
            Ok(Next::End) => return Err(End::Closed),
            Ok(Next::Descriptors) => {
                refuse(Refusal::Malformed);
                return Err(End::Malformed);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.take_from_ring();
                return Ok(self.job.is_some());
            }
            Err(_) => return Err(End::Malformed),
        }
        let bytes = socket::receive(&self.socket).map_err(|_| End::Malformed)?;
        let Some(mut message) = Message::decode(&bytes) else {
            refuse(Refusal::Malformed);
            return Err(End::Malformed);
        };
        let foreign = match message.pid {
            0 => Ok(None),
            pid if pid == self.peer.pid => Ok(None),
            _ if self.peer.uid != 0 => Err(Refusal::Foreign),
            pid => Pagemap::open(root, pid)
                .map(Some)
                .map_err(|_| Refusal::NoProcess),
        };
        let mut job = Job {
            wants_answer: message.flags & (FLAG_ANSWER | FLAG_RING) != 0,
            ..Job::default()
        };
        if message.flags & FLAG_RING != 0 {
            // A second ring takes the place of the first.
            match Reader::create() {
                Ok((ring, file)) => (self.ring, job.ring) = (Some(ring), Some(file)),
                Err(_) => note(&mut job.answer, Refusal::NoRing, refuse),
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
    /// is in the lower tier. Returns how many it looked up.
    pub fn work(
        &mut self,
        limit: u64,
        refuse: &mut dyn FnMut(Refusal),
        sink: &mut dyn FnMut(Pfn) -> bool,
    ) -> u64 {
        let Some(job) = &mut self.job else { return 0 };
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
                let ring = job.ring.as_ref().map(AsFd::as_fd);
                let _ = socket::send(&self.socket, &job.answer.encode(), ring);
            }
            self.job = None;
        }
        limit - left
    }
}

fn identify(root: &SysRoot, socket: &OwnedFd) -> io::Result<(Peer, Pagemap)> {
    socket::ask_for_senders(socket)?;
    let peer = socket::peer(root, socket)?;
    let own = Pagemap::open(root, peer.pid)?;
    match socket::peer_lives(socket) {
        true => Ok((peer, own)),
        false => Err(io::ErrorKind::NotFound.into()),
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
