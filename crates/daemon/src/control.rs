//! The control socket answers `pghot status`, `explain`, `set` and `reload`; the status socket,
//! which others than root may read, only what changes nothing and tells no page frame and no
//! address.
//!
//! A thread per connection and a bounded number of them, each with a deadline for its request: a
//! slow or hostile client costs one thread for a while and never holds up a pass.

use std::ffi::CStr;
use std::io::{self, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pghot_events::event;

use crate::config::Options;
use crate::protocol::{Request, Response, read_request, to_line};
use crate::reload::reload;
use crate::shared::Shared;
use crate::socket::{Socket, SocketError, group_id};
use crate::{compose, compose_owners, explain};

/// Connections served at the same time.
const CONNECTIONS_MAX: usize = 16;

/// For one request to arrive, and for its response to be taken.
const DEADLINE: Duration = Duration::from_secs(5);

/// Who asks on a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// Root: everything is answered.
    Owner,
    /// Whoever may read the status.
    Readers,
}

impl Audience {
    fn thread_name(self) -> &'static str {
        match self {
            Audience::Owner => "control",
            Audience::Readers => "status",
        }
    }
}

/// The daemon's sockets, by who asks there.
pub type Sockets = [(Audience, Socket); 2];

/// The group whose members may read the status.
const READERS: &CStr = c"pghot";

/// Binds them.
pub fn bind(options: &Options) -> Result<Sockets, SocketError> {
    let owner = Socket::bind(&options.socket)?;
    let readers = Socket::bind_for(&options.status_socket, group_id(READERS))?;
    Ok([(Audience::Owner, owner), (Audience::Readers, readers)])
}

/// The thread that accepts connections.
pub struct Control {
    socket: Arc<Socket>,
    thread: JoinHandle<()>,
}

impl Control {
    /// Begins to answer.
    pub fn start(socket: Socket, audience: Audience, shared: Arc<Shared>) -> io::Result<Control> {
        let socket = Arc::new(socket);
        let accepting = Arc::clone(&socket);
        let thread = thread::Builder::new()
            .name(audience.thread_name().into())
            .spawn(move || accept_all(&accepting.listener, audience, &shared))?;
        Ok(Control { socket, thread })
    }

    /// Accepts nothing more and removes the socket. Connections in progress get their answer.
    pub fn stop(self) {
        let listener = self.socket.listener.as_raw_fd();
        // SAFETY: shutdown takes a descriptor, which `socket` keeps open, and a number. It makes
        // the accept() that the thread sleeps in return an error.
        unsafe { libc::shutdown(listener, libc::SHUT_RDWR) };
        if self.thread.join().is_err() {
            event!(client_refused, "the control thread had panicked");
        }
    }
}

/// Counts a connection for as long as it lives.
struct Served(Arc<AtomicUsize>);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn accept_all(listener: &UnixListener, audience: Audience, shared: &Arc<Shared>) {
    let serving = Arc::new(AtomicUsize::new(0));
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            // After Control::stop() this is the only answer.
            Err(_) if shared.stop.is_requested() => return,
            Err(error) => {
                // Out of descriptors, most likely: let some connections end.
                event!(client_refused, "cannot accept a connection: {error}");
                shared.stop.sleep(Duration::from_secs(1));
                continue;
            }
        };
        let served = Served(Arc::clone(&serving));
        if serving.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            refuse(stream);
            continue;
        }
        let shared = Arc::clone(shared);
        let serve = move || {
            // A client that left or was too slow is not worth a word.
            let _ = serve(&stream, audience, &shared);
            drop(served);
        };
        if let Err(error) = thread::Builder::new().name("client".into()).spawn(serve) {
            event!(client_refused, "cannot serve a connection: {error}");
        }
    }
}

fn refuse(mut stream: UnixStream) {
    let busy = Response::Error(format!(
        "pghot serves {CONNECTIONS_MAX} connections already: try again in a few seconds"
    ));
    // Never waits for the client: an empty socket buffer takes a line at once, or not at all.
    let _ = stream
        .set_nonblocking(true)
        .and_then(|()| stream.write_all(&to_line(&busy)));
}

