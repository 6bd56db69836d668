//! The thread: serves all connections in rounds of bounded work.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pghot_hotness::{Nid, Pfn, Table};
use pghot_linux::SysRoot;
use pghot_linux::host::monotonic;

use super::client::{Client, End};
use super::close::Closer;
use super::pages::Refusal;
use super::socket::{self, Listener, Peer};
use crate::bulk::BulkReporter;
use crate::kernel::folios::FolioReporter;
use crate::kernel::worker::Pace;

/// Connections at the same time, and of them those of one user. Root is not counted by user.
pub const CLIENTS_MAX: usize = 64;
pub const CLIENTS_PER_UID_MAX: usize = 8;

/// Pages looked up in a round for one user, and for one control group: 64 MiB, so that nobody waits
/// long for another, with however many connections.
const PAGES_PER_ROUND: u64 = 16384;

/// Between two looks into the rings, which wake nobody, and whether the source is being dropped.
const IDLE_POLL_MS: i32 = 100;

/// At least so long the thread rests after a round; and as long as the round took, so that clients
/// together get half a CPU at most.
const REST_MIN: Duration = Duration::from_millis(1);

/// What came in, and what was refused.
#[derive(Default)]
pub struct Counters {
    pub clients: AtomicU64,
    pub refused_clients: AtomicU64,
    pub messages: AtomicU64,
    /// Ranges, by [`Refusal::ALL`].
    pub refused: [AtomicU64; Refusal::ALL.len()],
}

impl Counters {
    fn refuse(&self, refusal: Refusal) {
        self.refused[refusal as usize - 1].fetch_add(1, Ordering::Relaxed);
    }
}

/// All connections.
pub struct Server {
    root: SysRoot,
    listener: Listener,
    clients: Vec<Client>,
    closer: Closer,
    counters: Arc<Counters>,
    reporter: Arc<BulkReporter>,
    folios: FolioReporter,
    table: Arc<Table>,
    /// For each lower-tier node, the node that is told for its pages: nobody knows which CPU will
    /// use them, and the nearest one is the cheapest to reach.
    nearest: BTreeMap<Nid, Nid>,
}

impl Server {
    /// A server without connections.
    pub fn new(
        root: &SysRoot,
        listener: Listener,
        counters: &Arc<Counters>,
        reporter: &Arc<BulkReporter>,
        folios: FolioReporter,
        table: &Arc<Table>,
        nearest: BTreeMap<Nid, Nid>,
    ) -> Server {
        Server {
            root: root.clone(),
            listener,
            clients: Vec::new(),
            closer: Closer::default(),
            counters: Arc::clone(counters),
            reporter: Arc::clone(reporter),
            folios: folios.merging(),
            table: Arc::clone(table),
            nearest,
        }
    }

    /// Serves until the source is dropped.
    pub fn run(mut self, pace: &Pace) {
        while !pace.is_ending() {
            self.closer.step();
            let began = match self.wait() {
                Ok(true) => Instant::now(),
                Ok(false) => continue,
                // Interrupted, or out of memory for a moment.
                Err(_) if pace.sleep(Duration::from_millis(100)) => continue,
                Err(_) => break,
            };
            self.round();
            if !pace.sleep(began.elapsed().max(REST_MIN)) {
                break;
            }
        }
        self.closer.close(self.listener.into_socket());
        for client in self.clients {
            self.closer.close(client.into_socket());
        }
    }

    /// Waits for something to do, but not long.
    fn wait(&self) -> io::Result<bool> {
        if self.clients.iter().any(Client::is_busy) {
            return Ok(true);
        }
        let listener = self.may_accept().then(|| self.listener.fd());
        let clients = self.clients.iter().map(Client::fd);
        let fds = listener.into_iter().chain(clients);
        let mut fds: Vec<_> = fds.map(socket::pollfd).collect();
        socket::poll(&mut fds, IDLE_POLL_MS)?;
        Ok(fds.iter().any(|fd| fd.revents != 0) || self.clients.iter().any(Client::is_busy))
    }

    /// One step of each client, and new ones.
    fn round(&mut self) {
        self.accept();
        let now = monotonic();
        let mut refuse = |refusal| self.counters.refuse(refusal);
        let mut sink = |pfn: Pfn| match self.table.span().nid(pfn) {
            Some(nid) => {
                let target = self.nearest.get(&nid).copied().unwrap_or_default();
                self.folios.push(pfn, target, now);
                true
            }
            None if pfn == 0 => {
                self.reporter.note_unreadable(1);
                false
            }
            None => {
                self.reporter.note_not_tracked(1);
                false
            }
        };
        let mut budgets = Budgets::default();
        let mut ended = Vec::new();
        for (place, client) in self.clients.iter_mut().enumerate() {
            match client.receive(&self.root, &mut refuse) {
                Ok(is_new) => {
                    let messages = &self.counters.messages;
                    messages.fetch_add(is_new.into(), Ordering::Relaxed);
                }
                Err(end) => {
                    ended.push((place, end));
                    continue;
                }
            };
            let limit = budgets.left(client.peer());
            let done = client.work(limit, &mut refuse, &mut sink);
            budgets.spend(client.peer(), done);
        }
        self.folios.flush(now);
        for (place, end) in ended.into_iter().rev() {
            let socket = self.clients.remove(place).into_socket();
            match end {
                // Nothing is in it.
                End::Closed => drop(socket),
                End::Malformed => self.closer.close(socket),
            }
        }
        if !self.clients.is_empty() {
            // So that of a budget each connection gets its turn.
            self.clients.rotate_left(1);
        }
        let clients = self.clients.len() as u64;
        self.counters.clients.store(clients, Ordering::Relaxed);
    }

    /// Whether there is room for a connection, if only to refuse it.
    fn may_accept(&self) -> bool {
        self.closer.waiting() < CLIENTS_MAX
    }

    fn accept(&mut self) {
        while self.may_accept()
            && let Ok(socket) = self.listener.accept()
        {
            let refused = match Client::admit(&self.root, socket) {
                Ok(client) if self.has_room_for(&client) => {
                    self.clients.push(client);
                    continue;
                }
                Ok(client) => client.into_socket(),
                Err(socket) => socket,
            };
            // Closed soon, which tells it.
            self.closer.close(refused);
            let refused_clients = &self.counters.refused_clients;
            refused_clients.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn has_room_for(&self, client: &Client) -> bool {
        let uid = client.peer().uid;
        let same = self.clients.iter().filter(|other| other.peer().uid == uid);
        self.clients.len() < CLIENTS_MAX && (uid == 0 || same.count() < CLIENTS_PER_UID_MAX)
    }
}

/// Pages that were looked up in a round, by whom they were for.
#[derive(Default)]
struct Budgets {
    users: BTreeMap<u32, u64>,
    cgroups: BTreeMap<String, u64>,
}

impl Budgets {
    fn left(&self, peer: &Peer) -> u64 {
        let user = self.users.get(&peer.uid).copied().unwrap_or_default();
        let cgroup = self.cgroups.get(&peer.cgroup).copied().unwrap_or_default();
        PAGES_PER_ROUND.saturating_sub(user.max(cgroup))
    }

    fn spend(&mut self, peer: &Peer, pages: u64) {
        if pages > 0 {
            *self.users.entry(peer.uid).or_default() += pages;
            *self.cgroups.entry(peer.cgroup.clone()).or_default() += pages;
        }
    }
}

#[cfg(test)]
mod tests;
