//! Processes the agent started for the host, their output, and their end.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, thread};

use pghot_testbed::protocol::{Answer, Bytes};

/// How long after a process's end its output is waited for. It ends at once, unless a grandchild
/// has inherited it.
const OUTPUT_GRACE: Duration = Duration::from_millis(300);

/// All processes started so far, by the number the host knows them by.
#[derive(Default)]
pub struct Processes(Mutex<Table>);

#[derive(Default)]
struct Table {
    last: u32,
    processes: HashMap<u32, Arc<Process>>,
}

/// One process: its state, and a signal for those who wait for a change of it.
#[derive(Default)]
struct Process {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    /// Streams that have ended, of two.
    closed: u32,
    ended: Option<(ExitStatus, Instant)>,
}

impl Processes {
    /// Starts a process and the threads that follow it.
    pub fn spawn(
        &self,
        argv: &[String],
        env: Vec<(String, String)>,
        stdin: Vec<u8>,
    ) -> io::Result<Answer> {
        let (program, args) = argv
            .split_first()
            .ok_or(io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut child = Command::new(program)
            .args(args)
            .env("PATH", "/bin")
            .envs(env)
            .current_dir("/")
            .process_group(0)
            .stdin(if stdin.is_empty() {
                Stdio::null()
            } else {
                Stdio::piped()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let pid = child.id();
        let process = Arc::new(Process::default());
        process.follow(&mut child, stdin);
        let ending = Arc::clone(&process);
        thread::spawn(move || ending.reap(child));

        let mut table = lock(&self.0);
        table.last += 1;
        let number = table.last;
        table.processes.insert(number, process);
        Ok(Answer::Spawned {
            process: number,
            pid: pid.cast_signed(),
        })
    }

    /// The output not yet told.
    pub fn output(&self, number: u32) -> io::Result<Answer> {
        let process = self.get(number)?;
        let mut state = lock(&process.state);
        let stdout = Bytes(std::mem::take(&mut state.stdout));
        let stderr = Bytes(std::mem::take(&mut state.stderr));
        Ok(Answer::Output { stdout, stderr })
    }

    /// Waits for the process's end and that of its output.
    pub fn wait(&self, number: u32, timeout: Duration) -> io::Result<Answer> {
        let process = self.get(number)?;
        let until = Instant::now() + timeout;
        let mut state = lock(&process.state);
        loop {
            let now = Instant::now();
            let wake = match state.ended {
                Some((status, at)) if state.closed == 2 || now >= at + OUTPUT_GRACE => {
                    return Ok(match status.signal() {
                        Some(signal) => Answer::Signaled(signal),
                        None => Answer::Exited(status.code().unwrap_or(-1)),
                    });
                }
                Some((_, at)) => until.min(at + OUTPUT_GRACE),
                None => until,
            };
            if now >= until {
                return Ok(Answer::Running);
            }
            let turn = process.changed.wait_timeout(state, wake - now);
            (state, _) = turn.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Kills every process but kernel threads and the agent, until there is none, and forgets all.
    pub fn sweep(&self) -> io::Result<Answer> {
        let mut names = Vec::new();
        loop {
            let left = user_processes()?;
            if left.is_empty() {
                break;
            }
            for (pid, comm) in left {
                // It may have ended in between.
                let _ = kill(pid, libc::SIGKILL);
                let name = format!("{pid} {comm}");
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            thread::sleep(Duration::from_millis(5));
        }
        lock(&self.0).processes.clear();
        Ok(Answer::Names(names))
    }

    fn get(&self, number: u32) -> io::Result<Arc<Process>> {
        let unknown = || io::Error::other(format!("there is no process #{number}"));
        lock(&self.0)
            .processes
            .get(&number)
            .cloned()
            .ok_or_else(unknown)
    }
}

impl Process {
    /// Feeds the child and collects what it writes, each stream in a thread of its own.
    fn follow(self: &Arc<Self>, child: &mut Child, input: Vec<u8>) {
        if let Some(mut stdin) = child.stdin.take() {
            // A child may end without having read all of it.
            thread::spawn(move || drop(stdin.write_all(&input)));
        }
        let stdout = child
            .stdout
            .take()
            .map(|pipe| Box::new(pipe) as Box<dyn Read + Send>);
        let stderr = child
            .stderr
            .take()
            .map(|pipe| Box::new(pipe) as Box<dyn Read + Send>);
        self.collect(stdout, |state| &mut state.stdout);
        self.collect(stderr, |state| &mut state.stderr);
    }

    fn collect(
        self: &Arc<Self>,
        pipe: Option<Box<dyn Read + Send>>,
        buffer: fn(&mut State) -> &mut Vec<u8>,
    ) {
        let process = Arc::clone(self);
        thread::spawn(move || {
            let mut chunk = [0; 4096];
            if let Some(mut pipe) = pipe {
                while let Ok(len @ 1..) = pipe.read(&mut chunk) {
                    buffer(&mut lock(&process.state)).extend(&chunk[..len]);
                }
            }
            lock(&process.state).closed += 1;
            process.changed.notify_all();
        });
    }

    fn reap(&self, mut child: Child) {
        // Fails only for a child that was waited for already, and nobody else does.
        if let Ok(status) = child.wait() {
            lock(&self.state).ended = Some((status, Instant::now()));
            self.changed.notify_all();
        }
    }
}

/// kill(2).
pub fn kill(pid: i32, signal: i32) -> io::Result<Answer> {
    // SAFETY: takes two numbers.
    match unsafe { libc::kill(pid, signal) } {
        0 => Ok(Answer::Done),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Pid and name of every living process that is neither kernel thread, init, nor the agent.
fn user_processes() -> io::Result<Vec<(i32, String)>> {
    const KTHREADD: i32 = 2;
    let own = [1, KTHREADD, std::process::id().cast_signed()];
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(pid) = entry?.file_name().to_string_lossy().parse::<i32>() else {
            continue;
        };
        // "pid (comm) state ppid ...", where comm may hold anything.
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
            continue;
        };
        let Some((comm, rest)) = stat
            .split_once('(')
            .and_then(|(_, rest)| rest.rsplit_once(") "))
        else {
            continue;
        };
        let mut fields = rest.split(' ');
        let ended = matches!(fields.next(), Some("Z" | "X"));
        let parent = fields.next().and_then(|field| field.parse().ok());
        if !ended && !own.contains(&pid) && parent != Some(KTHREADD) {
            found.push((pid, comm.to_owned()));
        }
    }
    Ok(found)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
