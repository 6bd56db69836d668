//! The border between C and Rust, compared.
//!
//! A structure that a BPF program and the daemon share is written in both languages: in C for the
//! program, in Rust by [`pghot_hotness::mirror!`]. This test reads from each compiled object's BTF
//! what crosses there (values of maps, data sections, arguments and results of programs that are
//! called) and compares it with Rust's descriptions: names, places, sizes, numbers. What has no
//! counterpart must have a reason. So does it with the headers that are compiled into Rust, and
//! with those for applications (`border.c`). docs/bpf-border.md says why so.

#![allow(clippy::unwrap_used, reason = "it is a test")]

mod btf;
mod planted;

use std::process::Command;
use std::sync::atomic::AtomicU64;

use pghot_hint::{ring, wire};
use pghot_hotness::{BORDER, CHUNK_BYTES, Mirror, Shape, mirror};
use pghot_linux::bpf::LayoutResult;
use pghot_linux::fates::{self, Fate, Look, SAMPLE_PAGES, Sampled};
use pghot_linux::resolver::{self, Answer, BATCH_PAGES, Request, Verdict};

use crate::SourceStats;
use crate::hint_fault::huge::HugeFaultSlot;
use crate::hint_fault::kernel::{self as hint_fault, HintFaultStats};
use crate::kernel::attach::{RecordShape, SampleSlot};
use crate::kernel::page_tables::walk::{self, PageTable, ScanResult, Walk, YoungFolio, YoungPage};
use crate::mglru::kernel as mglru;
use crate::mglru::kernel::ager::AgingState;
use crate::mglru::kernel::generations::Reading;
use crate::mglru::kernel::page_flags::{MglruResult, OWN_PAGES};
use crate::page_cache::kernel::{self as page_cache, PageCacheStats};
use btf::Side::{self, Elements, Is, Nothing};
use btf::{Object, Sides};

const CHUNK: &Shape = <[u8; CHUNK_BYTES as usize]>::SHAPE;

/// Of the headers for which BTF of programs knows only what these use: by its name in C.
fn named(name: &str) -> &'static Shape {
    let is_it = |shape: &&&Shape| match shape {
        Shape::Struct(it, ..) | Shape::Enum(it, ..) => *it == name,
        _ => false,
    };
    BORDER.iter().find(is_it).expect("it crosses")
}

fn sides<const N: usize>(sides: [(&str, Side); N]) -> Sides {
    sides.map(|(place, side)| (place.to_owned(), side)).into()
}

/// Of each object that includes records.bpf.h.
fn of_records(stats: &'static Shape) -> Sides {
    sides([
        ("map records", Is(CHUNK)),
        ("map sections", Is(CHUNK)),
        ("map ready_samples", Is(SampleSlot::SHAPE)),
        ("map stats", Is(stats)),
        ("section .rodata", Is(RecordShape::SHAPE)),
        ("section .bss", Is(named("hotness_rule"))),
    ])
}

/// Of each object that includes layout.bpf.h.
fn of_layout() -> Sides {
    sides([
        (
            "section .data.layout",
            Nothing("find_layout() writes it, programs read it"),
        ),
        ("result of find_layout", Is(LayoutResult::SHAPE)),
    ])
}

mirror! {
    /// The value of the map `young`, of which Rust sees the elements.
    struct YoungPages = "young_pages" {
        at: [YoungPage; 128 * 512],
    }
}

fn all(parts: impl IntoIterator<Item = Sides>) -> Sides {
    parts.into_iter().flatten().collect()
}

/// Each object with Rust's sides, and the enums that are numbers in its structures.
fn objects() -> Vec<(&'static str, Object, Sides, Vec<&'static Shape>)> {
    let resolver = sides([
        ("map pfns", Elements(u64::SHAPE, BATCH_PAGES)),
        ("map answers", Elements(Answer::SHAPE, BATCH_PAGES)),
        ("argument of resolve", Is(Request::SHAPE)),
        ("argument of heads", Is(Request::SHAPE)),
        ("section .bss", Nothing("a search, the program's own")),
    ]);
    let fates = sides([
        ("map sample", Elements(Sampled::SHAPE, SAMPLE_PAGES)),
        ("argument of look_at", Is(Look::SHAPE)),
    ]);
    let hint_fault = sides([
        ("map blocks", Nothing("the program's own")),
        ("map visits", Nothing("the program's own")),
        ("map huge_faults", Is(HugeFaultSlot::SHAPE)),
        ("section .data.quick", Is(named("quick_faults"))),
        ("section .data.hz", Is(u32::SHAPE)),
        ("section .data.place", Nothing("the program's own")),
    ]);
    let mglru = sides([
        ("map agings", Is(AgingState::SHAPE)),
        (
            "map older_pages",
            Nothing("the program's own; Rust sets how many sections it has"),
        ),
        ("map own_pages", Elements(u64::SHAPE, OWN_PAGES)),
        ("argument of mglru_read_section", Is(Reading::SHAPE)),
        ("result of mglru_read_section", Is(MglruResult::SHAPE)),
        ("result of mglru_page_flags", Is(MglruResult::SHAPE)),
    ]);
    let pgtscan = sides([
        ("map state", Is(Walk::SHAPE)),
        ("map young", Is(YoungPages::SHAPE)),
        ("map folios", Is(YoungFolio::SHAPE)),
        ("map tables", Is(PageTable::SHAPE)),
        ("map copy", Nothing("the program's own")),
        ("section .rodata", Nothing("a key of the program's")),
        ("result of scan", Is(ScanResult::SHAPE)),
    ]);
    let object = |name, image, parts: Vec<Sides>| (name, Object::open(image), all(parts), vec![]);
    let mut objects = vec![
        object("resolver", resolver::OBJECT, vec![resolver, of_layout()]),
        object("fates", fates::OBJECT, vec![fates, of_layout()]),
        object(
            "hint_fault",
            hint_fault::OBJECT,
            vec![hint_fault, of_records(HintFaultStats::SHAPE)],
        ),
        object(
            "page_cache",
            page_cache::OBJECT,
            vec![of_records(PageCacheStats::SHAPE), of_layout()],
        ),
        object(
            "mglru",
            mglru::OBJECT,
            vec![mglru, of_records(SourceStats::SHAPE), of_layout()],
        ),
        object("pgtscan", walk::OBJECT, vec![pgtscan, of_layout()]),
        object("border.c", headers(), vec![of_headers()]),
    ];
    objects[0].3.push(Verdict::SHAPE);
    objects[1].3.push(Fate::SHAPE);
    objects
}

