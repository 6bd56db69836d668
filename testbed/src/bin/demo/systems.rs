//! The systems compared: what promotes pages while the workload runs, and how to start and stop it.

use std::time::Duration;

use pghot_testbed::{Error, Process, Status, Vm};
use serde::{Deserialize, Serialize};

/// Switch of the kernel's NUMA balancing: 0 off, 2 promotion by hint faults.
const NUMA_BALANCING: &str = "/proc/sys/kernel/numa_balancing";

/// Loading and verifying the BPF programs is slow in an emulator.
const START_LIMIT: Duration = Duration::from_secs(40);

/// At the first hint fault, as `numa_balancing=2` promotes: otherwise two policies are compared and
/// not two ways to move pages. The tables of the kernel series do the same. The longest window,
/// because an emulated move takes 70 us and the last page of 65,536 would go cold in the queue. Hint
/// faults alone, because they see all of this memory, as the kernel does.
const PGHOT: &[&str] = &[
    "pghot",
    "run",
    "--freq-threshold",
    "1",
    "--freq-window-ms",
    "3968",
    "--enabled-sources",
    "0x1",
];

/// The daemon has to put the host's settings back.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// One way to promote hot pages. Another one is another variant, and nothing else changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum System {
    /// Nothing moves any page.
    None,
    /// The stock kernel: `numa_balancing=2` with its defaults.
    Numab2,
    /// `pghot run`, promoting at the first fault.
    Pghot,
}

impl System {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 3] = [Self::None, Self::Numab2, Self::Pghot];

    /// Its name in `demo.json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Numab2 => "numab2",
            Self::Pghot => "pghot",
        }
    }

    /// Its name for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::None => "no balancing",
            Self::Numab2 => "numa_balancing=2",
            Self::Pghot => "pghot",
        }
    }

    /// How it is switched on, for people.
    pub fn how(self) -> String {
        match self {
            Self::None => "numa_balancing=0".to_owned(),
            Self::Numab2 => "kernel defaults".to_owned(),
            Self::Pghot => PGHOT.join(" "),
        }
    }

    /// How long the workload runs at most, if it is not all promoted before. Where nothing ever is,
    /// long enough to know what the workload's thread spends in the kernel by itself.
    pub fn max_run_s(self) -> u32 {
        match self {
            Self::None => 2,
            Self::Numab2 | Self::Pghot => 13,
        }
    }

    /// Switches the system on and returns when it works.
    pub fn start(self, vm: &Vm) -> Result<Started, Error> {
        // Through 0 always: it makes the kernel forget the hot threshold it adapted before.
        vm.write(NUMA_BALANCING, "0")?;
        let daemon = match self {
            Self::None => None,
            Self::Numab2 => {
                vm.write(NUMA_BALANCING, "2")?;
                None
            }
            Self::Pghot => Some(start_daemon(vm)?),
        };
        Ok(Started { daemon })
    }
}

/// A system that is switched on.
pub struct Started {
    daemon: Option<Process>,
}

impl Started {
    /// CPU time that the system's daemon has used, if it has one.
    pub fn daemon_cpu_s(&self, vm: &Vm) -> Result<Option<f64>, Error> {
        let Some(daemon) = &self.daemon else {
            return Ok(None);
        };
        let path = format!("/proc/{}/stat", daemon.pid());
        let stat = vm.read(&path)?;
        let unexpected = || Error::Unexpected {
            what: path,
            found: stat.clone(),
        };
        cpu_s_of(&stat).map(Some).ok_or_else(unexpected)
    }

    /// Counters of the system's own, as JSON.
    pub fn status(&self, vm: &Vm) -> Result<Option<serde_json::Value>, Error> {
        if self.daemon.is_none() {
            return Ok(None);
        }
        let output = vm.exec(&["pghot", "status", "--json"])?.success()?;
        let not_json = |_| Error::Unexpected {
            what: "output of `pghot status --json`".to_owned(),
            found: output.stdout.clone(),
        };
        serde_json::from_str(&output.stdout)
            .map(Some)
            .map_err(not_json)
    }

    /// Switches it off and leaves the kernel without balancing.
    pub fn stop(self, vm: &Vm) -> Result<(), Error> {
        if let Some(mut daemon) = self.daemon {
            daemon.signal(libc::SIGTERM)?;
            daemon.wait(STOP_LIMIT)?.success()?;
        }
        vm.write(NUMA_BALANCING, "0")
    }
}

/// Starts `pghot run` and waits until it answers.
fn start_daemon(vm: &Vm) -> Result<Process, Error> {
    let mut daemon = vm.spawn(PGHOT)?;
    let mut ended = false;
    vm.wait_until("pghot answers `pghot status`", START_LIMIT, || {
        ended = daemon.try_wait()?.is_some();
        Ok(ended || vm.exec(&["pghot", "status", "--json"])?.status == Status::Code(0))
    })?;
    if ended {
        return Err(Error::Unexpected {
            what: "`pghot run`: it ended at once, and".to_owned(),
            found: daemon.stderr()?,
        });
    }
    Ok(daemon)
}

/// User and system time from `/proc/PID/stat`: fields 14 and 15, in ticks of USER_HZ.
fn cpu_s_of(stat: &str) -> Option<f64> {
    const USER_HZ: f64 = 100.0;
    // The second field is the name in parentheses and may itself hold spaces and parentheses.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / USER_HZ)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_an_odd_name() {
        let stat = "42 (a) b) S 1 1 1 0 -1 4194560 100 0 0 0 130 70 0 0 20 0 3 0 99 1 1";
        assert_eq!(cpu_s_of(stat), Some(2.0));
        assert_eq!(cpu_s_of("42 (a"), None);
    }
}
