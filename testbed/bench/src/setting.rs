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
    /// What of the room for workloads the top tier has, in percent: with less, a workload of the
    /// same memory has less of it near.
    #[serde(default = "all_of_it")]
    pub room_percent: u32,
}

/// As cells are without a word about it.
pub const ALL_OF_IT: u32 = 100;

fn all_of_it() -> u32 {
    ALL_OF_IT
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
            room_percent,
        } = self;
        let slower = match dilation {
            1 => String::new(),
            by => format!("-slower{by}"),
        };
        let room = match *room_percent {
            ALL_OF_IT => String::new(),
            percent => format!("-room{percent}"),
        };
        format!("{kernel}-{workload}-{backing}-{system}-{accesses}x{threads}-{seed}{slower}{room}")
    }

    /// The workload, and its room if that is not the usual one.
    pub fn subject(&self) -> String {
        match self.room_percent {
            ALL_OF_IT => self.workload.clone(),
            percent => format!("{} in {percent} % of the room", self.workload),
        }
    }

    /// The same for people.
    pub fn title(&self) -> String {
        let run = match self.is_warm_up() {
            true => "warm-up".to_owned(),
            false => format!("run {}", self.seed),
        };
        let Setting {
            backing,
            system,
            kernel,
            ..
        } = self;
        let subject = self.subject();
        format!("{subject}, {backing}, kernel {kernel}, {run}: {system}")
    }

    /// Whether it only has the emulator translate all code: its result does not count.
    pub fn is_warm_up(&self) -> bool {
        self.seed == 0
    }
}