/// Reads from a stream until a deadline, however the bytes trickle in.
struct UntilDeadline<'a> {
    stream: &'a UnixStream,
    deadline: Instant,
}

impl Read for UntilDeadline<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }
}

/// Answers the requests of one connection until it ends or stays silent for too long.
fn serve(mut stream: &UnixStream, audience: Audience, shared: &Shared) -> io::Result<()> {
    stream.set_write_timeout(Some(DEADLINE))?;
    let mut requests = BufReader::new(UntilDeadline {
        stream,
        deadline: Instant::now() + DEADLINE,
    });
    loop {
        let response = match read_request(&mut requests) {
            Ok(None) => return Ok(()),
            Ok(Some(Ok(request))) => match audience {
                Audience::Owner => answer(request, shared),
                Audience::Readers => answer_reader(request, shared),
            },
            Ok(Some(Err(sentence))) => Response::Error(sentence),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                stream.write_all(&to_line(&Response::Error(error.to_string())))?;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        stream.write_all(&to_line(&response))?;
        requests.get_mut().deadline = Instant::now() + DEADLINE;
    }
}

fn answer(request: Request, shared: &Shared) -> Response {
    match request {
        Request::Status => Response::Status(Box::new(compose::status(shared))),
        Request::Owners { by } => Response::Owners(Box::new(compose_owners::report(shared, by))),
        Request::Explain { pid, address } => match explain::page(shared, pid, address) {
            Ok(explanation) => Response::Explanation(Box::new(explanation)),
            Err(error) => Response::Error(error.to_string()),
        },
        Request::ExplainLast { count } => Response::Decisions(explain::last(shared, count)),
        Request::Set { name, value } => match shared.set(&name, &value) {
            Ok(value) => Response::Done { name, value },
            Err(sentence) => Response::Invalid(sentence),
        },
        Request::Reload => Response::Reloaded(Box::new(reload(shared))),
    }
}

/// The same for a reader without rights. Decisions come without page frames, which only root may
/// know, and without addresses, which tell where a process has its secrets.
fn answer_reader(request: Request, shared: &Shared) -> Response {
    match request {
        Request::Status | Request::Owners { .. } => answer(request, shared),
        Request::ExplainLast { count } => {
            let mut decisions = explain::last(shared, count);
            for decision in &mut decisions {
                (decision.pfn, decision.address) = (None, None);
            }
            Response::Decisions(decisions)
        }
        Request::Explain { .. } | Request::Set { .. } | Request::Reload => Response::Error(
            "this socket tells the status and the newest decisions only: ask on the control \
             socket, as root"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::BufRead;
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::protocol::{ClientError, REQUEST_BYTES_MAX, ask};
    use crate::testing::{daemon, decide};

    /// A daemon that answers on `dir/sock`.
    fn serve_in(dir: &Path) -> (Arc<Shared>, Control, PathBuf) {
        let (shared, _) = daemon(dir);
        let path = dir.join("sock");
        let socket = Socket::bind(&path).unwrap();
        let control = Control::start(socket, Audience::Owner, Arc::clone(&shared)).unwrap();
        (shared, control, path)
    }

    fn is_status(path: &Path) -> bool {
        matches!(ask(path, &Request::Status), Ok(Response::Status(_)))
    }

    fn read_line(stream: &UnixStream) -> String {
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line
    }

    #[test]
    fn requests_are_answered_until_the_stop() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, control, path) = serve_in(dir.path());
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(is_status(&path));
        let set = |value: &str| Request::Set {
            name: "kmigrated_sleep_ms".into(),
            value: value.into(),
        };
        let done = ask(&path, &set("0x64")).unwrap();
        assert!(matches!(done, Response::Done { value, .. } if value == "100"));
        let refused = ask(&path, &set("1")).unwrap();
        assert!(matches!(refused, Response::Invalid(why) if why.contains("50 to 1000 ms")));
        let nobody = Request::Explain {
            pid: 4_000_000,
            address: 0,
        };
        let unknown = ask(&path, &nobody).unwrap();
        assert!(matches!(unknown, Response::Error(why) if why == "there is no process 4000000"));
        let last = ask(&path, &Request::ExplainLast { count: u32::MAX }).unwrap();
        assert_eq!(last, Response::Decisions(Vec::new()));

        shared.stop.request();
        control.stop();
        assert!(!path.exists());
        let error = ask(&path, &Request::Status).unwrap_err();
        assert!(matches!(error, ClientError::NotRunning { .. }), "{error}");
    }

    #[test]
    fn a_reader_learns_no_page_frame_and_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, _) = daemon(dir.path());
        decide(&shared);
        let path = dir.path().join("status");
        let socket = Socket::bind_for(&path, None).unwrap();
        let readers = Control::start(socket, Audience::Readers, Arc::clone(&shared)).unwrap();
        assert!(is_status(&path));
        let Ok(Response::Decisions(told)) = ask(&path, &Request::ExplainLast { count: 9 }) else {
            panic!("no decisions");
        };
        assert_eq!((told.len(), told[0].pid, told[0].pages), (1, Some(4242), 1));
        assert_eq!((told[0].pfn, told[0].address), (None, None));
        let whole = explain::last(&shared, 9);
        assert!(whole[0].pfn.is_some() && whole[0].address.is_some());

        let before = shared.settings();
        let (pid, address) = (std::process::id(), 0);
        let (name, value) = ("freq_threshold".to_owned(), "1".to_owned());
        for refused in [
            Request::Set { name, value },
            Request::Reload,
            Request::Explain { pid, address },
        ] {
            let answer = ask(&path, &refused).unwrap();
            assert!(matches!(answer, Response::Error(why) if why.contains("control socket")));
        }
        assert_eq!(shared.settings(), before);
        shared.stop.request();
        readers.stop();
    }

    #[test]
    fn hostile_clients_hold_nobody_up() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, control, path) = serve_in(dir.path());
        // Rubbish is answered, and the connection goes on.
        let mut rubbish = UnixStream::connect(&path).unwrap();
        rubbish.write_all(b"\xff{[\n").unwrap();
        assert!(read_line(&rubbish).contains("this is not a request"));
        rubbish.write_all(&to_line(&Request::Status)).unwrap();
        assert!(read_line(&rubbish).starts_with("{\"status\""));
        // A line without end is cut off. The daemon may close before all of it is written.
        let mut endless = UnixStream::connect(&path).unwrap();
        let _ = endless.write_all(&vec![b'['; 2 * REQUEST_BYTES_MAX]);
        assert!(read_line(&endless).contains("at most"));
        // Half a request and away.
        UnixStream::connect(&path)
            .unwrap()
            .write_all(b"{\"com")
            .unwrap();
        drop((rubbish, endless));
        // All places taken by silent clients: the next is told so, and they do not stay for ever.
        let connect = |_| UnixStream::connect(&path).unwrap();
        let silent: Vec<UnixStream> = (0..2 * CONNECTIONS_MAX).map(connect).collect();
        let refused = ask(&path, &Request::Status);
        assert!(
            matches!(&refused, Ok(Response::Error(why)) if why.contains("try again"))
                // Closed with the request unread, the answer may be lost to a reset.
                || matches!(refused, Err(ClientError::Broken { .. })),
            "{refused:?}"
        );
        drop(silent);
        let deadline = Instant::now() + DEADLINE;
        while !is_status(&path) {
            assert!(Instant::now() < deadline, "the places are free again");
            thread::yield_now();
        }
        let _silent = UnixStream::connect(&path).unwrap();
        shared.stop.request();
        let before = Instant::now();
        control.stop();
        assert!(before.elapsed() < DEADLINE / 2, "no client delays the end");
    }

    #[test]
    fn a_trickle_ends_at_the_deadline() {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        theirs.write_all(b"x").unwrap();
        let deadline = Instant::now() + Duration::from_millis(20);
        let mut reader = UntilDeadline {
            stream: &ours,
            deadline,
        };
        let mut byte = [0];
        assert_eq!(reader.read(&mut byte).unwrap(), 1);
        assert!(reader.read(&mut byte).is_err());
        theirs.write_all(b"x").unwrap();
        assert!(reader.read(&mut byte).is_err(), "late bytes do not count");
    }
}
