//! A process while it runs: its plan, its threads, and how far it has got.

use pghot_workloads::plan::{Pages, Plan};

use crate::kernel::scan::Scan;
use crate::machine::memory::Region;

/// A process of the scenario.
pub struct Task {
    /// Its number.
    pub number: usize,
    /// Its memory.
    pub region: Region,
    /// The node on whose CPUs its threads run.
    pub node: usize,
    /// The CPU of its first thread; the others follow.
    pub first_cpu: u32,
    /// Its threads.
    pub threads: Vec<Thread>,
    /// What it does.
    pub plan: Plan,
    /// How long each phase lasts at least, in ns; phases without an entry end with their last
    /// access.
    pub least_ns: Vec<u64>,
    /// When the phase began.
    pub began_ns: u64,
    /// The phase it is in.
    pub phase: usize,
    /// Accesses that the phase has left, of all threads.
    pub left: u64,
    /// When it had done all, in ns; none while it runs.
    pub ended_ns: Option<u64>,
    /// Where the kernel's scanner is.
    pub scan: Scan,
    /// Decides its accesses.
    pub seed: u64,
}

/// A thread.
pub struct Thread {
    /// How far it is ahead of the machine's clock, in ns: an access or a fault goes over the end
    /// of a slice.
    pub ahead_ns: f64,
    /// Which pages it accesses, in the exact mode.
    pub pages: Option<Pages>,
}

impl Task {
    /// Begins the phase `self.phase`, or ends.
    pub fn begin_phase(&mut self, now_ns: u64) {
        self.began_ns = now_ns;
        let Some(phase) = self.plan.phases.get(self.phase) else {
            self.ended_ns = Some(now_ns);
            return;
        };
        self.left = phase.accesses;
        for (thread, number) in self.threads.iter_mut().zip(0u64..) {
            // As in the workload itself, so that model and machine make the same accesses.
            let seed = self.seed ^ number << 48 ^ (self.phase as u64) << 32;
            thread.pages = Some(phase.pattern.pages(seed));
        }
    }

    /// Whether the phase has made its accesses and taken its time.
    pub fn is_phase_over(&self, now_ns: u64) -> bool {
        let least_ns = self.least_ns.get(self.phase).copied().unwrap_or(0);
        self.left == 0 && now_ns >= self.began_ns + least_ns
    }

    /// Whether it has something left to do.
    pub fn is_running(&self) -> bool {
        self.ended_ns.is_none()
    }
}
