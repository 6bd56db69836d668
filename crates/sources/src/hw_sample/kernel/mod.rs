//! The source on a kernel: perf events on every CPU.
//!
//! | module | its one job |
//! |---|---|
//! | [`event`] | which event to sample, from sysfs |
//! | [`perf`] | `perf_event_open` |
//! | [`ring`] | records out of the memory shared with the kernel |
//! | [`sample`] | what a record means |
//! | [`intake`] | from records to reports |
//! | [`drain`] | the thread |

mod drain;
mod event;
mod intake;
mod perf;
mod ring;
mod sample;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pghot_events::event;
use pghot_linux::resolver::Resolver;
use pghot_linux::{SysRoot, probe};

use super::DESCRIPTOR;
use crate::bulk::BulkReporter;
use crate::kernel::worker::{Own, Worker, WorkerSource};
use crate::kernel::{Availability, Error, OnKernel, Source, Start};
use event::EVENT_VARIABLE;
use intake::{Counters, Intake};

/// The entry's half that needs a kernel.
pub(super) const ON_KERNEL: OnKernel = OnKernel {
    check,
    start,
    object: None,
};

const ON_HARDWARE: &str = "it was only ever tested with a software event in emulated machines, \
                           never on AMD IBS or Intel PEBS itself";
const ON_PAGE_FAULTS: &str = "it samples minor page faults and no accesses, as \
                              PGHOT_HW_SAMPLE_EVENT says, which is for tests";

struct HwSample {
    event_name: &'static str,
    cpus: usize,
    counters: Arc<Counters>,
}

fn wanted() -> Option<String> {
    let value = std::env::var_os(EVENT_VARIABLE)?;
    Some(value.to_string_lossy().into_owned())
}

fn check(root: &SysRoot) -> Availability {
    check_event(root, wanted().as_deref())
}

fn check_event(root: &SysRoot, wanted: Option<&str>) -> Availability {
    if let Err(why) = event::choose(root, wanted) {
        return Availability::Unavailable(why);
    }
    if let Some(why) = denied(root) {
        return Availability::Unavailable(why);
    }
    Availability::Untried(match wanted {
        Some(_) => ON_PAGE_FAULTS,
        None => ON_HARDWARE,
    })
}

/// Why perf will not give us samples of all processes with physical addresses, if so.
fn denied(root: &SysRoot) -> Option<String> {
    let has = |id| {
        let feature = probe::FEATURES.iter().find(|feature| feature.id == id);
        feature.is_some_and(|feature| (feature.ask)(root) == Availability::Available)
    };
    if has("cap_perfmon") || has("cap_sys_admin") {
        return None;
    }
    let paranoid = std::fs::read_to_string(root.sysctl("kernel.perf_event_paranoid"));
    let paranoid = paranoid.ok()?.trim().parse::<i32>().unwrap_or(i32::MAX);
    (paranoid > 0).then(|| {
        format!(
            "perf is closed to pghot (kernel.perf_event_paranoid is {paranoid}): run it as root or \
             give it CAP_PERFMON"
        )
    })
}

fn start(start: &mut Start<'_>) -> Result<Box<dyn Source>, Error> {
    let wanted = wanted();
    let event = event::choose(start.root, wanted.as_deref()).map_err(Error::Setup)?;
    if wanted.is_some() {
        event!(sampling_page_faults, "source hw_sample: {ON_PAGE_FAULTS}");
    }
    let mut resolver = Resolver::load().map_err(|error| Error::Setup(error.to_string()))?;
    let channels = drain::open_all(&event, start.topology)?;
    event!(
        sampling_started,
        "source hw_sample samples {} on {} CPUs",
        event.name,
        channels.len()
    );
    let counters = Arc::<Counters>::default();
    let reporter = BulkReporter::new(start.table, &start.config.rule);
    let find_heads = Box::new(move |pfns: &[_], folios: &mut _| resolver.heads(pfns, folios));
    let intake = Intake::new(start.table, &reporter, &counters, find_heads);
    let (event_name, cpus) = (event.name, channels.len());
    let of_thread = Arc::clone(&counters);
    Ok(Box::new(WorkerSource {
        descriptor: &DESCRIPTOR,
        reporter,
        // The events end with it.
        worker: Worker::spawn(DESCRIPTOR.name, move |pace| {
            drain::run(pace, &event, &channels, intake, &of_thread);
        })?,
        own: HwSample {
            event_name,
            cpus,
            counters,
        },
    }))
}

impl Own for HwSample {
    fn details(&self) -> BTreeMap<String, u64> {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let c = &self.counters;
        BTreeMap::from([
            (
                format!("sampled_cpus_{}", self.event_name),
                self.cpus as u64,
            ),
            ("period_events".to_owned(), get(&c.period_events)),
            ("period_changes".to_owned(), get(&c.period_changes)),
            ("period_refusals".to_owned(), get(&c.period_refusals)),
            ("lost_samples".to_owned(), get(&c.lost_samples)),
            ("throttles".to_owned(), get(&c.throttles)),
            ("cache_hit_samples".to_owned(), get(&c.cache_hit_samples)),
            ("no_access_samples".to_owned(), get(&c.no_access_samples)),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with IBS, on which this process has `capabilities`.
    fn machine(capabilities: u64, paranoid: &str) -> (tempfile::TempDir, SysRoot) {
        let dir = tempfile::tempdir().unwrap();
        let root = SysRoot::under(dir.path());
        let status = format!("Name:\tx\nCapEff:\t{capabilities:016x}\n");
        for (path, text) in [
            (root.sys.join("bus/event_source/devices/ibs_op/type"), "10"),
            (root.proc.join("self/status"), &status),
            (root.sysctl("kernel.perf_event_paranoid"), paranoid),
        ] {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        (dir, root)
    }

    #[test]
    fn it_says_what_was_never_tried() {
        let (_dir, root) = machine(1 << 38, "3\n");
        assert_eq!(check_event(&root, None), Availability::Untried(ON_HARDWARE));
        let test = check_event(&root, Some("page-faults"));
        assert_eq!(test, Availability::Untried(ON_PAGE_FAULTS));
        assert!(ON_PAGE_FAULTS.contains(EVENT_VARIABLE));
    }

    #[test]
    fn rights_are_checked_as_the_kernel_does() {
        for (capabilities, paranoid, is_denied) in [
            (0, "2", true),
            (0, "1", true),
            (0, "0", false),
            (0, "-1", false),
            (1 << 38, "2", false),
            (1 << 21, "4", false),
        ] {
            let (_dir, root) = machine(capabilities, paranoid);
            let why = denied(&root);
            assert_eq!(why.is_some(), is_denied, "{capabilities:#x} {paranoid}");
            if let Some(why) = why {
                assert!(
                    why.contains("CAP_PERFMON") && why.contains(paranoid),
                    "{why}"
                );
            }
        }
    }

    #[test]
    fn without_a_pmu_it_is_unavailable() {
        let (_dir, root) = machine(u64::MAX, "2");
        std::fs::remove_dir_all(root.sys.join("bus/event_source/devices/ibs_op")).unwrap();
        let Availability::Unavailable(why) = check_event(&root, None) else {
            panic!("there is nothing to sample");
        };
        assert!(why.contains("AMD IBS") && why.contains("PEBS"), "{why}");
    }
}
