//! Clients of every kind against a server.

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pghot_engine::fake::FakeMachine;
use pghot_engine::{Gates, History, Migrator};

use super::*;
use crate::shared::Shared;
use crate::{compose, lock, migrator, testing};

/// A server that counts how often it was asked for a status.
fn server() -> (Server, SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&asked);
    let status = move || Status {
        config_generation: counter.fetch_add(1, Ordering::Relaxed),
        ..Status::default()
    };
    (Server::start(listener, status).unwrap(), address, asked)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(4 * DEADLINE)).unwrap();
    stream
}

fn get(address: SocketAddr, request: &str) -> String {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

/// Seconds of scraping, of which one has to be good.
const STORMS_MAX: u32 = 6;

/// How much later than otherwise a pass may come while the metrics are scraped.
const GAP_MAX: Duration = Duration::from_millis(100);

const SCRAPE: &str = "GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n";

#[test]
fn good_and_bad_requests_are_answered() {
    let (server, address, asked) = server();
    let scraped = get(address, SCRAPE);
    assert!(scraped.starts_with("HTTP/1.1 200 OK\r\n"), "{scraped}");
    assert!(scraped.contains("text/plain; version=0.0.4"), "{scraped}");
    assert!(scraped.contains("\npghot_config_generation 0\n"));
    let post = format!("POST /metrics HTTP/1.1\r\n\r\n{}", "x".repeat(3 << 20));
    let long = "A".repeat(1 << 20);
    for (request, answer) in [
        ("GET / HTTP/1.1\r\n\r\n", "200 OK"),
        ("GET /x HTTP/1.1\r\n\r\n", "404 "),
        ("\r\n\r\nhello\r\n\r\n", "400 "),
        ("\u{16}\u{3}\u{1}", "400 "),
    ] {
        let response = get(address, request);
        assert!(
            response.starts_with(&format!("HTTP/1.1 {answer}")),
            "{response}"
        );
    }
    // What nobody reads does not keep the answer from arriving.
    for (request, answer) in [(post, "405 "), (long, "431 ")] {
        let response = get(address, &request);
        assert!(
            response.starts_with(&format!("HTTP/1.1 {answer}")),
            "{response}"
        );
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1, "only a scrape asks");
    server.stop();
    assert!(TcpStream::connect(address).is_err(), "the port is free");
}

#[test]
fn a_trickle_is_put_together() {
    let (server, address, _) = server();
    let mut stream = connect(address);
    stream.set_nodelay(true).unwrap();
    for byte in SCRAPE.bytes() {
        stream.write_all(&[byte]).unwrap();
    }
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200"));
    server.stop();
}

#[test]
fn a_storm_of_scrapes_asks_for_few_statuses() {
    let (server, address, asked) = server();
    let started = Instant::now();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    assert!(get(address, SCRAPE).starts_with("HTTP/1.1 200"));
                }
            });
        }
    });
    let most = started.elapsed().as_millis() as u64 / FRESH.as_millis() as u64 + 1;
    let asked = asked.load(Ordering::Relaxed);
    assert!((1..=most).contains(&asked), "{asked} of {most}");
    server.stop();
}

/// The longest time without a pass while `work` goes on.
fn longest_gap(shared: &Shared, work: impl FnOnce()) -> Duration {
    let passes = || lock(&shared.migrators[0].published).totals.passes;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let (mut seen, mut since, mut longest) = (passes(), Instant::now(), Duration::ZERO);
            while !is_over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
                longest = longest.max(since.elapsed());
                let now = passes();
                if now != seen {
                    (seen, since) = (now, Instant::now());
                }
            }
            longest
        });
        work();
        is_over.store(true, Ordering::Relaxed);
        watch.join().unwrap()
    })
}

