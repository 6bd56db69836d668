//! One QEMU process, and calls to the agent inside.
//!
//! QEMU's standard input and output are the guest's second serial line, on which the agent talks;
//! when QEMU ends, for whatever reason, that line ends too, and every pending call fails at once.
//! The first serial line is the console; it goes to a file that is read only to explain a failure.

use std::collections::HashMap;
use std::io::BufReader;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, thread};

use tempfile::TempDir;

use crate::Error;
use crate::kernel::cache_dir;
use crate::protocol::{self, Answer, Call, HELLO, Reply, Request};

/// Lines of the console shown with a failure: a panic with its trace takes about fifty.
const CONSOLE_TAIL_LINES: usize = 60;

/// A clock for the guest that is slower than the host's; see `testbed/dilate`.
pub(crate) struct Dilation {
    /// How many times slower.
    pub(crate) by: u32,
    /// What makes it so.
    pub(crate) library: PathBuf,
}

/// A running guest. Killed when dropped.
pub(crate) struct Qemu {
    child: Mutex<Child>,
    to_agent: Mutex<ChildStdin>,
    pending: Arc<Mutex<Pending>>,
    deadline: Mutex<Instant>,
    /// How many times slower than the host's the guest's clock runs.
    dilation: u32,
    /// Holds the console and QEMU's own messages.
    dir: Arc<TempDir>,
}

/// Calls under way. `closed` when no reply can come any more.
#[derive(Default)]
struct Pending {
    last_id: u64,
    waiting: HashMap<u64, Sender<Result<Answer, String>>>,
    closed: bool,
}

/// The emulator that `setup.sh` fetched because the host's is too old, else the host's.
fn emulator() -> Command {
    let fetched = cache_dir().join("qemu");
    let program = fetched.join("bin/qemu-system-x86_64");
    if !program.exists() {
        return Command::new("qemu-system-x86_64");
    }
    let mut command = Command::new(program);
    for firmware in ["share/qemu", "share/seabios"] {
        command.arg("-L").arg(fetched.join(firmware));
    }
    command
}

/// What the emulator calls itself, such as `QEMU emulator version 10.0.2`.
pub fn emulator_version() -> Result<String, Error> {
    let output = emulator().arg("--version").output();
    let output = output.map_err(Error::Spawn)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().unwrap_or("QEMU");
    Ok(line.split(" (").next().unwrap_or(line).to_owned())
}

impl Qemu {
    /// Starts QEMU with `options` and waits for the agent's first word, at most for the first
    /// limit; the second is that of the guest's life. Both are guest time.
    pub(crate) fn start(
        options: &[String],
        dilation: Option<&Dilation>,
        dir: Arc<TempDir>,
        (boot_limit, limit): (Duration, Duration),
    ) -> Result<Self, Error> {
        let by = dilation.map_or(1, |dilation| dilation.by);
        let limit = limit * by;
        let deadline = Instant::now() + limit;
        let messages = dir.path().join("qemu.log");
        let log = fs::File::create(&messages).map_err(Error::io(&messages))?;
        let mut command = emulator();
        command
            .args(["-no-reboot", "-nodefaults", "-no-user-config"])
            .args(["-display", "none", "-monitor", "none"])
            .arg("-serial")
            .arg(format!("file:{}", dir.path().join("console.log").display()))
            .args([
                "-chardev",
                "stdio,id=agent,signal=off",
                "-serial",
                "chardev:agent",
            ])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log);
        if let Some(Dilation { by, library }) = dilation {
            command.env("LD_PRELOAD", library);
            command.env("PGHOT_DILATION", by.to_string());
            // By default the RTC follows the host's wall clock, which is not slowed.
            command.args(["-rtc", "clock=vm"]);
        }

