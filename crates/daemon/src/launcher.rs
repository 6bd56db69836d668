//! Starts sources on the kernel, and has its settings put back when they are gone.

use std::path::PathBuf;
use std::sync::Arc;

use pghot_engine::Turns;
use pghot_engine::marking::Visits;
use pghot_events::event;
use pghot_hotness::Table;
use pghot_linux::SysRoot;
use pghot_linux::keeper::Keeper;
use pghot_linux::knobs::{Foreign, log};
use pghot_linux::topology::Topology;
use pghot_sources::{Availability, Config, Descriptor, Error, Kind, RecordMaps, Source, Start};

use crate::config::Options;
use crate::sources::Launcher;

/// Starts sources on the running kernel.
pub struct KernelLauncher {
    root: SysRoot,
    maps: RecordMaps,
    table: Arc<Table>,
    topology: Topology,
    keeper: Arc<Keeper>,
    turns: Turns,
    dry_run: bool,
    hint_socket: PathBuf,
}

impl KernelLauncher {
    /// Sources will report into `table`, whose records lie in `maps`; settings change through
    /// `keeper`. Who clears accessed bits keeps to `turns`.
    pub fn new(
        root: &SysRoot,
        topology: &Topology,
        options: &Options,
        maps: RecordMaps,
        table: &Arc<Table>,
        keeper: &Arc<Keeper>,
        turns: &Turns,
    ) -> KernelLauncher {
        KernelLauncher {
            root: root.clone(),
            maps,
            table: Arc::clone(table),
            topology: topology.clone(),
            keeper: Arc::clone(keeper),
            turns: turns.clone(),
            dry_run: options.dry_run,
            hint_socket: options.hint_socket.clone(),
        }
    }
}

impl Launcher for KernelLauncher {
    fn start(
        &mut self,
        descriptor: &'static Descriptor,
        config: Config,
        standing_by: bool,
    ) -> Result<Box<dyn Source>, String> {
        if let Availability::Unavailable(why) = (descriptor.on_kernel.check)(&self.root) {
            return Err(why);
        }
        let mut start = Start {
            maps: &self.maps,
            table: &self.table,
            topology: &self.topology,
            config,
            root: &self.root,
            keeper: &self.keeper,
            turns: &self.turns,
            dry_run: self.dry_run,
            hint_socket: &self.hint_socket,
        };
        let started = (descriptor.on_kernel.start)(&mut start);
        let mut source = started.map_err(|error| error.to_string())?;
        if descriptor.kind.stands_by() {
            // Only now that it is loaded, so that no fault goes by unseen.
            let stands_by = self.stand_by(source.as_mut(), standing_by);
            stands_by.map_err(|error| error.to_string())?;
        }
        Ok(source)
    }

    fn clear(&mut self, descriptor: &'static Descriptor) {
        // No other kind changes settings.
        if descriptor.kind != Kind::HintFaults {
            return;
        }
        match self.keeper.put_back() {
            Ok(report) => log(&report),
            Err(error) => event!(setting_not_restored, "{error}"),
        }
    }

    fn stand_by(&mut self, source: &mut dyn Source, standing_by: bool) -> Result<(), Error> {
        source.stand_by(&self.keeper, standing_by)
    }

    fn foreign(&mut self) -> Vec<Foreign> {
        // A keeper that is gone ends the daemon elsewhere.
        self.keeper.foreign().unwrap_or_default()
    }

    fn mark(&mut self, source: &mut dyn Source, visits: Visits) -> Result<bool, Error> {
        source.mark(&self.keeper, visits)
    }
}
