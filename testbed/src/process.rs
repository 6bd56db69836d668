//! Processes inside the guest.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Error;
use crate::protocol::{Answer, Call};
use crate::qemu::Qemu;

/// The agent waits in short turns: host and guest need not agree on how long a second is.
const TURN: Duration = Duration::from_millis(500);

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

/// A finished process, or what is known of one so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// How it ended.
    pub status: Status,
    /// All it wrote to standard output.
    pub stdout: String,
    /// All it wrote to standard error.
    pub stderr: String,
}

impl Output {
    /// The output if the process exited with 0, else an error with what it wrote.
    pub fn success(self) -> Result<Self, Error> {
        match self.status {
            Status::Code(0) => Ok(self),
            _ => Err(Error::Unexpected {
                what: "exit of the process".to_owned(),
                found: format!("{:?}\n{}{}", self.status, self.stdout, self.stderr),
            }),
        }
    }
}

/// A process started by [`Vm::spawn`](crate::Vm::spawn). Dropping it leaves the process running.
pub struct Process {
    qemu: Arc<Qemu>,
    process: u32,
    pid: i32,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    /// How much of `stdout` was returned by [`Process::lines`].
    seen: usize,
}

impl Process {
    pub(crate) fn new(qemu: Arc<Qemu>, process: u32, pid: i32) -> Self {
        Self {
            qemu,
            process,
            pid,
            stdout: Vec::new(),
            stderr: Vec::new(),
            seen: 0,
        }
    }

    /// Its pid in the guest; also the number of its process group.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The complete lines it wrote to standard output since the last call.
    pub fn lines(&mut self) -> Result<Vec<String>, Error> {
        self.fetch()?;
        let new = &self.stdout[self.seen..];
        let complete = new
            .iter()
            .rposition(|&byte| byte == b'\n')
            .map_or(0, |end| end + 1);
        let lines = String::from_utf8_lossy(&new[..complete])
            .lines()
            .map(str::to_owned)
            .collect();
        self.seen += complete;
        Ok(lines)
    }

    /// Everything it wrote to standard error so far.
    pub fn stderr(&mut self) -> Result<String, Error> {
        self.fetch()?;
        Ok(String::from_utf8_lossy(&self.stderr).into_owned())
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: i32) -> Result<(), Error> {
        self.qemu
            .call(Call::Kill {
                pid: self.pid,
                signal,
            })
            .map(drop)
    }

    /// How it ended, if it has.
    pub fn try_wait(&self) -> Result<Option<Status>, Error> {
        self.poll(Duration::ZERO)
    }

    /// The same, but waits for the end for a while: shorter than a call may take.
    pub fn wait_a_moment(&self) -> Result<Option<Status>, Error> {
        self.poll(TURN / self.qemu.dilation())
    }

    /// Waits for the end of the process, at most `limit` of guest time, and returns all it wrote.
    pub fn wait(&mut self, limit: Duration) -> Result<Output, Error> {
        self.wait_on_host(limit * self.qemu.dilation())
    }

    /// The same with a limit in host time.
    pub(crate) fn wait_on_host(&mut self, limit: Duration) -> Result<Output, Error> {
        let end = Instant::now() + limit;
        let status = loop {
            let left = end.saturating_duration_since(Instant::now());
            if let Some(status) = self.poll(left.min(TURN) / self.qemu.dilation())? {
                break status;
            }
            if left.is_zero() {
                let what = format!("end of process {}", self.pid);
                return Err(Error::Never { what, limit });
            }
        };
        self.fetch()?;
        Ok(Output {
            status,
            stdout: String::from_utf8_lossy(&self.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&self.stderr).into_owned(),
        })
    }

    /// Kills the process and everything in its group, and waits for its end.
    pub fn kill(&mut self) -> Result<Output, Error> {
        let killed = self.qemu.call(Call::Kill {
            pid: -self.pid,
            signal: libc::SIGKILL,
        });
        // One that has ended by itself has no group any more.
        if self.try_wait()?.is_none() {
            killed?;
        }
        self.wait_on_host(self.qemu.remaining())
    }

    fn poll(&self, timeout: Duration) -> Result<Option<Status>, Error> {
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        match self.qemu.call(Call::Wait {
            process: self.process,
            timeout_ms,
        })? {
            Answer::Running => Ok(None),
            Answer::Exited(code) => Ok(Some(Status::Code(code))),
            Answer::Signaled(signal) => Ok(Some(Status::Signal(signal))),
            other => Err(Error::unexpected("answer to wait", &other)),
        }
    }

    fn fetch(&mut self) -> Result<(), Error> {
        match self.qemu.call(Call::Output {
            process: self.process,
        })? {
            Answer::Output { stdout, stderr } => {
                self.stdout.extend(stdout.0);
                self.stderr.extend(stderr.0);
                Ok(())
            }
            other => Err(Error::unexpected("answer to output", &other)),
        }
    }
}
