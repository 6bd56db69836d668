//! The whole daemon with its real BPF programs on this kernel, but with a fake `/proc` and `/sys`:
//! a lower tier that does not exist is watched, and no setting of this host changes.
//!
//! Needs root and BTF; without them the trial is reported as ignored, with the reason in its name.
//! No source runs, because not every host lets its kernel be hooked: the tests of `testbed/` run
//! them, and move pages.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};
use pghot_daemon::config::{self, Assignment, Options, Origin};
use pghot_daemon::error::RunError;
use pghot_daemon::protocol::{Request, Response, ask};
use pghot_daemon::status::{SourceState, Status};
use pghot_linux::keeper::Keeper;
use pghot_linux::{SysRoot, thread_cpu};

/// A memory block of node 2, far beyond this host's memory.
const LOWER_BLOCK: &str = "node2/memory32768/state";

struct Machine {
    dir: tempfile::TempDir,
    root: SysRoot,
}

impl Machine {
    /// Node 0 in the top tier, node 2 below; the kernel balances between sockets.
    fn new() -> Machine {
        let dir = tempfile::tempdir().unwrap();
        let root = SysRoot::under(dir.path());
        let machine = Machine { dir, root };
        let sys = [
            ("devices/virtual/memory_tiering/memory_tier4/nodelist", "0"),
            ("devices/virtual/memory_tiering/memory_tier22/nodelist", "2"),
            ("devices/system/memory/block_size_bytes", "8000000"),
            ("devices/system/node/online", "0,2"),
            ("devices/system/node/has_memory", "0,2"),
            ("devices/system/node/node0/cpulist", "0"),
            ("devices/system/node/node0/distance", "10 20"),
            (
                "devices/system/node/node0/meminfo",
                "Node 0 MemTotal: 131072 kB",
            ),
            ("devices/system/node/node2/cpulist", ""),
            ("devices/system/node/node2/distance", "20 10"),
            (
                "devices/system/node/node2/meminfo",
                "Node 2 MemTotal: 131072 kB",
            ),
        ];
        for (path, text) in sys {
            write(&machine.root.sys.join(path), text);
        }
        let lower = machine
            .root
            .sys
            .join("devices/system/node")
            .join(LOWER_BLOCK);
        write(&lower, "online");
        write(&machine.balancing(), "1");
        let rate_limit = "kernel.numa_balancing_promote_rate_limit_MBps";
        write(&machine.root.sysctl(rate_limit), "65536");
        write(&machine.root.sysctl("kernel.osrelease"), "6.18.0-fake");
        write(&machine.root.sysctl("kernel.random.boot_id"), "0");
        machine.link("/sys/kernel/btf/vmlinux", "sys/kernel/btf/vmlinux");
        for file in [
            "zoneinfo",
            "vmstat",
            "self",
            &std::process::id().to_string(),
        ] {
            machine.link(&format!("/proc/{file}"), &format!("proc/{file}"));
        }
        machine
    }

    fn link(&self, to: &str, name: &str) {
        let name = self.dir.path().join(name);
        fs::create_dir_all(name.parent().unwrap()).unwrap();
        symlink(to, name).unwrap();
    }

    fn balancing(&self) -> PathBuf {
        self.root.sysctl("kernel.numa_balancing")
    }

    fn options(&self) -> Options {
        let flag = |name: &str, text: String| Assignment {
            name: name.into(),
            text,
            origin: Origin::Flag,
        };
        let path = |file| self.dir.path().join(file).display().to_string();
        let flags = [
            ("socket", path("sock")),
            ("status_socket", path("status")),
            ("state_file", path("state.json")),
            ("enabled_sources", "0".into()),
            ("record_file", path("profile")),
            ("record_seconds", "1".into()),
        ];
        let flags = flags.map(|(name, text)| flag(name, text)).into();
        config::load(Some(Path::new("/dev/null")), flags).unwrap()
    }
}

/// `pghot run`, except that its keeper is a thread, and that it stays who it is.
fn run(options: Options, root: &SysRoot) -> Result<(), RunError> {
    let keeper = Keeper::in_thread(root, &options.state_file)?;
    pghot_daemon::run::run(options, root, keeper)
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("{text}\n")).unwrap();
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap().trim().to_owned()
}

fn status(socket: &Path) -> Option<Status> {
    match ask(socket, &Request::Status) {
        Ok(Response::Status(status)) => Some(*status),
        _ => None,
    }
}

