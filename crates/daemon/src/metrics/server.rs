//! Serves the metrics over HTTP: one thread for all clients, none of which can hold up another.
//!
//! Places for clients are bounded, and so is the time of each. When all are taken, the client that
//! came first loses its own: a scrape takes a millisecond, so who is still there is no scraper.
//! The status is composed [`FRESH`] apart at most, so a storm of scrapes costs the daemon's other
//! threads no more than a few of them, and this thread gives way to them by its priority.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use listenfd::ListenFd;
use pghot_events::event;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::http::{Answer, judge};
use super::render::{Format, classic, render};
use crate::status::Status;
use crate::stop::joined_by;

/// Clients served at the same time.
const CLIENTS_MAX: usize = 64;

/// For a client to send its request and to take the answer.
const DEADLINE: Duration = Duration::from_secs(5);

/// Scrapes within this time tell the same.
const FRESH: Duration = Duration::from_millis(100);

/// After an accept that failed, most likely because descriptors are short.
const PAUSE: Duration = Duration::from_millis(100);

/// How long the end of the thread is waited for: it may be asking a source that is being started.
const ENDING_MAX: Duration = Duration::from_secs(1);

/// How much less CPU time than other threads it gets where there is not enough: a nice value.
const NICE: i32 = 10;

/// The metrics cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Somebody else does.
    #[error(
        "another program listens on {address}, so no metrics can be served there: stop it, or \
         choose another --metrics-address"
    )]
    InUse {
        /// The address and port.
        address: SocketAddr,
    },
    /// The system refused.
    #[error("cannot serve metrics on {address}: {source}; choose another --metrics-address")]
    Io {
        /// The address and port.
        address: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
}

/// Takes the TCP socket that a service manager passed, or else the address, if there is one. A
/// failure is for the daemon not to start: who asked for metrics and got none would not be told
/// when they are needed.
pub fn listen(address: Option<SocketAddr>) -> Result<Option<TcpListener>, ListenError> {
    let mut passed = ListenFd::from_env();
    // Those of other kinds are left alone.
    let mut listeners = (0..passed.len()).map(|index| passed.take_tcp_listener(index));
    if let Some(listener) = listeners.find_map(|taken| taken.ok().flatten()) {
        return Ok(Some(listener));
    }
    let bind = |address| {
        TcpListener::bind(address).map_err(|source| match source.kind() {
            ErrorKind::AddrInUse => ListenError::InUse { address },
            _ => ListenError::Io { address, source },
        })
    };
    address.map(bind).transpose()
}

/// The thread that serves.
pub struct Server {
    /// The thread ends when this does.
    wake: UnixStream,
    thread: JoinHandle<()>,
}

impl Server {
    /// Begins to serve what `status` composes.
    pub fn start(
        listener: TcpListener,
        status: impl FnMut() -> Status + Send + 'static,
    ) -> io::Result<Server> {
        listener.set_nonblocking(true)?;
        if let Ok(address) = listener.local_addr() {
            event!(metrics_served, "metrics on http://{address}/metrics");
        }
        let (wake, woken) = UnixStream::pair()?;
        let mut page = Page {
            status,
            rendered: None,
        };
        let thread = thread::Builder::new().name("metrics".into());
        let thread = thread.spawn(move || {
            // Of this thread alone, on Linux. Without it, it is as good as others.
            let _ = rustix::process::setpriority_process(None, NICE);
            serve(&listener, &woken, &mut page);
        })?;
        Ok(Server { wake, thread })
    }

    /// Serves nothing more. Clients that wait for an answer get none.
    pub fn stop(self) {
        drop(self.wake);
        if let Some(Err(_)) = joined_by(self.thread, Instant::now() + ENDING_MAX) {
            event!(metrics_stopped, "the metrics thread had panicked");
        }
    }
}

/// The newest text.
struct Page<F> {
    status: F,
    rendered: Option<(Instant, String)>,
}

impl<F: FnMut() -> Status> Page<F> {
    fn text(&mut self, format: Format) -> String {
        let is_fresh = |(when, _): &(Instant, String)| when.elapsed() < FRESH;
        let text = match self.rendered.take().filter(is_fresh) {
            Some(fresh) => fresh,
            None => {
                let text = render(&(self.status)(), Format::OpenMetrics);
                (Instant::now(), text)
            }
        };
        let text = &self.rendered.insert(text).1;
        match format {
            Format::OpenMetrics => text.clone(),
            Format::Classic => classic(text),
        }
    }
}

