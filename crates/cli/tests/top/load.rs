//! What watching costs: less than half a percent of a CPU, whatever is looked at, or on a slow host
//! no more than so many bare questions.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use pghot_daemon::owners::{OwnerMoves, OwnerRow};
use pghot_daemon::protocol::{Request, ask};
use pghot_daemon::status::Status;
use pghot_linux::thread_cpu;

use crate::fake::FakeDaemon;
use crate::tmux::Tmux;

/// As many owners as a daemon counts apart.
const CGROUPS: u32 = 128;
const PROGRAMS: u32 = 256;
/// Frames of one window.
const LOOKS: u64 = 6;
/// A frame takes as long as so many bare questions at most: 4 to 15 were seen.
const BARE_QUESTIONS: f64 = 20.0;

fn busy(status: &mut Status) {
    let moves = |name: String, pid| OwnerMoves {
        name,
        pid,
        ready_pages: status.now_ms / 1000,
        promoted_pages: status.now_ms,
        demoted_pages: Some(7),
        not_moved: [("busy".to_owned(), 3), ("gone".to_owned(), 30)].into(),
        ..OwnerMoves::default()
    };
    let group = |n| OwnerRow {
        moves: moves(
            format!("/kubepods.slice/pod-{n}.slice/container.scope"),
            None,
        ),
        ..OwnerRow::default()
    };
    let cgroups = (0..CGROUPS).map(group).collect();
    let programs = (0..PROGRAMS).map(|n| moves(format!("program-{n}"), Some(n + 1)));
    status.processes = programs.collect();
    status.cgroups = cgroups;
}

/// CPU time of a process, in ns.
fn cpu_ns(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let task = |entry: fs::DirEntry| {
        let text = fs::read_to_string(entry.path().join("schedstat")).unwrap();
        text.split_whitespace()
            .next()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    tasks.map(|entry| task(entry.unwrap())).sum()
}

/// Share of a CPU that asking for the status once a second takes without showing it.
fn bare_questions(socket: PathBuf) -> f64 {
    let before = thread_cpu();
    for _ in 0..LOOKS {
        thread::sleep(Duration::from_secs(1));
        drop(ask(&socket, &Request::Status).unwrap());
    }
    (thread_cpu() - before).as_secs_f64() / LOOKS as f64
}

/// Watches for some seconds after these keys.
fn assert_cheap(keys: &[&str], shown: &str) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("sock");
    let daemon = FakeDaemon::with(&socket, "0", busy);
    let tmux = Tmux::start(&socket, 200, 50);
    tmux.wait_for("1,000 pages/s");
    if !keys.is_empty() {
        tmux.keys(keys);
    }
    tmux.wait_for(shown);
    let pid = tmux.pid();
    let other = dir.path().join("other");
    let _other = FakeDaemon::with(&other, "0", busy);
    let is_cheap = || {
        // In the same time, because the host is not as fast in the next.
        let socket = other.clone();
        let bare = thread::spawn(|| bare_questions(socket));
        let first = daemon.asked.load(Relaxed);
        let (before_ns, before) = (cpu_ns(pid), Instant::now());
        tmux.wait("looks", |_| daemon.asked.load(Relaxed) >= first + LOOKS);
        assert!(
            before.elapsed() > Duration::from_secs(LOOKS - 2),
            "one frame a second"
        );
        let share = (cpu_ns(pid) - before_ns) as f64 / before.elapsed().as_nanos() as f64;
        let bare = bare.join().unwrap();
        let (percent, bare_percent) = (100.0 * share, 100.0 * bare);
        println!(
            "pghot top takes {percent:.3} % of a CPU at {shown}, bare questions {bare_percent:.3}"
        );
        share < f64::max(0.005, BARE_QUESTIONS * bare)
    };
    // Whoever runs beside it takes its caches away: one quiet window says what it needs itself.
    assert!((0..3).any(|_| is_cheap()), "{shown}: see above");
}

#[test]
fn a_frame_a_second_takes_less_than_half_a_percent() {
    assert_cheap(&[], "[cgroups]");
}

#[test]
fn so_do_the_programs() {
    assert_cheap(&["Tab"], "[programs]");
}
