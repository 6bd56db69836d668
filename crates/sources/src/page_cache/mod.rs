//! Source `page_cache`: files in the page cache that are read and written by system calls.
//!
//! See README.md in this folder for how it works, what it costs and when it is blind.

use std::collections::BTreeMap;

use libbpf_rs::btf::{Btf, types::Func};
use pghot_linux::SysRoot;

use crate::attach::Reporter;
use crate::fake::{Event, EventFake};
use crate::{
    Availability, Config, Descriptor, Error, Kind, ReadySample, Source, SourceCost, SourceStats,
    Start,
};

/// The entry of [`crate::SOURCES`].
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "page_cache",
    bit: 0x8,
    doc: "Page cache that no process maps: read(2), write(2) and their relatives on files whose \
          pages are in the lower tier.",
    kind: Kind::Other,
    check,
    start,
    fake: |table, config| {
        EventFake::boxed(
            &DESCRIPTOR,
            |event, config| (event == Event::CacheRead).then_some(config.rule),
            table,
            config,
        )
    },
};

/// Where the kernel notes an access of a page-cache folio.
const HOOK: &str = "folio_mark_accessed";

/// Counters of its own, in the order of the program's `struct source_stats`.
const DETAILS: &[&str] = &["anonymous_folios", "mapped_folios", "dropbehind_folios"];

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/page_cache.bpf.o"));

struct PageCache {
    reporter: Reporter,
    _link: libbpf_rs::Link,
}

fn check(root: &SysRoot) -> Availability {
    let path = root.sys.join("kernel/btf/vmlinux");
    match Btf::from_path(&path) {
        Err(_) => Availability::Unavailable(format!("the kernel has no BTF at {}", path.display())),
        Ok(btf) if btf.type_by_name::<Func<'_>>(HOOK).is_none() => {
            Availability::Unavailable(format!("the kernel has no function {HOOK}"))
        }
        Ok(_) => Availability::Available,
    }
}

fn start(start: &mut Start<'_>) -> Result<Box<dyn Source>, Error> {
    let reporter = Reporter::load(OBJECT, start.maps, &start.config.rule)?;
    reporter.find_layout()?;
    let link = reporter.attach("page_cache")?;
    Ok(Box::new(PageCache {
        reporter,
        _link: link,
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
        let counted = self.reporter.own_counters().unwrap_or_default();
        let names = DETAILS.iter().map(|name| (*name).to_owned());
        names.zip(counted).collect()
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
