//! Clients of every kind, hostile ones too.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use pghot_hint::wire::{Message, RANGES_MAX};
use pghot_hint::{Hints, Range, Ring, ring};
use pghot_hotness::{Format, PfnRange, Rule, SECTION_PAGES, Span};

use super::*;
use crate::kernel::folios::fake_heads;
use crate::kernel::worker::Worker;

const LOWER: Pfn = SECTION_PAGES;
const PRESENT: u64 = 1 << 63;
/// Pages of each fake process: half of them in the lower tier.
const PAGES: u64 = 64;

struct Rig {
    dir: tempfile::TempDir,
    counters: Arc<Counters>,
    reporter: Arc<BulkReporter>,
    table: Arc<Table>,
    worker: Option<Worker>,
}

impl Rig {
    fn start() -> Rig {
        Rig::start_with(|listener| listener)
    }

    fn start_with(change: impl FnOnce(Listener) -> Listener) -> Rig {
        let dir = tempfile::tempdir().unwrap();
        let root = SysRoot::under(dir.path());
        for (pid, first) in [(std::process::id(), LOWER), (1, LOWER + PAGES)] {
            let path = root.proc.join(format!("{pid}/pagemap"));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let entry = |n| match n % 2 {
                0 => PRESENT | (first + n),
                _ => PRESENT | (n + 1),
            };
            let bytes: Vec<u8> = (0..PAGES).map(entry).flat_map(u64::to_ne_bytes).collect();
            std::fs::write(path, bytes).unwrap();
        }
        let range = PfnRange {
            start: LOWER,
            end: LOWER + SECTION_PAGES,
            nid: 2,
        };
        let table = Table::in_memory(Format::Precision, Span::new(&[range]).unwrap());
        let table = Arc::new(table);
        let rule = Rule::new(Format::Precision, 1, 3000).unwrap();
        let reporter = BulkReporter::new(&table, &rule);
        let counters = Arc::<Counters>::default();
        let server = Server::new(
            &root,
            change(Listener::bind(&dir.path().join("sock")).unwrap()),
            &counters,
            &reporter,
            FolioReporter::new(&reporter, fake_heads()),
            &table,
            BTreeMap::from([(2, 1)]),
        );
        let worker = Worker::spawn("app_hint", move |pace| server.run(pace)).unwrap();
        Rig {
            dir,
            counters,
            reporter,
            table,
            worker: Some(worker),
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("sock")
    }

    fn hints(&self) -> Hints {
        Hints::connect(&self.path()).unwrap()
    }

    fn wait(&self, what: &str, condition: impl Fn(&Rig) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !condition(self) {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn refused(&self, refusal: Refusal) -> u64 {
        self.counters.refused[refusal as usize - 1].load(Ordering::Relaxed)
    }

    fn clients(&self) -> u64 {
        self.counters.clients.load(Ordering::Relaxed)
    }
}

fn all() -> Range {
    let (address, length) = (0, PAGES << 12);
    Range { address, length }
}

#[test]
fn hinted_pages_of_the_lower_tier_are_reported_once() {
    let rig = Rig::start();
    let answer = rig.hints().ask(0, &[all()]).unwrap();
    assert_eq!((answer.pages, answer.refused), (PAGES / 2, 0));
    rig.wait("reported", |rig| rig.reporter.stats().recorded == PAGES / 2);
    let stats = rig.reporter.stats();
    assert_eq!(stats.became_ready, PAGES / 2);
    assert_eq!((stats.not_tracked, stats.unreadable), (PAGES / 2, 0));
    assert_eq!(rig.table.get(LOWER).unwrap().nid(), Some(1), "the nearest");
    assert!(
        !rig.table.get(LOWER + PAGES).unwrap().is_ready(),
        "another's"
    );
}

#[test]
fn lies_are_counted_and_harm_nobody() {
    let rig = Rig::start();
    let hints = rig.hints();
    let good = all();
    let lies = [
        (1, 0, Refusal::Empty),
        (1, 1 << 60, Refusal::TooLong),
        (0xffff_8880_0000_0000, 4096, Refusal::BadAddress),
        (u64::MAX, u64::MAX, Refusal::TooLong),
    ];
    let mut ranges = vec![good];
    ranges.extend(lies.map(|(address, length, _)| Range { address, length }));
    ranges.push(good);
    let answer = hints.ask(0, &ranges).unwrap();
    assert_eq!(answer.refused, 4);
    assert_eq!(answer.refusal, Refusal::Empty as u32, "the first one");
    assert_eq!(answer.pages, PAGES, "what is true counts nevertheless");
    assert_eq!(rig.refused(Refusal::TooLong), 2);
    assert_eq!(rig.refused(Refusal::BadAddress), 1);
    // Other processes are for root, who may also name one that is not there.
    // SAFETY: geteuid has no arguments and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let foreign = hints.ask(1, &[good]).unwrap();
    let nobody = hints.ask(4_000_000, &[good, good]).unwrap();
    if is_root {
        assert_eq!((foreign.pages, foreign.refused), (PAGES / 2, 0));
        assert_eq!(nobody.refusal, Refusal::NoProcess as u32);
    } else {
        assert_eq!((foreign.pages, foreign.refused), (0, 1));
        assert_eq!(nobody.refusal, Refusal::Foreign as u32);
    }
    assert_eq!((nobody.pages, nobody.refused), (0, 2));
}

fn send_raw(path: &Path, bytes: &[u8]) -> OwnedFd {
    let socket = pghot_hint::connect(path).unwrap();
    // What is too long for the socket itself is refused by the kernel.
    let _ = socket::send(&socket, bytes, None);
    socket
}

#[test]
fn garbage_ends_its_connection_and_no_other() {
    let rig = Rig::start();
    let bystander = rig.hints();
    let mut random = 1u64;
    let mut noise = |length: usize| -> Vec<u8> {
        let byte = |_| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
            (random >> 56) as u8
        };
        (0..length).map(byte).collect()
    };
    let message = |nr| Message {
        pid: 0,
        flags: 0,
        ranges: vec![all(); nr],
    };
    let good = message(2).encode();
    let mut garbage: Vec<Vec<u8>> = (1..200).step_by(7).map(&mut noise).collect();
    garbage.push(good[..good.len() - 1].to_vec());
    garbage.push([&good[..], &[0; 16]].concat());
    garbage.push([&message(RANGES_MAX).encode()[..], &[0; 99]].concat());
    garbage.push(noise(100_000));
    let number = garbage.len() as u64;
    for bytes in garbage {
        let socket = send_raw(&rig.path(), &bytes);
        rig.wait("the connection is closed", |_| {
            let mut fds = [socket::pollfd(socket.as_raw_fd())];
            socket::poll(&mut fds, 0).is_ok() && fds[0].revents & libc::POLLHUP != 0
        });
    }
    assert_eq!(rig.refused(Refusal::Malformed), number);
    assert_eq!(bystander.ask(0, &[all()]).unwrap().pages, PAGES / 2);
}

#[test]
fn a_ring_is_read_until_its_owner_goes() {
    let rig = Rig::start();
    let ring = Ring::connect(&rig.path()).unwrap();
    // More than fit at once, and lies among them, which are refused as in a message.
    let mut lost = 0;
    for n in 0..5 * ring::SLOTS {
        let address = (n % PAGES) << 12;
        let length = if n % 8 == 7 { 1 << 60 } else { 4096 };
        while ring.push(Range { address, length }).is_err() {
            lost += 1;
            assert!(ring.is_connected());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert!(lost > 0, "it never was full");
    let lies = 5 * ring::SLOTS / 8;
    // Of each 64 pages 32 are in the lower tier, the even ones; lies were told of odd ones. What is
    // refused is counted before the rest of the same batch is reported.
    let reported = |rig: &Rig| rig.reporter.stats().recorded;
    rig.wait("all is reported", |rig| {
        reported(rig) >= 5 * ring::SLOTS / 2
    });
    assert_eq!(reported(&rig), 5 * ring::SLOTS / 2);
    assert_eq!(rig.refused(Refusal::TooLong), lies);
    assert_eq!(rig.hints().ask(0, &[all()]).unwrap().pages, PAGES / 2);
    drop(ring);
    rig.wait("it is gone", |rig| rig.clients() == 0);
}

#[test]
fn a_ring_ends_with_the_source() {
    let rig = Rig::start();
    let ring = Ring::connect(&rig.path()).unwrap();
    drop(rig);
    let deadline = Instant::now() + Duration::from_secs(20);
    while ring.is_connected() {
        assert!(Instant::now() < deadline, "it is closed");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A connection whose last close waits for a minute, since its other end reads nothing.
fn lingering() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (receiver, _) = listener.accept().unwrap();
    sender.set_nonblocking(true).unwrap();
    while sender.write(&[0; 1 << 16]).is_ok() {}
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 60,
    };
    let length = size_of_val(&linger) as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of `linger`.
    let set = unsafe {
        let (fd, place) = (sender.as_raw_fd(), (&raw const linger).cast());
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, place, length)
    };
    assert_eq!(set, 0);
    (sender.into(), receiver)
}

#[test]
fn a_descriptor_that_cannot_be_closed_holds_nobody_up() {
    let rig = Rig::start_with(Listener::like_an_old_kernels);
    let bystander = rig.hints();
    let good = Message {
        pid: 0,
        flags: 0,
        ranges: vec![all()],
    };
    let began = Instant::now();
    let mut receivers = Vec::new();
    // At once; after a good message; and in a message without a byte, which is no end.
    for (n, earlier) in [None, Some(good.encode()), Some(Vec::new())]
        .iter()
        .enumerate()
    {
        let (file, receiver) = lingering();
        receivers.push(receiver);
        let attacker = pghot_hint::connect(&rig.path()).unwrap();
        if let Some(earlier) = earlier {
            socket::send(&attacker, earlier, None).unwrap();
        }
        socket::send(&attacker, &good.encode(), Some(file.as_fd())).unwrap();
        drop((file, attacker));
        rig.wait("it is sent away", |rig| {
            rig.refused(Refusal::Malformed) == n as u64 + 1 && rig.clients() == 1
        });
        assert_eq!(bystander.ask(0, &[all()]).unwrap().pages, PAGES / 2);
    }
    // Neither does one that waits when the source ends.
    let (file, _receiver) = lingering();
    let attacker = pghot_hint::connect(&rig.path()).unwrap();
    socket::send(&attacker, &good.encode(), Some(file.as_fd())).unwrap();
    drop((file, attacker, rig));
    assert!(began.elapsed() < Duration::from_secs(50), "a close waited");
}

#[test]
fn new_kernels_refuse_descriptors() {
    let rig = Rig::start();
    let attacker = pghot_hint::connect(&rig.path()).unwrap();
    let (_reader, writer) = io::pipe().unwrap();
    if let Err(error) = socket::send(&attacker, &[1], Some(writer.as_fd())) {
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    } else {
        rig.wait("it is sent away", |rig| {
            rig.refused(Refusal::Malformed) == 1
        });
    }
}

#[test]
fn many_connections_bring_no_more_than_one() {
    let peer = |uid, cgroup: &str| Peer {
        pid: 1,
        uid,
        cgroup: cgroup.into(),
    };
    let mut budgets = Budgets::default();
    budgets.spend(&peer(1, "a"), PAGES_PER_ROUND - 1);
    assert_eq!(budgets.left(&peer(1, "b")), 1, "the user's");
    assert_eq!(budgets.left(&peer(2, "a")), 1, "the group's");
    assert_eq!(budgets.left(&peer(2, "b")), PAGES_PER_ROUND);
    budgets.spend(&peer(2, "a"), 5);
    assert_eq!(budgets.left(&peer(1, "a")), 0);
}

#[test]
fn connections_are_limited_and_freed() {
    let rig = Rig::start();
    // SAFETY: geteuid has no arguments and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let max = if is_root {
        CLIENTS_MAX
    } else {
        CLIENTS_PER_UID_MAX
    };
    let many: Vec<Hints> = (0..max).map(|_| rig.hints()).collect();
    rig.wait("all are in", |rig| rig.clients() == max as u64);
    let one_more = rig.hints();
    assert!(one_more.ask(0, &[all()]).is_err(), "no room");
    assert_eq!(many[0].ask(0, &[all()]).unwrap().pages, PAGES / 2);
    drop(many);
    rig.wait("all are gone", |rig| rig.clients() == 0);
    assert_eq!(rig.hints().ask(0, &[all()]).unwrap().pages, PAGES / 2);
}

#[test]
fn a_client_that_never_reads_holds_nobody_up() {
    let rig = Rig::start();
    let deaf = pghot_hint::connect(&rig.path()).unwrap();
    let question = Message {
        pid: 0,
        flags: 1,
        ranges: vec![all(); RANGES_MAX],
    };
    // Until the daemon's answers and these fill both directions, or for long enough.
    let mut sent = 0;
    for _ in 0..5000 {
        sent += u64::from(socket::send(&deaf, &question.encode(), None).is_ok());
    }
    assert!(sent > 0);
    assert_eq!(rig.hints().ask(0, &[all()]).unwrap().pages, PAGES / 2);
    // Killed in the middle of its messages.
    drop(deaf);
    rig.wait("it is gone", |rig| rig.clients() <= 1);
    assert_eq!(rig.hints().ask(0, &[all()]).unwrap().pages, PAGES / 2);
}

#[test]
fn dropped_it_leaves_no_socket() {
    let mut rig = Rig::start();
    assert!(Listener::bind(&rig.path()).is_err(), "it is in use");
    let hints = rig.hints();
    drop(rig.worker.take());
    assert!(!rig.path().exists());
    assert!(hints.ask(0, &[all()]).is_err());
}
