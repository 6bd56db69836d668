//! The cells of a comparison, and a folder that keeps those that are done, so that an interrupted
//! run goes on where it was.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::cell::Outcome;
use crate::kernel_tables::KernelTables;
use crate::setting::Setting;
use crate::systems;
use crate::workloads::{self, Workload};

/// What is compared.
#[derive(Debug, Clone)]
pub struct Matrix {
    /// The machine of all cells.
    pub machine: String,
    /// See [`workloads::all`].
    pub workloads: Vec<String>,
    /// Systems under test.
    pub systems: Vec<String>,
    /// Kinds of memory: each workload runs with those that it can have, or with its own first one
    /// if it can have none of them.
    pub backings: Vec<String>,
    /// Names in kernels.toml.
    pub kernels: Vec<String>,
    /// Runs of each.
    pub seeds: u64,
    /// The seed of the first of them.
    pub first_seed: u64,
    /// Whether a run of each comes first that does not count.
    pub warms_up: bool,
    /// About how long each run takes by the guest's clock, without balancing, in s: what a
    /// workload makes of it follows from [`Workload::per_host_s`].
    pub guest_s: u64,
    /// Threads of the workload.
    pub threads: u32,
    /// How many times slower than the host's the guests' clocks run.
    pub dilation: u32,
    /// The top tier's room, in percent of the usual one. Without balancing only the first is run:
    /// what it takes with another follows from where the pages lie.
    pub rooms_percent: Vec<u32>,
}

impl Matrix {
    /// All cells. Systems follow each other for the same workload, so that whatever else the host
    /// does meanwhile hits all of them; and whoever goes first changes, so that no one always
    /// follows the same other.
    pub fn cells(&self) -> Vec<Setting> {
        let workloads = self.workloads.iter();
        let workloads: Vec<Workload> = workloads.filter_map(|name| workloads::find(name)).collect();
        let mut cells = Vec::new();
        for kernel in &self.kernels {
            let warm_up = self.warms_up.then_some(0).into_iter();
            for seed in warm_up.chain(self.first_seed..self.first_seed + self.seeds) {
                for workload in &workloads {
                    for backing in self.backings_of(workload) {
                        cells.extend(self.cells_in_turn(kernel, seed, workload, &backing));
                    }
                }
            }
        }
        cells
    }

    /// Those that differ by their systems alone, and their rooms.
    fn cells_in_turn(
        &self,
        kernel: &str,
        seed: u64,
        workload: &Workload,
        backing: &str,
    ) -> Vec<Setting> {
        let systems = self.systems.iter().cycle();
        let systems = systems.skip(seed.saturating_sub(1) as usize);
        let systems = systems.take(self.systems.len());
        let mut cells = Vec::new();
        for system in systems.filter(|system| can_be(workload, system)) {
            for room_percent in self.rooms_of(system) {
                cells.push(Setting {
                    workload: workload.name.to_owned(),
                    system: system.to_owned(),
                    seed,
                    accesses: workload.per_host_s * self.guest_s * u64::from(self.dilation),
                    threads: self.threads,
                    backing: backing.to_owned(),
                    machine: self.machine.clone(),
                    kernel: kernel.to_owned(),
                    dilation: self.dilation,
                    room_percent: *room_percent,
                });
            }
        }
        cells
    }

    fn rooms_of(&self, system: &str) -> &[u32] {
        match system {
            "none" => self.rooms_percent.get(..1).unwrap_or_default(),
            _ => &self.rooms_percent,
        }
    }

    fn backings_of(&self, workload: &Workload) -> Vec<String> {
        let can = workload.backings;
        let wanted = self.backings.iter();
        let wanted = wanted.filter(|wanted| can.contains(&wanted.as_str()));
        match wanted.cloned().collect::<Vec<_>>() {
            none if none.is_empty() => can.iter().take(1).map(ToString::to_string).collect(),
            some => some,
        }
    }
}

/// Not every workload's memory can be in the top tier from the start.
fn can_be(workload: &Workload, system: &str) -> bool {
    !systems::is_bound(system) || workload.has_bound
}

/// The folder of finished cells.
#[derive(Debug, Clone)]
pub struct Store(PathBuf);

