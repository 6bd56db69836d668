//! The way without a function to see: young pages are told by the generation in their page flags,
//! read right before an aging and right after it.

use std::collections::BTreeMap;

use libbpf_rs::{OpenObject, Result as BpfResult};
use pghot_hotness::{Nid, Pfn, SECTION_PAGES, Span, bytes_of_mut, mirror};
use pghot_linux::bpf::{self, Callable};

use super::page_flags::{MglruResult, youngest};
use crate::kernel::Error;
use crate::kernel::attach::{Reporter, choose};

const READ_SECTION: &str = "mglru_read_section";

/// Has its program and map loaded.
pub fn prepare(object: &mut OpenObject, span: &Span) -> BpfResult<()> {
    choose(object, READ_SECTION);
    bpf::open_map(object, "older_pages").set_max_entries(span.sections() as u32)
}

/// When flags are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// To remember which pages are not in the youngest generation.
    Before,
    /// To report those of them that are now.
    After,
}

/// A section of the records, by its first page.
#[derive(Debug, Clone, Copy)]
struct Section {
    first_pfn: Pfn,
    index: u32,
}

mirror! {
    /// What the program is asked for.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct Reading = "reading" {
        first_pfn: u64,
        section: u32,
        gen_shift: u32,
        youngest: u32,
        is_after: u32,
    }
}

/// Reads all pages of a node.
pub struct Generations {
    read_section: Callable,
    /// Where the flags keep the generation.
    shift: u32,
    sections: BTreeMap<Nid, Vec<Section>>,
}

impl Generations {
    /// All pages of `span`, whose flags keep the generation at `shift`.
    pub fn new(reporter: &Reporter, span: &Span, shift: u32) -> Result<Generations, Error> {
        let mut sections: BTreeMap<Nid, Vec<Section>> = BTreeMap::new();
        for (range, base) in span.ranges() {
            let of_node = sections.entry(range.nid).or_default();
            let firsts = (range.start..range.end).step_by(SECTION_PAGES as usize);
            of_node.extend(firsts.map(|first_pfn| Section {
                first_pfn,
                index: ((base + first_pfn - range.start) / SECTION_PAGES) as u32,
            }));
        }
        Ok(Generations {
            read_section: reporter.callable(READ_SECTION)?,
            shift,
            sections,
        })
    }

    /// Reads the flags of the node's pages before or after the aging of `max_seq`. Pages of
    /// sections that could not be read are not found young.
    pub fn read(&self, nid: Nid, max_seq: u64, moment: Moment) {
        for section in self.sections.get(&nid).into_iter().flatten() {
            let mut reading = Reading {
                first_pfn: section.first_pfn,
                section: section.index,
                gen_shift: self.shift,
                youngest: youngest(max_seq),
                is_after: (moment == Moment::After).into(),
            };
            let called = self.read_section.call(bytes_of_mut(&mut reading));
            if !called.is_ok_and(MglruResult::is_read) {
                return;
            }
        }
    }
}
