//! Finds out where page flags keep the generation.
//!
//! That depends on how the kernel was built and stands nowhere. So pages of the source's own are
//! aged through all generations, and exactly one place in their flags follows.

use libbpf_rs::OpenObject;
use memmap2::{Advice, MmapMut};
use pghot_hotness::{Nid, Pfn, mirror};
use pghot_linux::SysRoot;
use pghot_linux::bpf::Callable;
use pghot_linux::lru_gen::{self, Commands, Key};
use pghot_linux::pagemap::{Entry, Pagemap};
use pghot_linux::topology::PAGE_SHIFT;

use crate::kernel::Error;
use crate::kernel::attach::{Reporter, choose};

mirror! {
    /// What the programs that read page flags return.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum MglruResult = "mglru_result", "MGLRU_" {
        /// All was read.
        Read,
        /// The kernel lacks a function.
        NoCast,
    }
}

impl MglruResult {
    /// Whether all was read.
    pub fn is_read(number: u32) -> bool {
        MglruResult::of_number(number) == Some(MglruResult::Read)
    }
}

const PAGE_FLAGS: &str = "mglru_page_flags";

/// Generations that the kernel has at most (`MAX_NR_GENS`): their numbers are taken modulo this.
const GENERATIONS: u64 = 4;

/// How many pages are aged to find the place: as many as `own_pages` of mglru.bpf.c has.
pub(crate) const OWN_PAGES: usize = 512;
const PAGE_BYTES: usize = 4096;

/// Agings that are tried: reclaim refuses one that it makes itself at that moment.
const TRIES_MAX: u64 = 3 * GENERATIONS;

/// Has the program loaded that [`find`] calls.
pub fn prepare(object: &mut OpenObject) {
    choose(object, PAGE_FLAGS);
}

/// How the page flags name the generation to which an aging moves young pages.
pub fn youngest(max_seq: u64) -> u32 {
    // 0 stands for pages on no list.
    (max_seq % GENERATIONS + 1) as u32
}

/// The bit of page flags at which the generation begins, found with memory of the lower-tier node
/// `nid`.
pub fn find(
    root: &SysRoot,
    commands: &mut Commands,
    reporter: &mut Reporter,
    nid: Nid,
) -> Result<u32, Error> {
    let mut own = OwnPages::new(root, reporter, nid)?;
    find_shift(|| own.age(commands))
}

/// Memory of this process in the lower tier, which can be aged.
struct OwnPages {
    root: SysRoot,
    nid: Nid,
    page_flags: Callable,
    /// PFNs in, flags out.
    asked: MmapMut,
    memory: Option<MmapMut>,
}

/// What the flags of the own pages were after an aging, and how they name young ones.
struct Aged {
    flags: Vec<u64>,
    youngest: u32,
}

fn setup(what: &str, error: impl std::fmt::Display) -> Error {
    Error::Setup(format!("cannot {what}, to find the generations: {error}"))
}

impl OwnPages {
    fn new(root: &SysRoot, reporter: &mut Reporter, nid: Nid) -> Result<OwnPages, Error> {
        let memory = MmapMut::map_anon(OWN_PAGES * PAGE_BYTES)
            .map_err(|error| setup("take memory", error))?;
        // Base pages, each with flags of its own. A kernel without huge pages refuses the word.
        let _ = memory.advise(Advice::NoHugePage);
        bind(&memory, nid).map_err(|error| setup(&format!("take memory of node {nid}"), error))?;
        Ok(OwnPages {
            root: root.clone(),
            nid,
            page_flags: reporter.callable(PAGE_FLAGS)?,
            asked: reporter.map_array("own_pages")?,
            memory: Some(memory),
        })
    }

    /// Accesses all pages, and has them aged once. None if the kernel refused the aging.
    fn age(&mut self, commands: &mut Commands) -> Result<Option<Aged>, Error> {
        self.access()
            .map_err(|error| setup("access memory", error))?;
        let path = lru_gen::path(&self.root);
        let read = |path| std::fs::read_to_string(path).map_err(|error| setup("read", error));
        let (list, cgroups) = (
            read(path.clone())?,
            read(self.root.proc.join("self/cgroup"))?,
        );
        let listed = lru_gen::memcg_of(&list, &cgroups).and_then(|memcg_id| {
            let key = Key {
                memcg_id,
                nid: self.nid,
            };
            let listed = lru_gen::parse(&list, |nid| nid == self.nid);
            listed.get(&key).map(|listed| (key, listed.max_seq))
        });
        let (key, max_seq) = listed.ok_or_else(|| {
            let path = path.display();
            Error::Setup(format!("{path} does not list pghot's own control group"))
        })?;
        if commands.age(key, max_seq).is_err() {
            return Ok(None);
        }
        Ok(Some(Aged {
            flags: self
                .flags()
                .map_err(|error| setup("read page flags", error))?,
            youngest: youngest(max_seq),
        }))
    }

