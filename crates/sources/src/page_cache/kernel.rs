//! The source on a kernel: a program where the kernel notes accesses of the page cache.

use std::collections::BTreeMap;

use pghot_hotness::mirror;
use pghot_linux::SysRoot;
use pghot_linux::bpf::has_function;
use pghot_linux::keeper::Keeper;

use super::DESCRIPTOR;
use crate::kernel::attach::Reporter;
use crate::kernel::{Availability, Error, OnKernel, Source, SourceCost, Start};
use crate::{Config, Descriptor, ReadySample, SourceStats};

/// The entry's half that needs a kernel.
pub(super) const ON_KERNEL: OnKernel = OnKernel {
    check,
    start,
    object: Some(OBJECT),
};

/// Where the kernel notes an access of a page-cache folio.
const HOOK: &str = "folio_mark_accessed";

mirror! {
    /// What the program counts.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct PageCacheStats = "source_stats" {
        common: SourceStats,
        anonymous_folios: u64,
        mapped_folios: u64,
        dropbehind_folios: u64,
    }
}

pub(crate) static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/page_cache.bpf.o"));

struct PageCache {
    reporter: Reporter,
    /// None while it stands by: then reads cost nothing.
    link: Option<libbpf_rs::Link>,
}

fn check(root: &SysRoot) -> Availability {
    let path = root.sys.join("kernel/btf/vmlinux");
    match has_function(root, HOOK) {
        None => Availability::Unavailable(format!("the kernel has no BTF at {}", path.display())),
        Some(false) => Availability::Unavailable(format!("the kernel has no function {HOOK}")),
        Some(true) => Availability::Available,
    }
}

fn start(start: &mut Start<'_>) -> Result<Box<dyn Source>, Error> {
    let reporter = Reporter::load(OBJECT, start.maps, &start.config.rule)?;
    reporter.find_layout()?;
    Ok(Box::new(PageCache {
        reporter,
        link: None,
    }))
}

impl Source for PageCache {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn configure(&mut self, config: &Config) -> Result<(), Error> {
        self.reporter.set_rule(&config.rule)
    }

    fn stats(&self) -> Result<SourceStats, Error> {
        self.reporter.stats()
    }

    fn drain_ready(&mut self, sink: &mut dyn FnMut(ReadySample)) {
        self.reporter.drain_ready(sink);
    }

    fn cost(&self) -> SourceCost {
        self.reporter.cost()
    }

    fn details(&self) -> BTreeMap<String, u64> {
        self.reporter.details::<PageCacheStats>()
    }

    fn stand_by(&mut self, _: &Keeper, standing_by: bool) -> Result<(), Error> {
        self.link = match standing_by {
            true => None,
            false => Some(self.reporter.attach("page_cache")?),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_btf_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let answer = check(&SysRoot::under(dir.path()));
        let Availability::Unavailable(why) = answer else {
            panic!("an empty tree has everything");
        };
        assert!(why.contains("BTF"), "{why}");
    }
}
