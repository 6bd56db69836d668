//! The application's end of the socket.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use crate::socket;
use crate::wire::{ANSWER_BYTES, Answer, FLAG_ANSWER, FLAG_RING, Message, RANGES_MAX, Range};

/// A connection to the daemon. It speaks for the process that made it.
#[derive(Debug)]
pub struct Hints {
    socket: OwnedFd,
}

impl Hints {
    /// Connects to the daemon's hint socket.
    pub fn connect(path: &Path) -> io::Result<Hints> {
        let socket = socket::connect(path)?;
        Ok(Hints { socket })
    }

    /// Hints memory of this process and does not wait. `WouldBlock` means that the daemon is
    /// behind: this hint, from the first range not sent, is lost, and the next may get through.
    pub fn send(&self, ranges: &[Range]) -> io::Result<()> {
        for ranges in ranges.chunks(RANGES_MAX) {
            let ranges = ranges.to_vec();
            let (pid, flags) = (0, 0);
            let message = Message { pid, flags, ranges };
            socket::send(&self.socket, &message.encode(), None, libc::MSG_DONTWAIT)?;
        }
        Ok(())
    }

    /// Hints memory of a process, 0 for this one, and waits for what becomes of it. At most
    /// [`RANGES_MAX`] ranges. Only root may name another process.
    pub fn ask(&self, pid: u32, ranges: &[Range]) -> io::Result<Answer> {
        if ranges.len() > RANGES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (ranges, flags) = (ranges.to_vec(), FLAG_ANSWER);
        Ok(self.exchange(&Message { pid, flags, ranges })?.0)
    }

    /// Asks the daemon for a ring that it will read.
    pub(crate) fn ask_for_ring(&self) -> io::Result<(Answer, Option<OwnedFd>)> {
        self.exchange(&Message {
            pid: 0,
            flags: FLAG_RING,
            ranges: Vec::new(),
        })
    }

    /// Whether the daemon has not hung up.
    pub(crate) fn is_connected(&self) -> bool {
        socket::is_quiet(&self.socket)
    }

    fn exchange(&self, message: &Message) -> io::Result<(Answer, Option<OwnedFd>)> {
        socket::send(&self.socket, &message.encode(), None, 0)?;
        let mut bytes = [0u8; ANSWER_BYTES];
        let (got, file) = socket::receive(&self.socket, &mut bytes)?;
        match got {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            got => match Answer::decode(&bytes[..got]) {
                Some(answer) => Ok((answer, file)),
                None => Err(io::ErrorKind::InvalidData.into()),
            },
        }
    }
}