fn wait_for(socket: &Path, condition: impl Fn(&Status) -> bool) -> Status {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(status) = status(socket).filter(&condition) {
            return status;
        }
        assert!(Instant::now() < deadline, "{:?}", status(socket));
        thread::sleep(Duration::from_millis(5));
    }
}

/// What a daemon hears of when systemd runs it, and what it says then.
struct Systemd {
    _dir: tempfile::TempDir,
    socket: UnixDatagram,
}

impl Systemd {
    /// Only while this process has no other thread: it changes the environment.
    fn in_environment() -> Systemd {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let patience = Duration::from_secs(30);
        socket.set_read_timeout(Some(patience)).unwrap();
        // SAFETY: no other thread runs that could read the environment meanwhile.
        unsafe {
            std::env::set_var("NOTIFY_SOCKET", &path);
            std::env::set_var("WATCHDOG_USEC", patience.as_micros().to_string());
        }
        Systemd { _dir: dir, socket }
    }

    fn hears(&self, expected: &str) {
        let mut buffer = [0; 4096];
        loop {
            let length = self.socket.recv(&mut buffer).unwrap();
            let message = String::from_utf8_lossy(&buffer[..length]);
            assert!(message.contains("\nSTATUS="), "{message}");
            if message.lines().any(|line| line == expected) {
                return;
            }
        }
    }
}

/// Why this test cannot run here, if it cannot.
fn obstacle() -> Option<&'static str> {
    // SAFETY: geteuid has no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return Some("loading BPF programs needs root");
    }
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Some("this kernel has no BTF");
    }
    None
}

fn main() -> ExitCode {
    let obstacle = obstacle();
    let name = match obstacle {
        Some(why) => format!("from_start_to_signal (not run: {why})"),
        None => "from_start_to_signal".to_owned(),
    };
    let systemd = Systemd::in_environment();
    // Whoever runs tests under nohup(1) ignores it, and so would the daemon.
    // SAFETY: no handler of ours is involved.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) };
    let run = move || {
        from_start_to_signal(&systemd);
        Ok(())
    };
    let trial = Trial::test(name, run).with_ignored_flag(obstacle.is_some());
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}

/// One test, because the signal that ends a daemon goes to the whole process.
fn from_start_to_signal(systemd: &Systemd) {
    let machine = Machine::new();
    let options = machine.options();
    let socket = options.socket.clone();
    let (root, daemon_options) = (machine.root.clone(), options.clone());
    let daemon = thread::spawn(move || run(daemon_options, &root));
    let up = wait_for(&socket, |status| status.lower_tier[0].totals.passes > 2);
    systemd.hears("READY=1");
    systemd.hears("WATCHDOG=1");

    assert_eq!(
        up.sources[0].state,
        SourceState::Disabled,
        "{:?}",
        up.sources
    );
    assert_eq!(
        (up.kernel.as_str(), up.mode.as_str()),
        ("6.18.0-fake", "default")
    );
    assert_eq!((up.lower_tier[0].nid, up.lower_tier[0].pages), (2, 32_768));
    assert_eq!((up.records_bytes, up.section_marks_bytes), (32_768, 8));
    assert_eq!(
        up.settings["target_nid"].value, None,
        "the nearest top-tier node"
    );
    assert!(
        up.lower_tier[0].why[0].starts_with("no hotness source runs"),
        "{:?}",
        up.lower_tier
    );
    assert_eq!(read(&machine.balancing()), "1");

    refuses_a_second(&machine, &options);

    let set = |name: &str, value: &str| {
        let (name, value) = (name.to_owned(), value.to_owned());
        ask(&socket, &Request::Set { name, value }).unwrap()
    };
    assert!(matches!(set("target_nid", "2"), Response::Invalid(_)));
    assert!(matches!(set("freq_threshold", "1"), Response::Done { .. }));
    // A page of this process: it is in memory, and not in the lower tier.
    let mine = Box::new(1u8);
    let address = &raw const *mine as u64;
    let question = Request::Explain {
        pid: std::process::id(),
        address,
    };
    let Response::Explanation(explanation) = ask(&socket, &question).unwrap() else {
        panic!("no explanation");
    };
    assert_eq!(
        explanation.sentences[0],
        "The page is in the top tier already."
    );

    says_why_nothing_is_recorded(&socket, &options);
    reads_the_file_again(systemd, &socket);
    is_cheap_while_idle(&socket);
    signal_hook::low_level::raise(signal_hook::consts::SIGTERM).unwrap();
    daemon.join().unwrap().unwrap();
    systemd.hears("STOPPING=1");
    assert_eq!(read(&machine.balancing()), "1");
    assert!(!socket.exists() && !options.state_file.exists());
}