impl Store {
    /// Opens it; makes it if need be.
    pub fn open(folder: &Path) -> Result<Store> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Store(folder.to_owned()))
    }

    fn path(&self, setting: &Setting) -> PathBuf {
        self.0.join(setting.name() + ".json")
    }

    /// A finished cell. One that cannot be read is as good as none.
    pub fn get(&self, setting: &Setting) -> Option<Outcome> {
        let bytes = fs::read(self.path(setting)).ok()?;
        let outcome: Outcome = serde_json::from_slice(&bytes).ok()?;
        (outcome.setting == *setting).then_some(outcome)
    }

    /// Keeps a finished cell.
    pub fn put(&self, outcome: &Outcome) -> Result<()> {
        write(&self.path(&outcome.setting), outcome)
    }

    /// The tables of a kernel, if they were measured.
    pub fn kernel_tables(&self, kernel: &str) -> Option<KernelTables> {
        let bytes = fs::read(self.kernel_path(kernel)).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Keeps the tables of a kernel.
    pub fn put_kernel_tables(&self, tables: &KernelTables) -> Result<()> {
        write(&self.kernel_path(&tables.kernel), tables)
    }

    fn kernel_path(&self, kernel: &str) -> PathBuf {
        self.0.join(format!("{kernel}-kernel-tables.json"))
    }
}

/// Writes a file in one piece: whoever finds it finds all of it.
fn write(path: &Path, content: &impl Serialize) -> Result<()> {
    let unfinished = path.with_extension("part");
    let write = || {
        fs::write(&unfinished, serde_json::to_vec(content)?)?;
        fs::rename(&unfinished, path)
    };
    write().map_err(|error: std::io::Error| {
        // Half of it takes room and is of no use.
        let _ = fs::remove_file(&unfinished);
        let hint = match error.kind() {
            ErrorKind::StorageFull => "; make room and run the same again: finished cells are kept",
            _ => "",
        };
        anyhow::anyhow!("cannot write {}: {error}{hint}", path.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::outcome;

    fn matrix() -> Matrix {
        Matrix {
            machine: "bench".into(),
            workloads: vec!["promote".into()],
            systems: vec!["none".into(), "pghot".into()],
            backings: vec!["anon".into()],
            kernels: vec!["7".into()],
            seeds: 2,
            first_seed: 1,
            warms_up: false,
            guest_s: 2,
            threads: 1,
            dilation: 10,
            rooms_percent: vec![100],
        }
    }

    #[test]
    fn systems_alternate() {
        let cells = matrix().cells();
        let order: Vec<_> = cells.iter().map(|c| (c.seed, c.system.as_str())).collect();
        assert_eq!(
            order,
            [(1, "none"), (1, "pghot"), (2, "pghot"), (2, "none")]
        );
    }

    #[test]
    fn seeds_go_on_where_others_ended() {
        let more = Matrix {
            first_seed: 4,
            ..matrix()
        };
        let seeds = |matrix: &Matrix| -> Vec<u64> {
            let cells = matrix.cells().into_iter();
            cells
                .filter(|cell| cell.system == "none")
                .map(|cell| cell.seed)
                .collect()
        };
        assert_eq!(seeds(&more), [4, 5]);
        let warm = Matrix {
            warms_up: true,
            ..more
        };
        assert_eq!(seeds(&warm), [0, 4, 5]);
    }

    #[test]
    fn doing_nothing_is_run_in_one_room() {
        let rooms = Matrix {
            rooms_percent: vec![100, 50],
            seeds: 1,
            ..matrix()
        };
        let cells = rooms.cells();
        let of = |cell: &Setting| (cell.system.clone(), cell.room_percent);
        let cells: Vec<_> = cells.iter().map(of).collect();
        let expected = [("none", 100), ("pghot", 100), ("pghot", 50)];
        assert_eq!(cells, expected.map(|(name, room)| (name.to_owned(), room)));
    }

    #[test]
    fn a_workload_has_the_memory_that_it_can_have() {
        let matrix = Matrix {
            workloads: vec!["promote".into(), "pagecache".into()],
            backings: vec!["anon".into(), "thp".into()],
            guest_s: 1,
            systems: vec!["none".into()],
            seeds: 1,
            ..matrix()
        };
        let cells = matrix.cells();
        let of = |cell: &Setting| (cell.backing.clone(), cell.accesses);
        let cells: Vec<_> = cells.iter().map(of).collect();
        let expected = [("anon", 40_000_000), ("thp", 40_000_000), ("file", 330_000)];
        assert_eq!(
            cells,
            expected.map(|(kind, accesses)| (kind.to_owned(), accesses))
        );
    }

    #[test]
    fn finished_cells_are_found_again_and_broken_ones_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("cells")).unwrap();
        let cells = matrix().cells();
        let outcome = Outcome {
            setting: cells[0].clone(),
            ..outcome("promote", "none")
        };
        assert!(store.get(&cells[0]).is_none());
        store.put(&outcome).unwrap();
        assert_eq!(store.get(&cells[0]).unwrap().release, "7.2");
        assert!(store.get(&cells[1]).is_none());
        fs::write(store.path(&cells[0]), "{").unwrap();
        assert!(store.get(&cells[0]).is_none(), "half of one");
    }
}