        let pending = Arc::new(Mutex::new(Pending::default()));
        let hello = lock(&pending).register(HELLO);
        let mut child = spawn_with_reader(command, Arc::clone(&pending))?;
        let to_agent = child.stdin.take().ok_or_else(|| Error::Unexpected {
            what: "QEMU's standard input".to_owned(),
            found: "none".to_owned(),
        })?;
        let qemu = Self {
            child: Mutex::new(child),
            to_agent: Mutex::new(to_agent),
            pending,
            deadline: Mutex::new(deadline),
            dilation: by,
            dir,
        };
        qemu.reply(&hello, "boot", limit.min(boot_limit * by))?;
        Ok(qemu)
    }

    /// Gives the guest `limit` of its own time from now; every later call fails when it is over.
    pub(crate) fn set_limit(&self, limit: Duration) {
        *lock(&self.deadline) = Instant::now() + limit * self.dilation;
    }

    /// How many times slower than the host's the guest's clock runs.
    pub(crate) fn dilation(&self) -> u32 {
        self.dilation
    }

    /// What is left of the limit, in host time.
    pub(crate) fn remaining(&self) -> Duration {
        lock(&self.deadline).saturating_duration_since(Instant::now())
    }

    /// Asks the agent and waits for its answer.
    pub(crate) fn call(&self, call: Call) -> Result<Answer, Error> {
        let during = describe(&call);
        if self.remaining().is_zero() {
            // Nothing is sent to a guest that may have stopped reading: the write could block.
            return Err(self.hang(&during, Duration::ZERO));
        }
        let (id, answer) = {
            let mut pending = lock(&self.pending);
            pending.last_id += 1;
            let id = pending.last_id;
            (id, pending.register(id))
        };
        // A failing write means that QEMU is gone, which the reader tells better.
        let _ = protocol::send(&mut *lock(&self.to_agent), &Request { id, call });
        self.reply(&answer, &during, self.remaining())
    }

    /// QEMU's process id on the host.
    pub(crate) fn host_pid(&self) -> u32 {
        lock(&self.child).id()
    }

    /// Waits for QEMU to end by itself.
    pub(crate) fn wait_end(&self) -> Result<(), Error> {
        let limit = self.remaining();
        let end = Instant::now() + limit;
        while lock(&self.child).try_wait().ok().flatten().is_none() {
            if Instant::now() >= end {
                return Err(self.hang("power-off", limit));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn reply(
        &self,
        answer: &mpsc::Receiver<Result<Answer, String>>,
        during: &str,
        limit: Duration,
    ) -> Result<Answer, Error> {
        match answer.recv_timeout(limit) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(reason)) => Err(Error::Refused {
                call: during.to_owned(),
                reason,
            }),
            Err(RecvTimeoutError::Timeout) => Err(self.hang(during, limit)),
            Err(RecvTimeoutError::Disconnected) => Err(Error::Gone {
                during: during.to_owned(),
                reason: self.end_reason(),
                console: self.console_tail(),
            }),
        }
    }

    fn hang(&self, during: &str, limit: Duration) -> Error {
        Error::Hang {
            during: during.to_owned(),
            limit,
            console: self.console_tail(),
        }
    }

    /// Why the agent's line ended. QEMU closes it on its way out, so its status is a moment away.
    fn end_reason(&self) -> String {
        for _ in 0..100 {
            if let Ok(Some(status)) = lock(&self.child).try_wait() {
                return format!("QEMU ended: {}", describe_exit(status));
            }
            thread::sleep(Duration::from_millis(10));
        }
        "its line to the host broke, QEMU still runs".to_owned()
    }

    /// The end of the console and what QEMU itself had to say.
    fn console_tail(&self) -> String {
        let read = |name| fs::read(self.dir.path().join(name)).unwrap_or_default();
        let console = String::from_utf8_lossy(&read("console.log")).into_owned();
        let messages = String::from_utf8_lossy(&read("qemu.log")).into_owned();
        let lines: Vec<&str> = console.lines().chain(messages.lines()).collect();
        lines[lines.len().saturating_sub(CONSOLE_TAIL_LINES)..].join("\n")
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Both fail only if QEMU has already been waited for.
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Pending {
    fn register(&mut self, id: u64) -> mpsc::Receiver<Result<Answer, String>> {
        let (answer, receiver) = mpsc::channel();
        // When closed, dropping the sender here is what tells the caller.
        if !self.closed {
            self.waiting.insert(id, answer);
        }
        receiver
    }
}

/// Starts `command` from the thread that will read its replies. Linux sends the parent-death signal
/// when the *thread* that forked ends, and this one lives exactly as long as QEMU's output.
fn spawn_with_reader(mut command: Command, pending: Arc<Mutex<Pending>>) -> Result<Child, Error> {
    let die_with_parent = || {
        // SAFETY: prctl is async-signal-safe and this option touches no memory.
        match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: between fork and exec the closure only makes that one system call.
    unsafe { command.pre_exec(die_with_parent) };

    let (started, child) = mpsc::channel();
    thread::spawn(move || {
        let spawned = command
            .spawn()
            .map(|mut child| (child.stdout.take(), child));
        match spawned {
            Ok((Some(replies), child)) => {
                // If nobody waits for the child any more, dropping it here ends the story too.
                if started.send(Ok(child)).is_ok() {
                    dispatch(replies, &pending);
                }
            }
            Ok((None, _)) => {}
            Err(error) => drop(started.send(Err(error))),
        }
        let mut pending = lock(&pending);
        pending.closed = true;
        pending.waiting.clear();
    });
    match child.recv() {
        Ok(spawned) => spawned.map_err(Error::Spawn),
        Err(_) => Err(Error::Spawn(std::io::ErrorKind::BrokenPipe.into())),
    }
}

/// Hands each reply to the call it belongs to, until the line ends or cannot be trusted any more.
fn dispatch(replies: ChildStdout, pending: &Mutex<Pending>) {
    let mut replies = BufReader::new(replies);
    while let Ok(Some(reply)) = protocol::receive::<Reply>(&mut replies) {
        if let Some(caller) = lock(pending).waiting.remove(&reply.id) {
            // The caller may have given up.
            let _ = caller.send(reply.result);
        }
    }
}

/// The call as an error message names it: without the data it carries.
fn describe(call: &Call) -> String {
    match call {
        Call::Spawn { argv, .. } => format!("spawn of `{}`", argv.join(" ")),
        Call::Output { process } => format!("output of process #{process}"),
        Call::Wait { process, .. } => format!("wait for process #{process}"),
        Call::Kill { pid, signal } => format!("signal {signal} to {pid}"),
        Call::Read { path, .. } => format!("read of {path}"),
        Call::Write { path, .. } => format!("write to {path}"),
        Call::Exists { path } => format!("look at {path}"),
        Call::List { path } => format!("list of {path}"),
        Call::Mkdir { path } => format!("mkdir of {path}"),
        Call::Sweep => "sweep of processes".to_owned(),
        Call::PowerOff => "power-off".to_owned(),
    }
}

/// With `panic=-1` and `-no-reboot`, a guest that panics makes QEMU exit as if all were well.
fn describe_exit(status: ExitStatus) -> String {
    if status.success() {
        "the guest powered off or panicked".to_owned()
    } else {
        status.to_string()
    }
}

/// A poisoned lock means that another test thread panicked; the data is a queue and stays usable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder for one guest's files.
pub(crate) fn guest_dir() -> Result<TempDir, Error> {
    tempfile::Builder::new()
        .prefix("pghot-vm-")
        .tempdir()
        .map_err(Error::io(&std::env::temp_dir()))
}
