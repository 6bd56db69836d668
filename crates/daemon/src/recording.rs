//! The thread that records access profiles all the time, if it is told where to: one after the
//! other, of which the newest are kept.
//!
//! It clears accessed bits, as `pgtscan` and the demoter's agings do, and takes turns with them. It
//! looks for a second, rests for as long at least, takes half a percent of a CPU, and so many bytes
//! a day as it is told: on a large host the looks are rare, and a profile says how rare.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pghot_events::event;
use pghot_linux::conflicts::readers_of_accessed_bits;
use pghot_linux::keeper::Keeper;
use pghot_profile::part::Part;
use pghot_profile::{Profile, file, rotation};
use pghot_sources::pgtscan::SCAN_STALL_MAX_MS;
use pghot_sources::recorder::{self, Order, Recorder, bytes_per_s};
use pghot_sources::tunables;

use crate::config::Options;
use crate::lock;
use crate::shared::Shared;
use crate::status::RecordingReport;
use crate::stop::Stop;

/// One look, and the least time until the next.
const INTERVAL: Duration = Duration::from_secs(1);

/// Of a CPU.
const CPUS_MAX: f64 = 0.005;

/// After a profile that could not be recorded or kept.
const AGAIN: Duration = Duration::from_secs(60);

/// What is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The newest profile.
    file: PathBuf,
    /// How long each lasts.
    seconds: u32,
    /// How many are kept.
    keep: u32,
    /// Of all that are recorded in a day, in MB.
    day_max_mb: u32,
}

impl recorder::Stop for Stop {
    fn is_requested(&self) -> bool {
        Stop::is_requested(self)
    }

    fn sleep(&self, time: Duration) {
        Stop::sleep(self, time);
    }
}

/// What records here, if something is to be recorded and this kernel can: pages go up without.
pub fn load(options: &Options, shared: &Shared, keeper: &Arc<Keeper>) -> Option<(Recorder, Plan)> {
    let plan = Plan {
        file: options.record_file.clone()?,
        seconds: options.record_seconds,
        keep: options.record_keep,
        day_max_mb: options.record_day_max_mb,
    };
    let keeper = Arc::clone(keeper);
    // What root alone may write.
    let open = move |pid| keeper.open_clear_refs(pid).map_err(io::Error::other);
    let loaded = Recorder::load(Box::new(open), shared.turns.clone());
    note(shared, |report| {
        report.file = plan.file.display().to_string();
        report.error = loaded.as_ref().err().map(ToString::to_string);
    });
    Some((loaded.ok()?, plan))
}

/// Records until a stop is requested; what was recorded by then is kept.
pub fn run(shared: &Shared, mut recorder: Recorder, plan: &Plan) {
    while !shared.stop.is_requested() {
        match record(shared, &mut recorder, plan) {
            Ok(()) => note(shared, |report| {
                report.profiles += 1;
                report.error = None;
            }),
            // It had hardly begun.
            Err(_) if shared.stop.is_requested() => {}
            Err(why) => {
                note(shared, |report| report.error = Some(why));
                shared.stop.sleep(AGAIN);
            }
        }
    }
}

/// Changes what the status tells, and logs an error.
fn note(shared: &Shared, change: impl FnOnce(&mut RecordingReport)) {
    let mut report = lock(&shared.recording);
    let report = report.get_or_insert_default();
    change(report);
    if let Some(warning) = report.warning() {
        event!(profile_not_recorded, "{warning}");
    }
}

/// One profile.
fn record(shared: &Shared, recorder: &mut Recorder, plan: &Plan) -> Result<(), String> {
    // Before an hour of recording, not after.
    let part = Part::create(&plan.file);
    let part = part.map_err(|error| format!("{error}; the service may write in /var/lib/pghot"))?;
    let order = Order {
        pids: Vec::new(),
        cgroups: Vec::new(),
        interval: INTERVAL,
        intervals: plan.seconds,
        rest: INTERVAL,
        cpus_max: Some(CPUS_MAX),
        bytes_per_s_max: Some(bytes_per_s(plan.day_max_mb)),
        stall_max: Duration::from_millis(stall_max_ms(shared)),
        with_names: true,
    };
    let profile = recorder.record(&shared.root, &order, &*shared.stop, &mut |at, _| {
        if let Some(report) = &mut *lock(&shared.recording) {
            report.intervals = at.intervals;
            report.processes = at.processes as u64;
        }
    });
    let mut profile = profile.map_err(|error| error.to_string())?;
    let others = readers_of_accessed_bits(&shared.root).into_iter();
    profile.disturbed_by = others.map(|found| found.id.to_owned()).collect();
    keep(part, &profile, plan)
}

fn keep(part: Part, profile: &Profile, plan: &Plan) -> Result<(), String> {
    rotation::make_way(&plan.file, plan.keep).map_err(|error| error.to_string())?;
    let kept = part.keep(&file::encode(profile));
    kept.map_err(|error| error.to_string())
}

fn stall_max_ms(shared: &Shared) -> u64 {
    let (settings, rule) = shared.settings_and_rule();
    tunables::config(&settings, rule).get(&SCAN_STALL_MAX_MS)
}
