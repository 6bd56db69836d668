//! Loading a source's BPF object: the shared maps, the shape of the records, the rule, statistics
//! and ready samples, which are the same for every source that reports from BPF.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenMapMut, OpenObject};
use memmap2::MmapMut;
use pghot_hotness::{Field, IndexedRange, Mirror, RANGES_MAX, Rule, Shape, bytes_of, mirror, read};
use pghot_linux::bpf::{self, Callable};

use super::{Error, RecordMaps, SourceCost};
use crate::{ReadySample, SourceStats};

mirror! {
    /// Where records lie: the constants of each program.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct RecordShape = "pghot_shape" {
        precision: u32,
        nr_ranges: u32,
        ranges: [IndexedRange; RANGES_MAX],
    }
}

mirror! {
    /// A place for a ready sample; a program may be writing it.
    pub(crate) struct SampleSlot = "pghot_ready_sample" {
        pfn: AtomicU64,
        when_ns: AtomicU64,
    }
}

/// A loaded BPF object that reports into the record maps.
pub(crate) struct Reporter {
    object: Object,
    rule: MapHandle,
    stats: MapHandle,
    samples: MmapMut,
    /// Samples handed over so far.
    drained: u64,
}

impl RecordShape {
    fn of(maps: &RecordMaps) -> RecordShape {
        let (nr_ranges, ranges) = maps.span().indexed_ranges();
        RecordShape {
            precision: (maps.format() == pghot_hotness::Format::Precision).into(),
            nr_ranges,
            ranges,
        }
    }
}

/// Gives a program that finds records by itself the largest shape, so that all of it is verified.
pub(crate) fn shape_at_most(object: &mut OpenObject) -> libbpf_rs::Result<()> {
    let shape = RecordShape {
        precision: 0,
        nr_ranges: RANGES_MAX as u32,
        ranges: [IndexedRange::default(); RANGES_MAX],
    };
    let mut maps = object.maps_mut();
    let has_shape = |map: &OpenMapMut<'_>| {
        let is_constants = map.name().to_string_lossy().ends_with(".rodata");
        is_constants && map.value_size() as usize == size_of::<RecordShape>()
    };
    match maps.find(has_shape) {
        Some(mut constants) => constants.set_initial_value(bytes_of(&shape)),
        None => Ok(()),
    }
}

fn bpf_error(what: &'static str) -> impl FnOnce(libbpf_rs::Error) -> Error {
    move |source| Error::Bpf { what, source }
}

/// Has a program loaded that is not by itself.
pub(crate) fn choose(object: &mut OpenObject, program: &str) {
    for mut candidate in object.progs_mut().filter(|p| p.name() == program) {
        candidate.set_autoload(true);
    }
}

fn map_array(object: &mut Object, name: &str) -> Result<MmapMut, Error> {
    let array = bpf::handle(object, name).map_err(bpf_error("reopen the source's maps"))?;
    bpf::map_memory(&array).map_err(|source| {
        let bytes = array.max_entries() as u64 * array.value_size() as u64;
        Error::Map { bytes, source }
    })
}

/// For an object that includes `layout.bpf.h`; see [`bpf::find_layout`].
pub(crate) fn find_layout(object: &Object) -> Result<(), Error> {
    let found = bpf::find_layout(object);
    if found.map_err(bpf_error("look up the kernel's addresses"))? {
        return Ok(());
    }
    Err(Error::Setup(
        "the kernel hides the addresses of its page tables; run pghot as root or grant CAP_SYSLOG"
            .into(),
    ))
}

impl Reporter {
    /// Loads `image`, a BPF object that includes `records.bpf.h` and declares `stats`.
    pub fn load(image: &[u8], maps: &RecordMaps, rule: &Rule) -> Result<Reporter, Error> {
        Reporter::load_with(image, maps, rule, |_| Ok(()))
    }

    /// The same after a last touch: for an object that has programs for several kernels, none of
    /// them loaded unless asked for (`SEC("?...")`, [`choose`]), or maps whose size is not
    /// constant.
    pub fn load_with(
        image: &[u8],
        maps: &RecordMaps,
        rule: &Rule,
        prepare: impl FnOnce(&mut OpenObject) -> libbpf_rs::Result<()>,
    ) -> Result<Reporter, Error> {
        let mut open = ObjectBuilder::default()
            .open_memory(image)
            .map_err(bpf_error("open the source's BPF object"))?;
        prepare(&mut open).map_err(bpf_error("prepare the source's BPF object"))?;
        let shared = "share the record maps";
        bpf::open_map(&mut open, "records")
            .reuse_fd(maps.records_fd())
            .map_err(bpf_error(shared))?;
        bpf::open_map(&mut open, "sections")
            .reuse_fd(maps.sections_fd())
            .map_err(bpf_error(shared))?;
        let constants = "set the shape of the records";
        bpf::open_map(&mut open, ".rodata")
            .set_initial_value(bytes_of(&RecordShape::of(maps)))
            .map_err(bpf_error(constants))?;
        bpf::open_map(&mut open, ".bss")
            .set_initial_value(rule.bytes())
            .map_err(bpf_error(constants))?;
        let mut object = open
            .load()
            .map_err(bpf_error("load the source's BPF program"))?;
        let mut handle =
            |name| bpf::handle(&mut object, name).map_err(bpf_error("reopen the source's maps"));
        let (rule, stats) = (handle(".bss")?, handle("stats")?);
        let samples = map_array(&mut object, "ready_samples")?;
        Ok(Reporter {
            object,
            rule,
            stats,
            samples,
            drained: 0,
        })
    }

