//! Whether pages that were promoted are touched again: reads the accessed bits of single pages by
//! process and address (`fates.bpf.c`).

use std::io;

use libbpf_rs::{Object, ObjectBuilder, ProgramInput};
use memmap2::MmapMut;
use pghot_engine::exchange::Fates;
use pghot_engine::{Owner, Place};
use pghot_hotness::{bytes_of, bytes_of_mut, mirror, slice_of};

use crate::bpf;

/// Pages per call; the size of the program's array.
pub const SAMPLE_PAGES: usize = 256;

/// The compiled program.
pub static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/fates.bpf.o"));

mirror! {
    /// What is known of a page.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Fate = "fate", "FATE_" {
        /// Nothing is mapped there.
        Gone = 1,
        /// Its accessed bit is clear.
        Untouched,
        /// Its accessed bit is set.
        Touched,
    }
}

mirror! {
    /// A page, and the answer.
    #[derive(Debug, Clone, Copy)]
    pub struct Sampled = "sampled" {
        address: u64,
        pid: u32,
        fate: u32,
    }
}

mirror! {
    /// A call of the program.
    #[derive(Debug, Clone, Copy)]
    pub struct Look = "look" {
        nr_pages: u32,
    }
}

/// The loaded program with its array.
pub struct AccessedBits {
    object: Object,
    sample: MmapMut,
}

impl AccessedBits {
    /// Loads the program and checks that it sees the kernel's addresses.
    pub fn load() -> Result<AccessedBits, libbpf_rs::Error> {
        let mut object = ObjectBuilder::default().open_memory(OBJECT)?.load()?;
        let handle = bpf::handle(&mut object, "sample")?;
        let sample = bpf::map_memory(&handle)?;
        if !bpf::find_layout(&object)? {
            return Err(io::Error::from(io::ErrorKind::PermissionDenied).into());
        }
        Ok(AccessedBits { object, sample })
    }

    /// How many of these pages have their accessed bit set, of those that a process maps.
    pub fn look_at(&mut self, places: &[Place]) -> Fates {
        let mut fates = Fates::default();
        for places in places.chunks(SAMPLE_PAGES) {
            fates.add(self.look_at_batch(places).unwrap_or_default());
        }
        fates
    }

    fn look_at_batch(&mut self, places: &[Place]) -> Result<Fates, libbpf_rs::Error> {
        let size = size_of::<Sampled>();
        for (slot, place) in self.sample.chunks_exact_mut(size).zip(places) {
            let pid = match place.owner {
                Owner::Process(pid) => pid,
                // No process has this number: gone.
                Owner::File(_) => 0,
            };
            let asked = Sampled {
                address: place.address,
                pid,
                fate: 0,
            };
            slot.copy_from_slice(bytes_of(&asked));
        }
        let mut look = Look {
            nr_pages: places.len() as u32,
        };
        let input = ProgramInput {
            context_in: Some(bytes_of_mut(&mut look)),
            ..Default::default()
        };
        bpf::program(&self.object, "look_at").test_run(input)?;
        let mut fates = Fates::default();
        for sampled in slice_of::<Sampled>(&self.sample, places.len()) {
            let fate = Fate::of_number(sampled.fate);
            fates.looked += u64::from(fate != Some(Fate::Gone));
            fates.touched += u64::from(fate == Some(Fate::Touched));
        }
        Ok(fates)
    }
}
