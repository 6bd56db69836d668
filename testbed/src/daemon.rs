//! `pghot run` in a guest: started, waited for, asked and ended.

use std::time::Duration;

use serde_json::Value;

use crate::{Error, Output, Process, Status, Vm};

/// Verifying BPF programs takes an emulator some seconds, and many times that on a busy host.
const START_LIMIT: Duration = Duration::from_secs(180);

/// The daemon has to put the host's settings back.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// A running `pghot run`.
pub struct Daemon {
    vm: Vm,
    process: Process,
}

impl Daemon {
    /// Starts the daemon with these flags and waits until it answers.
    pub fn start(vm: &Vm, flags: &[&str]) -> Result<Daemon, Error> {
        Self::start_with(vm, flags, &[])
    }

    /// The same with environment variables.
    pub fn start_with(vm: &Vm, flags: &[&str], env: &[(&str, &str)]) -> Result<Daemon, Error> {
        let argv = [&["pghot", "run"], flags].concat();
        let mut process = vm.spawn_with(&argv, env, b"")?;
        let mut ended = false;
        vm.wait_until("pghot answers", START_LIMIT, || {
            ended = process.try_wait()?.is_some();
            Ok(ended || vm.exec(&["pghot", "status", "--json"])?.status == Status::Code(0))
        })?;
        if ended {
            return Err(Error::Unexpected {
                what: "`pghot run` ended at once, which".to_owned(),
                found: process.stderr()?,
            });
        }
        let vm = vm.clone();
        Ok(Daemon { vm, process })
    }

    /// What `pghot status` says.
    pub fn status(&self) -> Result<Value, Error> {
        let output = self.vm.exec(&["pghot", "status", "--json"])?.success()?;
        serde_json::from_str(&output.stdout).map_err(|_| Error::Unexpected {
            what: "output of `pghot status --json`".to_owned(),
            found: output.stdout,
        })
    }

    /// A number in the status, by its JSON pointer.
    pub fn number(&self, pointer: &str) -> Result<f64, Error> {
        number(&self.status()?, pointer)
    }

    /// Its process id in the guest.
    pub fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// SIGTERM; the daemon must end well.
    pub fn stop(mut self) -> Result<Output, Error> {
        self.process.signal(libc::SIGTERM)?;
        self.process.wait(STOP_LIMIT)?.success()
    }

    /// SIGKILL for it and its keeper: nobody is left who could tidy up.
    pub fn kill(mut self) -> Result<(), Error> {
        kill_with_keeper(&self.vm, &mut self.process)
    }

    /// The keeper's process id in the guest.
    pub fn keeper(&self) -> Result<i32, Error> {
        let pid = self.pid();
        let children = self.vm.read(&format!("/proc/{pid}/task/{pid}/children"))?;
        // Forked before anything else, so the first one.
        let first = children.split_whitespace().next();
        let found = first.and_then(|pid| pid.parse().ok());
        found.ok_or(Error::Unexpected {
            what: "the daemon's first child".to_owned(),
            found: children,
        })
    }

    /// Waits for its end, and returns what it wrote.
    pub fn ended(mut self) -> Result<Output, Error> {
        self.process.wait(STOP_LIMIT)
    }
}

/// Kills `pghot run`, wherever it is in its life, and its keeper if there is one already. The
/// keeper is stopped first, so that it has no moment in which the daemon is dead.
pub fn kill_with_keeper(vm: &Vm, process: &mut Process) -> Result<(), Error> {
    let pid = process.pid();
    let script = format!(
        "keeper=$(cat /proc/{pid}/task/{pid}/children); \
         [ -z \"$keeper\" ] || kill -STOP $keeper; kill -KILL {pid} $keeper"
    );
    vm.exec(&["sh", "-c", &script])?;
    process.kill().map(drop)
}

/// A number in a status or another JSON value, by its JSON pointer.
pub fn number(value: &Value, pointer: &str) -> Result<f64, Error> {
    let found = value.pointer(pointer).and_then(Value::as_f64);
    found.ok_or_else(|| Error::Unexpected {
        what: format!("the number at {pointer}"),
        found: format!("{value:#}"),
    })
}