    /// Maps an mmapable array of the object's own.
    pub fn map_array(&mut self, name: &str) -> Result<MmapMut, Error> {
        map_array(&mut self.object, name)
    }

    /// For an object that includes `layout.bpf.h`: to be called before its programs run.
    pub fn find_layout(&self) -> Result<(), Error> {
        find_layout(&self.object)
    }

    /// Attaches one program to its hook; it runs until the link is dropped.
    pub fn attach(&self, program: &str) -> Result<libbpf_rs::Link, Error> {
        let attached = bpf::program(&self.object, program).attach();
        attached.map_err(|source| Error::Bpf {
            what: "attach the source's BPF program",
            source,
        })
    }

    /// A `syscall` program, for the source's thread to call.
    pub fn callable(&self, program: &str) -> Result<Callable, Error> {
        Callable::of(&self.object, program).map_err(|source| Error::Bpf {
            what: "reopen the source's BPF program",
            source: source.into(),
        })
    }

    pub fn set_rule(&mut self, rule: &Rule) -> Result<(), Error> {
        self.rule
            .update(&0u32.to_ne_bytes(), rule.bytes(), MapFlags::ANY)
            .map_err(|source| Error::Bpf {
                what: "set the update rule",
                source,
            })
    }

    /// Writes a section of the object's own data, whole, while its programs run.
    pub fn set_data(&mut self, section: &'static str, bytes: &[u8]) -> Result<(), Error> {
        let map = bpf::handle(&mut self.object, section)
            .map_err(bpf_error("reopen the source's maps"))?;
        map.update(&0u32.to_ne_bytes(), bytes, MapFlags::ANY)
            .map_err(bpf_error("set a source's data"))
    }

    pub fn stats(&self) -> Result<SourceStats, Error> {
        self.stats_as()
    }

    /// The beginning of `stats` as a mirror, in which all numbers have 64 bits.
    pub fn stats_as<T: Mirror + Copy>(&self) -> Result<T, Error> {
        let bytes: Vec<u8> = self
            .counters()?
            .into_iter()
            .flat_map(u64::to_ne_bytes)
            .collect();
        read(&bytes).ok_or_else(|| Error::Setup("the program counts less than expected".into()))
    }

    /// What a program counts in `stats`, which is a `T`, besides the counters of every source.
    pub fn details<T: Mirror>(&self) -> BTreeMap<String, u64> {
        let counted = self.counters().unwrap_or_default();
        let Shape::Struct(_, _, fields) = T::SHAPE else {
            return BTreeMap::new();
        };
        let own = fields.iter().filter(|field| field.shape == u64::SHAPE);
        let detail = |field: &Field| Some((field.name.to_owned(), *counted.get(field.offset / 8)?));
        own.filter_map(detail).collect()
    }

    /// All words of `stats`, summed over the CPUs.
    fn counters(&self) -> Result<Vec<u64>, Error> {
        let per_cpu = self
            .stats
            .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|source| Error::Bpf {
                what: "read the source's statistics",
                source,
            })?
            .unwrap_or_default();
        let words = self.stats.value_size() as usize / 8;
        let word = |bytes: &Vec<u8>, i: usize| read::<u64>(bytes.get(8 * i..)?);
        let sum = |i: usize| per_cpu.iter().filter_map(|bytes| word(bytes, i)).sum();
        Ok((0..words).map(sum).collect())
    }

    /// What its programs cost.
    pub fn cost(&self) -> SourceCost {
        let (bpf_runs, bpf_ns) = bpf::run_cost(&self.object);
        SourceCost {
            thread_cpu_ns: 0,
            bpf_runs,
            bpf_ns,
        }
    }

    /// Hands over the samples that arrived since the last call. Reads mapped memory only; what
    /// was overwritten since, and what is being written now, is lost: they are samples.
    pub fn drain_ready(&mut self, sink: &mut dyn FnMut(ReadySample)) {
        // SAFETY: the mapping is page-aligned and as long as it says; programs write it while it
        // is read here, both by aligned 64-bit accesses.
        let slots = unsafe {
            std::slice::from_raw_parts(
                self.samples.as_ptr().cast::<SampleSlot>(),
                self.samples.len() / size_of::<SampleSlot>(),
            )
        };
        let (head, slots) = slots.split_at(1);
        let count = head[0].pfn.load(Ordering::Acquire);
        let kept = slots.len() as u64;
        for n in self.drained.max(count.saturating_sub(kept))..count {
            let slot = &slots[(n % kept) as usize];
            let pfn = slot.pfn.load(Ordering::Relaxed);
            let when_ns = slot.when_ns.swap(0, Ordering::Acquire);
            if when_ns != 0 {
                sink(ReadySample { pfn, when_ns });
            }
        }
        self.drained = count;
    }
}