/// Clients scrape for a second, each again as soon as it is done. Returns how many scrapes were
/// answered with the metrics, and how many lost their place to others.
fn storm(address: SocketAddr) -> (u64, u64) {
    let (answered, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let ends = Instant::now() + Duration::from_secs(1);
    let scrape = || {
        let mut response = String::new();
        let mut stream = connect(address);
        let asked = stream.write_all(SCRAPE.as_bytes());
        match asked.and_then(|()| stream.read_to_string(&mut response)) {
            Ok(bytes) if bytes > 0 => {
                assert!(response.starts_with("HTTP/1.1 200"), "{response}");
                answered.fetch_add(1, Ordering::Relaxed);
            }
            _ => {
                refused.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    let again = || {
        while Instant::now() < ends {
            scrape();
        }
    };
    thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(again))));
    (answered.into_inner(), refused.into_inner())
}

/// The migrator is real, and so are the status and its locks; the pages are a fake's.
#[test]
fn a_thousand_scrapes_a_second_delay_no_pass() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, _) = testing::daemon(dir.path());
    shared.set("kmigrated_sleep_ms", "50").unwrap();
    let passing = Arc::clone(&shared);
    let passes = thread::spawn(move || {
        let state = &passing.migrators[0];
        let (history, gates) = (History::default(), Gates::default());
        let migrator = Migrator::new(2, history, gates, state.journal.clone());
        migrator::run(&passing, state, migrator, &mut FakeMachine::tiered3());
    });
    let asked = Arc::clone(&shared);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::start(listener, move || compose::status(&asked)).unwrap();
    // Threads of this test take CPU time from the migrator, and so does whatever else the host
    // does: a single quiet second proves that scrapes do not hold passes up.
    let is_calm = (0..STORMS_MAX).any(|_| {
        let calm = longest_gap(&shared, || thread::sleep(Duration::from_secs(1)));
        let (mut answered, mut refused) = (0, 0);
        let scraped = longest_gap(&shared, || (answered, refused) = storm(address));
        println!("{answered} scrapes answered and {refused} refused in a second");
        println!("longest gap between passes: {scraped:?}, without scrapes {calm:?}");
        answered + refused >= 1000 && scraped < calm + GAP_MAX
    });
    assert!(is_calm, "see above what each of the seconds had");
    shared.stop.request();
    server.stop();
    passes.join().unwrap();
}

#[test]
fn silent_and_slow_clients_hold_nobody_up() {
    let (server, address, _) = server();
    let mut clients: Vec<TcpStream> = (0..3 * CLIENTS_MAX).map(|_| connect(address)).collect();
    // Some ask and never take the answer, some leave halfway through the request.
    for (client, number) in clients.iter_mut().zip(0..) {
        let words = [SCRAPE, "GET /met", ""][number % 3];
        // Those that came first have lost their place by now.
        let _ = client.write_all(words.as_bytes());
    }
    let before = Instant::now();
    assert!(get(address, SCRAPE).starts_with("HTTP/1.1 200"));
    assert!(before.elapsed() < DEADLINE / 2, "{:?}", before.elapsed());
    // The first ones lost their places, the last go when their time is over.
    let mut last = clients.pop().unwrap();
    let _ = last.read(&mut [0]);
    assert!(before.elapsed() < 2 * DEADLINE, "{:?}", before.elapsed());
    let before = Instant::now();
    server.stop();
    assert!(before.elapsed() < DEADLINE / 2, "no client delays the end");
}

/// The test is its own child: it takes the socket as descriptor 3, as systemd passes it.
#[test]
fn a_socket_that_was_passed_is_served_instead_of_the_address() {
    if std::env::var_os("LISTEN_FDS").is_some() {
        return serve_what_was_passed();
    }
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    let this = "metrics::server::tests::a_socket_that_was_passed_is_served_instead_of_the_address";
    let script = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" --exact \"$1\"";
    let child = Command::new("sh")
        .args(["-c", script])
        .args([std::env::current_exe().unwrap().as_os_str(), this.as_ref()])
        .stdin(OwnedFd::from(socket))
        .stdout(Stdio::null())
        .spawn();
    let mut child = child.unwrap();
    // Who connects waits until the child serves.
    let scraped = get(address, SCRAPE);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(scraped.starts_with("HTTP/1.1 200"), "{scraped}");
    assert!(scraped.contains("\npghot_config_generation 7\n"));
}

/// The child's part; its parent ends it before its time is over.
fn serve_what_was_passed() {
    // An address that nobody could bind.
    let foreign = "192.0.2.1:9464".parse().unwrap();
    let passed = listen(Some(foreign)).unwrap().unwrap();
    let status = || Status {
        config_generation: 7,
        ..Status::default()
    };
    let server = Server::start(passed, status).unwrap();
    thread::sleep(4 * DEADLINE);
    server.stop();
}

#[test]
fn a_port_in_use_is_one_sentence() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = taken.local_addr().unwrap();
    let error = listen(Some(address)).unwrap_err().to_string();
    assert!(error.starts_with(&format!("another program listens on {address}")));
    assert!(listen(None).unwrap().is_none(), "off");
    let foreign = "192.0.2.1:9464".parse().unwrap();
    let error = listen(Some(foreign)).unwrap_err();
    assert!(matches!(error, ListenError::Io { .. }), "{error}");
}