    fn access(&mut self) -> std::io::Result<()> {
        if let Some(memory) = self.memory.take() {
            // Protecting it flushes its entries from the TLB: without, the CPU sets no accessed
            // bits.
            let mut memory = memory.make_read_only()?.make_mut()?;
            for page in memory.chunks_exact_mut(PAGE_BYTES) {
                page[0] = page[0].wrapping_add(1);
            }
            self.memory = Some(memory);
        }
        Ok(())
    }

    fn flags(&mut self) -> std::io::Result<Vec<u64>> {
        let address = self.memory.as_ref().map_or(0, |m| m.as_ptr() as u64);
        let mut pfns: Vec<Pfn> = Vec::with_capacity(OWN_PAGES);
        let pagemap = Pagemap::open(&self.root, std::process::id())?;
        pagemap.look_up(address >> PAGE_SHIFT, OWN_PAGES as u64, &mut |entry| {
            if let Entry::Present(pfn) = entry {
                pfns.push(pfn);
            }
        })?;
        let slots = self.asked.chunks_exact_mut(8);
        for (slot, pfn) in slots.zip(pfns.iter().chain(std::iter::repeat(&0))) {
            slot.copy_from_slice(&pfn.to_ne_bytes());
        }
        if !MglruResult::is_read(self.page_flags.call(&mut [0; 8])?) {
            return Err(std::io::Error::other(
                "the kernel hides its addresses, or lacks bpf_rdonly_cast() (since 6.2)",
            ));
        }
        let words = self.asked.chunks_exact(8).take(pfns.len());
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
        Ok(words.map(word).collect())
    }
}

/// Has the next page faults of `memory` served by one node.
fn bind(memory: &MmapMut, nid: Nid) -> std::io::Result<()> {
    const MPOL_BIND: libc::c_long = 2;
    let mut mask = vec![0u64; nid as usize / 64 + 1];
    mask[nid as usize / 64] = 1 << (nid % 64);
    // The kernel looks at one bit less than it is told.
    let bits = mask.len() * 64 + 1;
    let (start, mask) = (memory.as_ptr(), mask.as_ptr());
    // SAFETY: the range is a mapping of ours, whose content stays; the mask is readable for `bits -
    // 1` bits.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            start,
            memory.len(),
            MPOL_BIND,
            mask,
            bits,
            0,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// The one place in page flags that follows the pages through all generations. Nine pages in ten
/// must agree: some wait in the kernel's lists of new pages for a while.
fn find_shift(mut age: impl FnMut() -> Result<Option<Aged>, Error>) -> Result<u32, Error> {
    let mut places: Vec<u32> = (0..=u64::BITS - 3).collect();
    let mut agings = 0;
    for _ in 0..TRIES_MAX {
        let Some(aged) = age()? else { continue };
        agings += 1;
        places.retain(|place| {
            let names = aged.flags.iter().map(|flags| (flags >> place & 7) as u32);
            let follow = names.filter(|name| *name == aged.youngest).count();
            follow > 0 && follow * 10 >= aged.flags.len() * 9
        });
        if agings == GENERATIONS {
            break;
        }
    }
    match places[..] {
        [place] if agings == GENERATIONS => Ok(place),
        _ => Err(Error::Setup(format!(
            "cannot find the generations in page flags: {} places follow {agings} agings, where \
             one should follow {GENERATIONS}",
            places.len()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flags of pages whose generation is at `shift`, after the aging of each sequence number.
    fn agings(shift: u32, noise: u64) -> impl FnMut() -> Result<Option<Aged>, Error> {
        let mut max_seq = 6;
        move || {
            max_seq += 1;
            let youngest = youngest(max_seq);
            let page = |i: u64| match i % 16 {
                0 => noise,
                _ => noise | u64::from(youngest) << shift,
            };
            Ok(Some(Aged {
                flags: (0..512).map(page).collect(),
                youngest,
            }))
        }
    }

    #[test]
    fn the_place_that_follows_is_found() {
        for shift in [22, 27, 61] {
            let noise = 0x8000_0000_0001_002d & !(7 << shift);
            assert_eq!(find_shift(agings(shift, noise)).unwrap(), shift);
        }
    }

    #[test]
    fn refused_agings_are_tried_again() {
        let (mut aged, mut n) = (agings(27, 0), 0);
        let every_third = || {
            n += 1;
            if n % 3 == 0 { aged() } else { Ok(None) }
        };
        assert_eq!(find_shift(every_third).unwrap(), 27);
        let refusal = find_shift(|| Ok(None)).unwrap_err().to_string();
        assert!(refusal.contains("follow 0 agings"), "{refusal}");
    }

    #[test]
    fn flags_that_do_not_follow_are_refused() {
        let mut seq = 0;
        let moving = || {
            seq += 1;
            Ok(Some(Aged {
                flags: vec![3 << 27; 512],
                youngest: youngest(seq),
            }))
        };
        assert!(find_shift(moving).is_err(), "always the same");
        let none = || {
            Ok(Some(Aged {
                flags: Vec::new(),
                youngest: 1,
            }))
        };
        assert!(find_shift(none).is_err(), "no pages");
    }
}