/// The headers, compiled as the programs are.
fn headers() -> &'static [u8] {
    let here = concat!(env!("CARGO_MANIFEST_DIR"), "/");
    let out = tempfile::NamedTempFile::new().unwrap();
    let folders = ["../hotness/include", "../hotness/src", "../../include"];
    let output = Command::new("clang")
        .args([
            "-target",
            "bpf",
            "-g",
            "-O2",
            "-Wall",
            "-Werror",
            "-D__x86_64__",
            "-c",
        ])
        .args(folders.map(|folder| format!("-I{here}{folder}")))
        .arg("-I/usr/include/x86_64-linux-gnu")
        .arg(format!("{here}src/kernel/border/border.c"))
        .arg("-o")
        .arg(out.path())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    std::fs::read(out.path()).unwrap().leak()
}

/// What is written in both languages besides programs, each in a section of its name.
fn of_headers() -> Sides {
    use ring::{RING_BYTES as HINT_RING_BYTES, SLOTS as HINT_SLOTS, Slot};
    use wire::{
        FLAG_ANSWER as ANSWER, FLAG_RING as RING, MAGIC as HINT_MAGIC,
        RANGES_MAX as HINT_RANGES_MAX, RawAnswer, RawMessage,
    };

    let names = wire::Refusal::ALL.map(|(it, ..)| (&*format!("{it:?}").leak(), it as i64));
    let refusals = Box::leak(Box::new([&[("None", 0)], &names[..]].concat()));
    let hints: [&'static Shape; 7] = [
        RANGE,
        mirror!(shape of RawMessage = "pghot_hint_message" {
            magic: u32, pid: u32, flags: u32, nr: u32, ranges: [Ranged; HINT_RANGES_MAX],
        }),
        mirror!(shape of RawAnswer = "pghot_hint_answer" {
            magic: u32, refusal: u32, pages: u64, refused: u64,
        }),
        mirror!(shape of Slot = "pghot_hint_slot" {
            turn: AtomicU64, address: AtomicU64, length: AtomicU64, unused: AtomicU64,
        }),
        mirror!(names "pghot_hint_flags", "PGHOT_HINT_FLAG_" { ANSWER, RING, }),
        mirror!(names "pghot_hint_numbers", "NR_" {
            HINT_MAGIC, HINT_RANGES_MAX, HINT_SLOTS, HINT_RING_BYTES,
        }),
        Box::leak(Box::new(Shape::Enum(
            "pghot_hint_refusal",
            "PGHOT_HINT_REFUSAL_",
            refusals,
        ))),
    ];
    let sides = BORDER
        .iter()
        .copied()
        .chain(hints)
        .map(|shape| match shape {
            Shape::Struct(name, ..) | Shape::Enum(name, ..) => {
                (format!("section .data.{name}"), Is(shape))
            }
            Shape::Number(_) | Shape::Array(..) => panic!("{shape:?} has no name"),
        });
    sides.collect()
}

const RANGE: &Shape =
    mirror!(shape of wire::Range = "pghot_hint_range" { address: u64, length: u64, });

/// Stands for [`wire::Range`], whose crate knows no mirrors.
struct Ranged;

// SAFETY: never read; described as the range is.
unsafe impl Mirror for Ranged {
    const SHAPE: &'static Shape = RANGE;
}

#[test]
fn c_and_rust_agree() {
    for (name, object, sides, enums) in objects() {
        let drifts = object.drifts(&sides, &enums);
        assert!(drifts.is_empty(), "{name}:\n{}", drifts.join("\n"));
    }
}

#[test]
fn a_young_page_is_an_access() {
    use pghot_hotness::Access;
    use std::mem::offset_of;
    assert_eq!(size_of::<YoungPage>(), size_of::<Access>());
    assert_eq!(offset_of!(YoungPage, pfn), offset_of!(Access, pfn));
    assert_eq!(offset_of!(YoungPage, nid), offset_of!(Access, nid));
}
