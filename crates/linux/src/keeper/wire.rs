//! What the daemon and its keeper say to each other: one message asks, one answers.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
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
    /// Open MGLRU's list of generations, to write commands to.
    OpenGenerations,
    /// Open the file that clears the accessed bits of this process.
    OpenClearRefs(i32),
}

/// What the keeper answers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Done,
    /// Whether it is for pghot to say.
    Marks(bool),
    PutBack(Vec<Restored>),
    Foreign(Vec<Foreign>),
    /// The file goes beside the message.
    Opened {
        #[serde(skip)]
        file: Option<OwnedFd>,
    },
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
    send_message(socket, &request, None)?;
    match receive(socket)? {
        Some((Answer::Opened { .. }, file)) => Ok(Answer::Opened { file }),
        Some((answer, _)) => Ok(answer),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Sends an answer, with its file.
pub(super) fn answer(socket: &OwnedFd, answer: &Answer) -> io::Result<()> {
    let file = match answer {
        Answer::Opened { file } => file.as_ref(),
        _ => None,
    };
    send_message(socket, answer, file)
}

/// Waits for the next request; `None` at the end of the other side.
pub(super) fn next_request(socket: &OwnedFd) -> io::Result<Option<Request>> {
    Ok(receive(socket)?.map(|(request, _)| request))
}

fn send_message(
    socket: &OwnedFd,
    message: &impl Serialize,
    file: Option<&OwnedFd>,
) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    let files: Vec<_> = file.iter().map(|file| file.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        beside.push(SendAncillaryMessage::ScmRights(&files));
    }
    let message = [IoSlice::new(&bytes)];
    sendmsg(socket, &message, &mut beside, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// One message, and the file beside it; `None` at the end of the other side.
fn receive<T>(socket: &OwnedFd) -> io::Result<Option<(T, Option<OwnedFd>)>>
where
    T: for<'de> Deserialize<'de>,
{
    let mut buffer = vec![0; MESSAGE_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let bytes = loop {
        let mut message = [IoSliceMut::new(&mut buffer)];
        match recvmsg(socket, &mut message, &mut beside, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            received => break received?.bytes,
        }
    };
    let files = beside.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let file = files.flatten().next();
    match bytes {
        0 => Ok(None),
        bytes => {
            let message = buffer.get(..bytes).ok_or(io::ErrorKind::InvalidData)?;
            Ok(Some((serde_json::from_slice(message)?, file)))
        }
    }
}
