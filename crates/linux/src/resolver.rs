//! Loads and calls the BPF resolver: page frame number → a process and an address that map it, or a
//! file and an offset.

use std::io;

use libbpf_rs::{Object, ObjectBuilder, ProgramInput};
use memmap2::MmapMut;
use pghot_engine::{FileId, Found, Outcome, Place};
use pghot_hotness::{Pfn, bytes_of_mut, mirror, slice_of};

use crate::bpf;

/// Pages per call; the size of the program's arrays.
pub const BATCH_PAGES: usize = 4096;

/// The compiled program.
pub static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/resolver.bpf.o"));

/// Why the resolver cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ResolverError {
    /// The kernel did not take the program.
    #[error("cannot load the BPF resolver: {0}; run `pghot doctor` to see what this kernel lacks")]
    Load(#[source] libbpf_rs::Error),
    /// The program's arrays could not be mapped.
    #[error("cannot map the BPF resolver's arrays: {0}")]
    Map(#[source] io::Error),
    /// Without the kernel's addresses every answer would be silently wrong.
    #[error(
        "the kernel hides the addresses of vmemmap_base and page_offset_base; run pghot as root \
         or grant CAP_SYSLOG"
    )]
    HiddenAddresses,
}

mirror! {
    /// What the program says of a page.
    #[derive(Debug, Clone, Copy)]
    pub struct Answer = "answer" {
        head_pfn: u64,
        address: u64,
        inode: u64,
        device: u32,
        generation: u32,
        tgid: u32,
        verdict: u16,
        order: u16,
    }
}

mirror! {
    /// What kind of page it is, and so what else an [`Answer`] says.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Verdict = "verdict", "" {
        /// A process maps it, at this address.
        Mapped = 1,
        /// Nobody's.
        Free,
        /// Merged by KSM.
        Ksm,
        /// The kernel's own.
        Kernel,
        /// Page cache of something that is not a regular file.
        Unopenable,
        /// Somebody maps it, but no process was found.
        NotFound,
        /// Page cache that no process maps, of this file.
        Cached,
    }
}

mirror! {
    /// A call of the program.
    #[derive(Debug, Clone, Copy)]
    pub struct Request = "request" {
        nr_pages: u32,
    }
}

/// A folio, as [`Resolver::heads`] finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Folio {
    /// Its first page.
    pub head: Pfn,
    /// Its base pages.
    pub pages: u64,
}

/// The loaded program with its arrays. Not shared: each migrator has its own.
pub struct Resolver {
    object: Object,
    pfns: MmapMut,
    answers: MmapMut,
}

impl Resolver {
    /// Loads the program and checks that it sees the kernel's addresses.
    pub fn load() -> Result<Resolver, ResolverError> {
        let opened = ObjectBuilder::default()
            .open_memory(OBJECT)
            .map_err(ResolverError::Load)?;
        let mut object = opened.load().map_err(ResolverError::Load)?;
        let mut mapped = |name| {
            let handle = bpf::handle(&mut object, name).map_err(ResolverError::Load)?;
            bpf::map_memory(&handle).map_err(ResolverError::Map)
        };
        let (pfns, answers) = (mapped("pfns")?, mapped("answers")?);
        if !bpf::find_layout(&object).map_err(ResolverError::Load)? {
            return Err(ResolverError::HiddenAddresses);
        }
        Ok(Resolver {
            object,
            pfns,
            answers,
        })
    }

    fn run(&mut self, program: &str, pfns: &[Pfn]) -> Result<u32, libbpf_rs::Error> {
        for (slot, pfn) in self.pfns.chunks_exact_mut(8).zip(pfns) {
            slot.copy_from_slice(&pfn.to_ne_bytes());
        }
        let nr_pages = pfns.len() as u32;
        let mut request = Request { nr_pages };
        let input = ProgramInput {
            context_in: Some(bytes_of_mut(&mut request)),
            ..Default::default()
        };
        let output = bpf::program(&self.object, program).test_run(input)?;
        Ok(output.return_value)
    }

    /// Finds out where each page is; one answer per page, appended to `found`. An answer
    /// is a hint: by the time it is used the page may be elsewhere.
    pub fn resolve(&mut self, pfns: &[Pfn], found: &mut Vec<Found>) {
        for batch in pfns.chunks(BATCH_PAGES) {
            // A loaded program that took its first call takes the next; if ever not, the pages
            // stay ready and are asked about again.
            if !matches!(self.run("resolve", batch), Ok(0)) {
                found.extend(batch.iter().map(|_| Found::Unresolved(Outcome::NotFound)));
                continue;
            }
            found.extend(self.answers().iter().take(batch.len()).map(Answer::found));
        }
    }

    /// The folio of each page, appended to `folios`. The page frames must exist.
    pub fn heads(&mut self, pfns: &[Pfn], folios: &mut Vec<Folio>) {
        for batch in pfns.chunks(BATCH_PAGES) {
            // As in `resolve`; a page that is taken for its own head is reported a bit less well.
            if !matches!(self.run("heads", batch), Ok(0)) {
                folios.extend(batch.iter().map(|&head| Folio { head, pages: 1 }));
                continue;
            }
            let folio = |answer: &Answer| Folio {
                head: answer.head_pfn,
                pages: 1 << answer.order,
            };
            folios.extend(self.answers().iter().take(batch.len()).map(folio));
        }
    }

    fn answers(&self) -> &[Answer] {
        slice_of(&self.answers, BATCH_PAGES)
    }
}

impl Answer {
    fn file(&self) -> FileId {
        FileId {
            device: self.device,
            inode: self.inode,
            generation: self.generation,
        }
    }

    fn found(&self) -> Found {
        let folio = |place| Found::Folio {
            place,
            head: self.head_pfn,
            pages: 1 << self.order,
        };
        let outcome = match Verdict::of_number(self.verdict.into()) {
            Some(Verdict::Mapped) => return folio(Place::in_process(self.tgid, self.address)),
            Some(Verdict::Cached) => return folio(Place::in_file(self.file(), self.address)),
            Some(Verdict::Free) => Outcome::Free,
            Some(Verdict::Ksm) => Outcome::Ksm,
            Some(Verdict::Kernel) => Outcome::Kernel,
            Some(Verdict::Unopenable) => Outcome::Unopenable,
            Some(Verdict::NotFound) | None => Outcome::NotFound,
        };
        Found::Unresolved(outcome)
    }
}
