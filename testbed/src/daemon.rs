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

    /// SIGKILL: no chance to tidy up.
    pub fn kill(mut self) -> Result<(), Error> {
        self.process.kill().map(drop)
    }
}

/// A number in a status or another JSON value, by its JSON pointer.
pub fn number(value: &Value, pointer: &str) -> Result<f64, Error> {
    let found = value.pointer(pointer).and_then(Value::as_f64);
    found.ok_or_else(|| Error::Unexpected {
        what: format!("the number at {pointer}"),
        found: format!("{value:#}"),
    })
}
