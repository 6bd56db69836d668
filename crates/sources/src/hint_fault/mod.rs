//! Source `hint_fault`: the kernel's NUMA hint faults, seen where the kernel counts them.
//!
//! See README.md in this folder for how it works, what it costs and when it is blind.

use pghot_hotness::Rule;
use pghot_linux::SysRoot;
use pghot_linux::hint_fault_knobs::{tiering_is_on, tiering_without_kernel_promotion};
use pghot_linux::probe;

use crate::attach::Reporter;
use crate::{Availability, Descriptor, Error, ReadySample, Source, SourceStats, Start};

/// The entry of [`crate::SOURCES`].
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "hint_fault",
    bit: 0x1,
    doc: "NUMA hint faults: the kernel unmaps pages of the lower tier now and then, and the next \
          access of each is seen exactly, with its CPU.",
    check,
    start,
};

/// What it needs of the kernel, by `doctor`'s names.
const NEEDS: &[&str] = &["btf", "numa_balancing", "promote_rate_limit"];

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/hint_fault.bpf.o"));

struct HintFault {
    reporter: Reporter,
    _link: libbpf_rs::Link,
}

fn check(root: &SysRoot) -> Availability {
    let needed = probe::FEATURES.iter().filter(|f| NEEDS.contains(&f.id));
    let missing = needed
        .map(|f| (f.ask)(root))
        .find(|a| *a != Availability::Available);
    missing.unwrap_or(Availability::Available)
}

fn start(start: &mut Start<'_>) -> Result<Box<dyn Source>, Error> {
    let reporter = Reporter::load(OBJECT, start.maps, &start.rule)?;
    let link = reporter.attach("hint_fault")?;
    // A dry run on a host whose kernel promotes must not stop it; it only looks on. Otherwise the
    // faults are turned on last, so that none goes by unseen.
    if !(start.dry_run && tiering_is_on(start.knobs.root())?) {
        tiering_without_kernel_promotion(start.knobs)?;
    }
    Ok(Box::new(HintFault {
        reporter,
        _link: link,
    }))
}

impl Source for HintFault {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn set_rule(&mut self, rule: &Rule) -> Result<(), Error> {
        self.reporter.set_rule(rule)
    }

    fn stats(&self) -> Result<SourceStats, Error> {
        self.reporter.stats()
    }

    fn drain_ready(&mut self, sink: &mut dyn FnMut(ReadySample)) {
        self.reporter.drain_ready(sink);
    }
}
