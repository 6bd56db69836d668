//! The Rust side of the page-table walk (`pgtscan.bpf.c`): asks about a piece of a process's memory
//! and reads the answer from mapped memory.

use std::ops::Range;

use libbpf_rs::{Object, ObjectBuilder, ProgramInput};
use memmap2::MmapMut;
use pghot_hotness::{Access, Span};
use pghot_linux::bpf;

use crate::kernel::attach::find_layout;
use crate::kernel::records::RANGES_MAX;
use crate::kernel::{Error, SourceCost};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pgtscan.bpf.o"));

/// `struct young_page` of the program. Also an [`Access`], whose padding it fills.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct YoungPage {
    pub pfn: u64,
    pub nid: u32,
    /// Pages from the start of the walked range.
    pub page: u32,
}

/// `struct young_folio` of the program.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct YoungFolio {
    /// Of the head.
    pub pfn: u64,
    pub pages: u32,
    /// Pages from the start of the walked range.
    pub page: u32,
}

/// `struct table` of the program: 2 MiB of addresses.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageTable {
    pub address: u64,
    pub lower_pages: u64,
}

/// `struct walk` of the program, without what is only the program's.
#[repr(C)]
#[derive(Clone, Copy)]
struct Walk {
    start: u64,
    end: u64,
    pid: u32,
    nid: u32,
    leave: u32,
    nr_ranges: u32,
    ranges: [Frames; RANGES_MAX],
    next: u64,
    entries: u64,
    lower_pages: u64,
    nr_young: u32,
    nr_folios: u32,
    nr_tables: u32,
    nr_shared: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Frames {
    start: u64,
    end: u64,
}

const _: () = assert!(size_of::<YoungPage>() == size_of::<Access>());

/// How a call went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Walked {
    /// The answer is there; go on at this address.
    UpTo(u64),
    /// No such process.
    Gone,
    /// Somebody is changing its mappings: try later.
    Busy,
    /// Nothing is mapped at the start of the range any more.
    Unmapped,
}

/// What to walk.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub pid: i32,
    /// Addresses, inside one mapping.
    pub range: Range<u64>,
    /// The node to report the accesses for.
    pub nid: u32,
    /// Young pages to leave out.
    pub leave: Leave,
}

/// What a walk leaves out of the young pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leave {
    /// Pages that more than one process maps.
    pub shared: bool,
    /// Pages that hint faults see.
    pub hinted: bool,
}

impl Leave {
    /// `LEAVE_SHARED` and `LEAVE_HINTED` of the program.
    fn bits(self) -> u32 {
        u32::from(self.shared) | u32::from(self.hinted) << 1
    }
}

/// The loaded program with its arrays.
pub(crate) struct Walker {
    object: Object,
    state: MmapMut,
    young: MmapMut,
    folios: MmapMut,
    tables: MmapMut,
}

impl Walker {
    /// Loads the program and checks that it sees the kernel's addresses.
    pub fn load(span: &Span) -> Result<Walker, Error> {
        let bpf_error = |source| Error::Bpf {
            what: "load the page-table walk",
            source,
        };
        let opened = ObjectBuilder::default().open_memory(OBJECT);
        let mut object = opened.map_err(bpf_error)?.load().map_err(bpf_error)?;
        find_layout(&object)?;
        let mut mapped = |name| {
            let handle = bpf::handle(&mut object, name).map_err(bpf_error)?;
            bpf::map_memory(&handle).map_err(|source| Error::Map { bytes: 0, source })
        };
        let (state, young) = (mapped("state")?, mapped("young")?);
        let (folios, tables) = (mapped("folios")?, mapped("tables")?);
        let mut walker = Walker {
            object,
            state,
            young,
            folios,
            tables,
        };
        let mut walk = walker.state();
        walk.nr_ranges = span.ranges().count().min(RANGES_MAX) as u32;
        for (slot, (range, _)) in walk.ranges.iter_mut().zip(span.ranges()) {
            *slot = Frames {
                start: range.start,
                end: range.end,
            };
        }
        walker.set_state(walk);
        Ok(walker)
    }

    fn state(&self) -> Walk {
        // SAFETY: the map's value begins with a `Walk`, is aligned to pages, and the program does
        // not run now.
        unsafe { self.state.as_ptr().cast::<Walk>().read() }
    }

    fn set_state(&mut self, walk: Walk) {
        // SAFETY: as in `state`.
        unsafe { self.state.as_mut_ptr().cast::<Walk>().write(walk) }
    }

    fn run(&mut self) -> Result<u32, libbpf_rs::Error> {
        let output = bpf::program(&self.object, "scan").test_run(ProgramInput::default())?;
        Ok(output.return_value)
    }

    /// Walks the beginning of a range, as far as one call goes.
    pub fn walk(&mut self, request: &Request) -> Walked {
        self.set_state(Walk {
            start: request.range.start,
            end: request.range.end,
            pid: request.pid as u32,
            nid: request.nid,
            leave: request.leave.bits(),
            ..self.state()
        });
        match self.run() {
            Ok(0) => Walked::UpTo(self.state().next),
            Ok(2) => Walked::Gone,
            Ok(3) => Walked::Busy,
            // A program that took its first call takes the next.
            Ok(_) | Err(_) => Walked::Unmapped,
        }
    }

    /// Present entries met by the last call.
    pub fn entries(&self) -> u64 {
        self.state().entries
    }

    /// Young pages that the last call left out as shared.
    pub fn shared(&self) -> u64 {
        self.state().nr_shared.into()
    }

    /// Young base pages that the last call found.
    pub fn young(&self) -> &[YoungPage] {
        slice_of(&self.young, self.state().nr_young)
    }

    /// The same, as the record table takes them.
    pub fn accesses(&self) -> &[Access] {
        slice_of(&self.young, self.state().nr_young)
    }

    /// Young large folios that the last call found.
    pub fn folios(&self) -> &[YoungFolio] {
        slice_of(&self.folios, self.state().nr_folios)
    }

    /// The tables that the last call met, by ascending address.
    pub fn tables(&self) -> &[PageTable] {
        slice_of(&self.tables, self.state().nr_tables)
    }

    /// What the program cost, as far as the kernel counts it.
    pub fn cost(&self) -> SourceCost {
        let (bpf_runs, bpf_ns) = bpf::run_cost(&self.object);
        SourceCost {
            thread_cpu_ns: 0,
            bpf_runs,
            bpf_ns,
        }
    }
}

/// The first `count` elements of a map, or all.
fn slice_of<T: Copy>(memory: &MmapMut, count: u32) -> &[T] {
    let count = (count as usize).min(memory.len() / size_of::<T>());
    // SAFETY: the memory is aligned to pages and at least as long; `T` is one of the plain structs
    // above or an `Access`, of which all bits are values; the program does not run while `self` of
    // the caller is borrowed, because running it takes `&mut`.
    unsafe { std::slice::from_raw_parts(memory.as_ptr().cast(), count) }
}
