//! What the daemon and its keeper say to each other: one message asks, one answers.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use serde::{Deserialize, Serialize};

use pghot_engine::marking::Visits;

use crate::knobs::{Foreign, Restored};

/// How long the keeper may take: it writes a few files of the kernel. One that does not answer is
/// as good as dead.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// More than any message: of the longest one, seven settings with their paths and values.
const MESSAGE_BYTES: usize = 16 << 10;

/// What the daemon may ask for. Each is answered by one [`Answer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Request {
    /// Claim the state file, and put back what a dead run left.
    Begin,
    /// Have the kernel take hint faults on the lower tier and promote nothing itself.
    TakeFaults,
    /// Have it take none, so that it promotes nothing in them; the other settings stay.
    StandBy,
    /// Tell its scanner how to mark.
    Mark(Visits),
    /// What has somebody else changed since?
    Foreign,
    /// Put everything back; more may be set later.
    PutBack,
    /// Put everything back and give up the state file.
    Restore,
}

/// What the keeper answers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Done,
    /// Whether it is for pghot to say.
    Marks(bool),
    PutBack(Vec<Restored>),
    Foreign(Vec<Foreign>),
    /// Why not, as a sentence.
    Refused(String),
}

/// Both ends.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let cloexec = SocketFlags::CLOEXEC;
    let (own, its) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, cloexec, None)?;
    set_socket_timeout(&own, Timeout::Recv, Some(ANSWER_MAX))?;
    Ok((own, its))
}

/// Asks, and waits for the answer.
pub(super) fn exchange(socket: &OwnedFd, request: Request) -> io::Result<Answer> {
    send_message(socket, &request)?;
    receive(socket)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// Sends one message.
pub(super) fn send_message(socket: &OwnedFd, message: &impl Serialize) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    send(socket, &bytes, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Waits for one message; `None` at the end of the other side.
pub(super) fn receive<T: for<'de> Deserialize<'de>>(socket: &OwnedFd) -> io::Result<Option<T>> {
    let mut buffer = vec![0; MESSAGE_BYTES];
    let bytes = loop {
        match recv(socket, &mut buffer[..], RecvFlags::empty()) {
            Err(rustix::io::Errno::INTR) => {}
            received => break received?.1,
        }
    };
    match bytes {
        0 => Ok(None),
        bytes => {
            let message = buffer.get(..bytes).ok_or(io::ErrorKind::InvalidData)?;
            Ok(Some(serde_json::from_slice(message)?))
        }
    }
}
