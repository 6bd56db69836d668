//! The way without a function to see: young pages are told by the generation in their page flags,
//! read right before an aging and right after it.

use std::collections::BTreeMap;

use libbpf_rs::{OpenObject, Result as BpfResult};
use pghot_hotness::{Nid, Pfn, SECTION_PAGES, Span};
use pghot_linux::bpf::{self, Callable};

use super::page_flags::youngest;
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

impl Section {
    /// `struct reading` of the program.
    fn reading(self, shift: u32, youngest: u32, moment: Moment) -> [u8; 24] {
        let mut bytes = [0; 24];
        let is_after = u32::from(moment == Moment::After);
        bytes[..8].copy_from_slice(&self.first_pfn.to_ne_bytes());
        for (slot, word) in bytes[8..]
            .chunks_exact_mut(4)
            .zip([self.index, shift, youngest, is_after])
        {
            slot.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
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
            let mut reading = section.reading(self.shift, youngest(max_seq), moment);
            if !matches!(self.read_section.call(&mut reading), Ok(0)) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_is_what_the_program_expects() {
        let section = Section {
            first_pfn: 0x10_0000,
            index: 3,
        };
        let bytes = section.reading(27, 4, Moment::After);
        let word = |i: usize| u32::from_ne_bytes(bytes[4 * i..4 * i + 4].try_into().unwrap());
        let words: Vec<u32> = (0..6).map(word).collect();
        assert_eq!(words, [0x10_0000, 0, 3, 27, 4, 1]);
    }
}
