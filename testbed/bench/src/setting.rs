//! What a cell runs, and its name.

use serde::{Deserialize, Serialize};

/// What a cell runs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Setting {
    /// See [`crate::workloads::all`].
    pub workload: String,
    /// See [`crate::systems::SYSTEMS`].
    pub system: String,
    /// Of the accesses; 0 to warm up.
    pub seed: u64,
    /// Accesses of all threads.
    pub accesses: u64,
    /// Threads of the workload.
    pub threads: u32,
    /// Its kind of memory.
    pub backing: String,
    /// The machine's name.
    pub machine: String,
    /// The kernel's name in kernels.toml.
    pub kernel: String,
    /// How many times slower than the host's the guest's clock runs.
    pub dilation: u32,
}

impl Setting {
    /// Its name, in files and messages.
    pub fn name(&self) -> String {
        let Setting {
            machine: _,
            kernel,
            workload,
            backing,
            system,
            accesses,
            threads,
            seed,
            dilation,
        } = self;
        let slower = match dilation {
            1 => String::new(),
            by => format!("-slower{by}"),
        };
        format!("{kernel}-{workload}-{backing}-{system}-{accesses}x{threads}-{seed}{slower}")
    }

    /// The same for people.
    pub fn title(&self) -> String {
        let run = match self.is_warm_up() {
            true => "warm-up".to_owned(),
            false => format!("run {}", self.seed),
        };
        let Setting {
            workload,
            backing,
            system,
            kernel,
            ..
        } = self;
        format!("{workload}, {backing}, kernel {kernel}, {run}: {system}")
    }

    /// Whether it only has the emulator translate all code: its result does not count.
    pub fn is_warm_up(&self) -> bool {
        self.seed == 0
    }
}
