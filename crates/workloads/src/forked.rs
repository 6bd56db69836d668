//! Children by fork that are made ready one after the other, begin together, and tell what they
//! did.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A child of this process; killed, if it still runs, and reaped when dropped.
pub struct Forked {
    pid: libc::pid_t,
    channel: BufReader<UnixStream>,
}

/// The child's side of the conversation.
pub struct Parent(BufReader<UnixStream>);

impl Forked {
    /// Forks a child that does `life` and exits. To be called before there are threads.
    pub fn spawn<T: Serialize>(life: impl FnOnce(&mut Parent) -> Result<T>) -> Result<Forked> {
        let (ours, theirs) = UnixStream::pair().context("cannot make a pair of sockets")?;
        // SAFETY: the process has one thread, so the child may go on running any code; it never
        // returns from here.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()).context("cannot fork"),
            0 => {
                drop(ours);
                // SAFETY: no memory is involved. The child dies with its parent.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                let mut parent = Parent(BufReader::new(theirs));
                let result = life(&mut parent).map_err(|error| format!("{error:#}"));
                let told = send(&mut parent.0, &result);
                // SAFETY: ends the child at once, without running anything of the parent's.
                unsafe { libc::_exit(told.is_err().into()) }
            }
            pid => Ok(Forked {
                pid,
                channel: BufReader::new(ours),
            }),
        }
    }

    /// The child's process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Waits for what the child says next: in [`Parent::say_and_wait`], or at its end.
    pub fn hear<T: DeserializeOwned>(&mut self) -> Result<T> {
        let heard: Result<T, String> = receive(&mut self.channel)
            .with_context(|| format!("process {} ended without a word", self.pid))?;
        heard.map_err(|error| anyhow!("process {}: {error}", self.pid))
    }

    /// Lets the child go on from [`Parent::say_and_wait`].
    pub fn go(&mut self) -> Result<()> {
        send(&mut self.channel, &())
    }
}

impl Parent {
    /// Says something, and waits until the parent lets this child go on.
    pub fn say_and_wait(&mut self, what: &impl Serialize) -> Result<()> {
        send(&mut self.0, &Ok::<_, String>(what))?;
        receive(&mut self.0)
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        // SAFETY: our own child, not reaped before, so the id cannot be another process's.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

/// One JSON text in a line.
fn send(to: &mut BufReader<UnixStream>, message: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(message).context("cannot encode a message")?;
    line.push(b'\n');
    to.get_mut()
        .write_all(&line)
        .context("cannot write to the other process")
}

fn receive<T: DeserializeOwned>(from: &mut BufReader<UnixStream>) -> Result<T> {
    let mut line = String::new();
    from.read_line(&mut line)
        .context("cannot read from the other process")?;
    serde_json::from_str(&line).context("the other process says nothing sensible")
}
