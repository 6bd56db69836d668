//! Running guests that wait for their next test.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use anyhow::Result;
use pghot_testbed::{Kernel, Machine, Spec, Vm, guest_binaries};

/// Tools of the host that tests may run in the guest besides the binaries under test.
const TOOLS: &[&str] = &[
    "/bin/sh",
    "/bin/cat",
    "/bin/dmesg",
    "/bin/mount",
    "/bin/rm",
    "/bin/rmdir",
    "/bin/sleep",
    "/bin/stty",
    "/bin/true",
    "/bin/umount",
    "/sbin/insmod",
    "/sbin/mkfs.btrfs",
    "/sbin/mkfs.ext4",
    "/sbin/mkfs.xfs",
    "/sbin/mkswap",
    "/sbin/swapon",
    "/usr/bin/script",
    "/usr/bin/setfattr",
    "/usr/bin/setpriv",
    "/usr/bin/stat",
    "/usr/bin/tmux",
    // tmux runs in no other locale than one of UTF-8.
    "/usr/lib/locale/C.utf8/LC_CTYPE",
    "/usr/bin/truncate",
];

/// At most one idle guest per test thread, so that no more guests are alive than there are threads.
#[derive(Default)]
pub struct Pool {
    idle: Mutex<HashMap<ThreadId, Idle>>,
    took: Mutex<Vec<(Duration, String)>>,
}

struct Idle {
    machine: String,
    kernel: String,
    vm: Vm,
}

impl Pool {
    /// A guest for the calling thread: its last one if that fits, else one newly booted.
    pub fn take(&self, machine: &Machine, kernel: &Kernel, fresh: bool) -> Result<Vm> {
        let last = self.lock().remove(&thread::current().id());
        if let Some(idle) = last {
            if !fresh && idle.machine == machine.name && idle.kernel == kernel.name {
                return Ok(idle.vm);
            }
            // Before the next one boots.
            drop(idle);
        }
        let mut binaries = guest_binaries()?;
        binaries.extend(TOOLS.iter().map(Into::into));
        Ok(Vm::boot(&Spec::new(machine, kernel, &binaries))?)
    }

    /// Keeps a guest for the calling thread's next test.
    pub fn put_back(&self, machine: &Machine, kernel: &Kernel, vm: Vm) {
        let idle = Idle {
            machine: machine.name.clone(),
            kernel: kernel.name.clone(),
            vm,
        };
        self.lock().insert(thread::current().id(), idle);
    }

    /// Ends all guests that are left.
    pub fn clear(&self) {
        self.lock().clear();
    }

    /// Remembers how long a test took, both attempts together.
    pub fn note_time(&self, name: &str, took: Duration) {
        let times = self.took.lock();
        let mut times = times.unwrap_or_else(PoisonError::into_inner);
        times.push((took, name.to_owned()));
    }

    /// All tests with their times, longest first.
    pub fn times(&self) -> Vec<(Duration, String)> {
        let times = self.took.lock();
        let mut times = times.unwrap_or_else(PoisonError::into_inner).clone();
        times.sort_by(|a, b| b.cmp(a));
        times
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ThreadId, Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