/// How far a client has come.
enum State {
    /// Its request, so far.
    Asking(Vec<u8>),
    /// The answer, and how much of it was taken.
    Taking(Vec<u8>, usize),
    /// It has the answer. Closing with something unread would take it away again.
    Leaving,
}

struct Client {
    stream: TcpStream,
    state: State,
    deadline: Instant,
}

/// Serves clients until `woken` is hung up.
fn serve<F: FnMut() -> Status>(listener: &TcpListener, woken: &UnixStream, page: &mut Page<F>) {
    let mut clients: Vec<Client> = Vec::new();
    loop {
        let ready = match wait(listener, woken, &clients) {
            Ok(ready) => ready,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => {
                event!(metrics_stopped, "metrics are not served any more: {error}");
                return;
            }
        };
        if ready.ends {
            return;
        }
        let now = Instant::now();
        let mut is_ready = ready.clients.into_iter();
        clients.retain_mut(|client| {
            let is_ready = is_ready.next().unwrap_or(false);
            now < client.deadline && (!is_ready || client.step(page).unwrap_or(false))
        });
        if ready.accepts {
            accept(listener, &mut clients);
        }
    }
}

/// What can go on.
struct Ready {
    ends: bool,
    accepts: bool,
    clients: Vec<bool>,
}

/// Waits until something can go on or a client's time is over.
fn wait(
    listener: &TcpListener,
    woken: &UnixStream,
    clients: &[Client],
) -> rustix::io::Result<Ready> {
    let mut fds = vec![
        PollFd::new(woken, PollFlags::IN),
        PollFd::new(listener, PollFlags::IN),
    ];
    fds.extend(clients.iter().map(|client| match client.state {
        State::Taking(..) => PollFd::new(&client.stream, PollFlags::OUT),
        _ => PollFd::new(&client.stream, PollFlags::IN),
    }));
    // Clients are in the order of their coming, and so of their deadlines. A millisecond more, so
    // that the deadline is over then.
    let time = clients.first().map(|first| {
        let left = first.deadline.saturating_duration_since(Instant::now());
        left + Duration::from_millis(1)
    });
    let time = time.and_then(|time| Timespec::try_from(time).ok());
    poll(&mut fds, time.as_ref())?;
    let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
    Ok(Ready {
        ends: ready.next().unwrap_or(true),
        accepts: ready.next().unwrap_or(true),
        clients: ready.collect(),
    })
}

/// Accepts all who wait; where no place is free, the oldest client loses its own.
fn accept(listener: &TcpListener, clients: &mut Vec<Client>) {
    for _ in 0..CLIENTS_MAX {
        match listener.accept() {
            Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => {
                if clients.len() >= CLIENTS_MAX {
                    clients.remove(0);
                }
                clients.push(Client {
                    stream,
                    state: State::Asking(Vec::new()),
                    deadline: Instant::now() + DEADLINE,
                });
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(error) => {
                event!(client_refused, "cannot accept a scrape: {error}");
                thread::sleep(PAUSE);
                return;
            }
        }
    }
}

impl Client {
    /// Goes on as far as it can without waiting. Returns whether the client stays.
    fn step<F: FnMut() -> Status>(&mut self, page: &mut Page<F>) -> io::Result<bool> {
        let mut buffer = [0; 4096];
        if !matches!(self.state, State::Taking(..)) {
            let bytes = match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(false),
                Ok(bytes) => &buffer[..bytes],
                Err(error) => return stays(error),
            };
            let State::Asking(head) = &mut self.state else {
                return Ok(true);
            };
            head.extend(bytes);
            let Some(answer) = judge(head) else {
                return Ok(true);
            };
            self.state = State::Taking(respond(answer, page), 0);
        }
        let State::Taking(response, taken) = &mut self.state else {
            return Ok(true);
        };
        while *taken < response.len() {
            match self.stream.write(&response[*taken..]) {
                Ok(bytes) => *taken += bytes,
                Err(error) => return stays(error),
            }
        }
        self.stream.shutdown(Shutdown::Write)?;
        self.state = State::Leaving;
        Ok(true)
    }
}

fn respond<F: FnMut() -> Status>(answer: Answer, page: &mut Page<F>) -> Vec<u8> {
    answer.response(|format| page.text(format))
}

/// Whether a client stays after this.
fn stays(error: io::Error) -> io::Result<bool> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(true),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests;
