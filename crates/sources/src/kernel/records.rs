//! The record maps: BPF arrays that the programs of all sources write, mapped into the daemon.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, AtomicU64};

use libbpf_rs::{MapHandle, MapType};
use memmap2::MmapMut;
use pghot_hotness::{CHUNK_BYTES, Format, RANGES_MAX, SECTION_PAGES, Span, Storage, Table};

use super::Error;

/// The two maps that hold all records, and the shape that programs need to find one.
pub struct RecordMaps {
    records: MapHandle,
    sections: MapHandle,
    format: Format,
    span: Span,
}

/// The maps' memory as the migrator sees it.
struct Mapped {
    records: MmapMut,
    sections: MmapMut,
}

impl RecordMaps {
    /// Creates the maps for all pages of `span` and a table over their memory.
    ///
    /// All of it is allocated here: `record_bytes` per page and 8 bytes per 32768 pages.
    pub fn create(format: Format, span: &Span) -> Result<(RecordMaps, Table), Error> {
        let got = span.ranges().count();
        if got > RANGES_MAX {
            return Err(Error::TooManyRanges {
                got,
                max: RANGES_MAX,
            });
        }
        let record_bytes = span.pages() * format.record_bytes() as u64;
        let section_bytes = span.pages() / SECTION_PAGES * 8;
        let (records, records_memory) = create_mapped("pghot_records", record_bytes)?;
        let (sections, sections_memory) = create_mapped("pghot_sections", section_bytes)?;
        let mapped = Mapped {
            records: records_memory,
            sections: sections_memory,
        };
        let table = Table::new(format, span.clone(), Box::new(mapped))?;
        Ok((
            RecordMaps {
                records,
                sections,
                format,
                span: span.clone(),
            },
            table,
        ))
    }

    /// The record map, for a BPF object to reuse.
    pub fn records_fd(&self) -> BorrowedFd<'_> {
        self.records.as_fd()
    }

    /// The section map, for a BPF object to reuse.
    pub fn sections_fd(&self) -> BorrowedFd<'_> {
        self.sections.as_fd()
    }

    /// The records' format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The pages that have records.
    pub fn span(&self) -> &Span {
        &self.span
    }
}

fn create_mapped(name: &str, bytes: u64) -> Result<(MapHandle, MmapMut), Error> {
    let options = libbpf_rs::libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as _,
        map_flags: libbpf_rs::libbpf_sys::BPF_F_MMAPABLE,
        ..Default::default()
    };
    let elements = bytes.div_ceil(CHUNK_BYTES) as u32;
    let chunk = CHUNK_BYTES as u32;
    let map = MapHandle::create(MapType::Array, Some(name), 4, chunk, elements, &options).map_err(
        |source| Error::Bpf {
            what: "create the hotness record maps",
            source,
        },
    )?;
    let length = elements as u64 * CHUNK_BYTES;
    let map_error = |source| Error::Map {
        bytes: length,
        source,
    };
    let file = File::from(map.as_fd().try_clone_to_owned().map_err(map_error)?);
    // SAFETY: the map is private to this process and its BPF programs; both sides touch it only
    // by atomic accesses, and the mapping keeps the map alive.
    let memory = unsafe {
        memmap2::MmapOptions::new()
            .len(length as usize)
            .map_mut(&file)
    }
    .map_err(map_error)?;
    Ok((map, memory))
}

impl Storage for Mapped {
    fn words(&self) -> &[AtomicU32] {
        // SAFETY: a mapping is page-aligned, as long as it says and lives as long as `self`;
        // every access to it, here and in BPF, is atomic.
        unsafe { std::slice::from_raw_parts(self.records.as_ptr().cast(), self.records.len() / 4) }
    }

    fn sections(&self) -> &[AtomicU64] {
        // SAFETY: as above.
        unsafe {
            std::slice::from_raw_parts(self.sections.as_ptr().cast(), self.sections.len() / 8)
        }
    }
}
