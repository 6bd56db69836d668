//! Starts sources on the kernel, and remembers which of its settings each of them changed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use pghot_events::event;
use pghot_hotness::Table;
use pghot_linux::SysRoot;
use pghot_linux::knobs::{Foreign, Knobs};
use pghot_linux::topology::Topology;
use pghot_sources::{Availability, Config, Descriptor, Error, Kind, RecordMaps, Source, Start};

use crate::config::Options;
use crate::lock;
use crate::restorer;
use crate::sources::Launcher;

/// Starts sources on the running kernel.
pub struct KernelLauncher {
    root: SysRoot,
    maps: RecordMaps,
    table: Arc<Table>,
    topology: Topology,
    knobs: Arc<Mutex<Knobs>>,
    /// The kernel settings that each source changed, by the source's bit.
    changed: BTreeMap<u32, Vec<PathBuf>>,
    dry_run: bool,
    hint_socket: PathBuf,
}

impl KernelLauncher {
    /// Sources will report into `table`, whose records lie in `maps`; settings change through
    /// `knobs`.
    pub fn new(
        root: &SysRoot,
        topology: &Topology,
        options: &Options,
        maps: RecordMaps,
        table: &Arc<Table>,
        knobs: Arc<Mutex<Knobs>>,
    ) -> KernelLauncher {
        KernelLauncher {
            root: root.clone(),
            maps,
            table: Arc::clone(table),
            topology: topology.clone(),
            knobs,
            changed: BTreeMap::new(),
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
            dry_run: self.dry_run,
            hint_socket: &self.hint_socket,
        };
        let started = (descriptor.on_kernel.start)(&mut start);
        let mut source = started.map_err(|error| error.to_string())?;
        if descriptor.kind == Kind::HintFaults {
            // Only now that it is attached, so that no fault goes by unseen.
            let stands_by = self.stand_by(source.as_mut(), standing_by);
            stands_by.map_err(|error| error.to_string())?;
        }
        Ok(source)
    }

    fn clear(&mut self, descriptor: &'static Descriptor) {
        let paths = self.changed.remove(&descriptor.bit).unwrap_or_default();
        match lock(&self.knobs).put_back(&paths) {
            Ok(report) => restorer::log(&report),
            Err(error) => event!(setting_not_restored, "{error}"),
        }
    }

    fn stand_by(&mut self, source: &mut dyn Source, standing_by: bool) -> Result<(), Error> {
        self.change(source, |source, knobs| source.stand_by(knobs, standing_by))
    }

    fn foreign(&mut self) -> Vec<Foreign> {
        lock(&self.knobs).foreign()
    }

    fn mark(&mut self, source: &mut dyn Source, size_mb: u64) -> Result<bool, Error> {
        self.change(source, |source, knobs| source.mark(knobs, size_mb))
    }
}

impl KernelLauncher {
    /// Has a source change settings, and remembers which are its own.
    fn change<T>(
        &mut self,
        source: &mut dyn Source,
        change: impl Fn(&mut dyn Source, &mut Knobs) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut knobs = lock(&self.knobs);
        let before = knobs.changed();
        let result = change(source, &mut knobs);
        // What is new in the books is the source's.
        let mut new = knobs.changed();
        new.retain(|path| !before.contains(path));
        let bit = source.descriptor().bit;
        self.changed.entry(bit).or_default().extend(new);
        result
    }
}