/// Which takes nothing away from the first.
fn refuses_a_second(machine: &Machine, options: &Options) {
    let second = run(options.clone(), &machine.root).unwrap_err().to_string();
    assert!(second.contains("already running"), "{second}");
    let mut elsewhere = options.clone();
    elsewhere.state_file = machine.dir.path().join("other.json");
    let second = run(elsewhere, &machine.root).unwrap_err().to_string();
    assert!(second.contains("another pghot daemon runs"), "{second}");
}

/// The fake `/proc` has no other process than this one, which does not record itself.
fn says_why_nothing_is_recorded(socket: &Path, options: &Options) {
    let has_failed = |status: &Status| {
        let recording = status.recording.as_ref();
        recording.is_some_and(|it| it.error.is_some())
    };
    let status = wait_for(socket, has_failed);
    let file = options.record_file.as_deref().unwrap();
    let why = "nothing was recorded: no process of 8 MiB";
    let warning = format!("record_file {}: {why}", file.display());
    let mut warnings = status.warnings.iter();
    assert!(warnings.any(|it| it.starts_with(&warning)), "{status:?}");
    assert!(!file.exists() && !file.with_extension("part").exists());
}

/// What was set stays at a SIGHUP, for the file says nothing new.
fn reads_the_file_again(systemd: &Systemd, socket: &Path) {
    signal_hook::low_level::raise(signal_hook::consts::SIGHUP).unwrap();
    let again = wait_for(socket, |status| status.reload.is_some());
    let reload = again.reload.unwrap();
    assert_eq!((reload.error, reload.changed), (None, Vec::new()));
    assert_eq!(again.settings["freq_threshold"].value, Some(1));
    systemd.hears("RELOADING=1");
    systemd.hears("READY=1");
}

/// Wake-ups of an idle daemon in a second, at most.
const WAKE_UPS: f64 = 15.0;

/// An idle daemon takes 0.1 % of a CPU at most, or what so many plain wake-ups in a second take,
/// each of which reads one file of the kernel: there are hosts on which one takes 700 us. The
/// daemon wakes ten times a second and takes as much as 12 of them.
const PLAIN_WAKE_UPS: f64 = 30.0;

/// By CPU time and beside plain wake-ups, so that a slow host does not matter, and once more if
/// others took the caches away.
fn is_cheap_while_idle(socket: &Path) {
    let found: Vec<String> = (0..3).map_while(|_| idles(socket).err()).collect();
    assert!(found.len() < 3, "{found:#?}");
}

/// Ten seconds with two questions; says what they took if that is too much.
fn idles(socket: &Path) -> Result<(), String> {
    let (idle, plain) = (Duration::from_secs(10), 50);
    let before = (status(socket).unwrap(), wake_ups());
    // In the same time, because the host is not as fast in the next.
    let plain_cpu = thread::spawn(move || {
        let before = thread_cpu();
        for _ in 0..plain {
            thread::sleep(idle / plain);
            read(Path::new("/proc/vmstat"));
        }
        thread_cpu() - before
    });
    let plain_cpu = plain_cpu.join().unwrap().as_secs_f64();
    let after = (status(socket).unwrap(), wake_ups());
    let woken = (after.1 - before.1) as f64 / idle.as_secs_f64();
    let cpu = (after.0.cpu_s - before.0.cpu_s - plain_cpu) / idle.as_secs_f64();
    let one = plain_cpu / f64::from(plain);
    let said = format!(
        "{:.3} % of a CPU and {woken:.1} wake-ups a second while idle, a plain one takes {:.1} us",
        100.0 * cpu,
        1e6 * one
    );
    println!("{said}");
    let is_cheap = woken <= WAKE_UPS && cpu <= f64::max(0.001, PLAIN_WAKE_UPS * one);
    is_cheap.then_some(()).ok_or(said)
}

/// How often threads of this process that are there now were woken.
fn wake_ups() -> u64 {
    let of = |task: fs::DirEntry| -> Option<u64> {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let mut lines = status.lines();
        let field = |line: &str| {
            line.strip_prefix("voluntary_ctxt_switches:")?
                .trim()
                .parse()
                .ok()
        };
        lines.find_map(field)
    };
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    tasks.filter_map(|task| of(task.unwrap())).sum()
}
