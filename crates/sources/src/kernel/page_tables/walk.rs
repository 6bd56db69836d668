//! The Rust side of the page-table walk (`pgtscan.bpf.c`): asks about a piece of a process's memory
//! and reads the answer from mapped memory.

use std::ops::Range;

use libbpf_rs::{Object, ObjectBuilder, ProgramInput};
use memmap2::MmapMut;
use pghot_hotness::{Access, IndexedRange, RANGES_MAX, Span, bytes_of, mirror, slice_of};
use pghot_linux::bpf;

use crate::kernel::attach::find_layout;
use crate::kernel::{Error, SourceCost};

pub(crate) static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pgtscan.bpf.o"));

mirror! {
    /// A young base page. Also an [`Access`], whose padding it fills.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct YoungPage = "young_page" {
        pub pfn: u64,
        pub nid: u32,
        /// Pages from the start of the walked range.
        pub page: u32,
    }
}

mirror! {
    /// A young large folio.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct YoungFolio = "young_folio" {
        /// Of the head.
        pub pfn: u64,
        pub pages: u32,
        /// Pages from the start of the walked range.
        pub page: u32,
    }
}

mirror! {
    /// A lowest page table: 2 MiB of addresses.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct PageTable = "table" {
        pub address: u64,
        pub lower_pages: u64,
    }
}

mirror! {
    /// What the program is asked for, what it answers, and at the end what is only its own.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct Walk = "walk" {
        start: u64,
        end: u64,
        pid: u32,
        nid: u32,
        leave_shared: u16,
        leave_hinted: u16,
        nr_ranges: u32,
        ranges: [IndexedRange; RANGES_MAX],
        next: u64,
        entries: u64,
        lower_pages: u64,
        nr_young: u32,
        nr_folios: u32,
        nr_tables: u32,
        nr_shared: u32,
        last_head: u64,
        is_hinted: u64,
    }
}

mirror! {
    /// How a call went, as the program tells.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum ScanResult = "scan_result", "SCAN_" {
        /// The answer is there.
        Done,
        /// Never.
        NoState,
        /// No such process.
        NoProcess,
        /// Its mappings are being changed.
        Busy,
        /// Nothing is mapped there.
        Unmapped,
    }
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
        (walk.nr_ranges, walk.ranges) = span.indexed_ranges();
        walker.set_state(walk);
        Ok(walker)
    }

    fn state(&self) -> Walk {
        slice_of(&self.state, 1)[0]
    }

    fn set_state(&mut self, walk: Walk) {
        self.state[..size_of::<Walk>()].copy_from_slice(bytes_of(&walk));
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
            leave_shared: request.leave.shared.into(),
            leave_hinted: request.leave.hinted.into(),
            ..self.state()
        });
        let result = self.run().ok().and_then(ScanResult::of_number);
        match result {
            Some(ScanResult::Done) => Walked::UpTo(self.state().next),
            Some(ScanResult::NoProcess) => Walked::Gone,
            Some(ScanResult::Busy) => Walked::Busy,
            // A program that took its first call takes the next.
            Some(ScanResult::Unmapped | ScanResult::NoState) | None => Walked::Unmapped,
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
        slice_of(&self.young, self.state().nr_young as usize)
    }

    /// The same, as the record table takes them.
    pub fn accesses(&self) -> &[Access] {
        slice_of(&self.young, self.state().nr_young as usize)
    }

    /// Young large folios that the last call found.
    pub fn folios(&self) -> &[YoungFolio] {
        slice_of(&self.folios, self.state().nr_folios as usize)
    }

    /// The tables that the last call met, by ascending address.
    pub fn tables(&self) -> &[PageTable] {
        slice_of(&self.tables, self.state().nr_tables as usize)
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
