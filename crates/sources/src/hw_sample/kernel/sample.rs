//! What the records of a ring mean: above all, which page was accessed and where its data was.

use libbpf_sys::{PERF_MEM_OP_LOAD, PERF_MEM_OP_STORE};
use libbpf_sys::{
    PERF_RECORD_LOST as LOST, PERF_RECORD_LOST_SAMPLES as LOST_SAMPLES,
    PERF_RECORD_SAMPLE as SAMPLE, PERF_RECORD_THROTTLE as THROTTLE,
};
use pghot_hotness::Pfn;

use super::ring::Record;

const PAGE_SHIFT: u32 = 12;

/// One record, understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Memory served an access to this page, or nobody knows what did.
    Access(Pfn),
    /// A cache served an access: the tier of the page did not matter.
    CacheHit,
    /// The instruction was no access at all.
    NoAccess,
    /// An access without an address.
    Unreadable,
    /// So many samples did not fit into the ring, or into the CPU's own buffer.
    Lost(u64),
    /// The kernel stopped the event until its next tick: samples came too fast.
    Throttled,
    /// Nothing to us.
    Other,
}

/// Where the data of an access was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Cache,
    Memory,
    Unknown,
}

/// Understands a record of an event whose samples hold [`super::perf::SAMPLE_TYPE`].
pub fn decode(record: &Record) -> Seen {
    match record.kind {
        SAMPLE => decode_sample(record.words[0], record.words[1]),
        // An event's id, then a count.
        LOST => Seen::Lost(record.words[1]),
        LOST_SAMPLES => Seen::Lost(record.words[0]),
        THROTTLE => Seen::Throttled,
        _ => Seen::Other,
    }
}

fn decode_sample(data_src: u64, physical: u64) -> Seen {
    if physical == 0 {
        return match is_access(data_src) {
            true => Seen::Unreadable,
            false => Seen::NoAccess,
        };
    }
    match level(data_src) {
        Level::Cache => Seen::CacheHit,
        Level::Memory | Level::Unknown => Seen::Access(physical >> PAGE_SHIFT),
    }
}

/// `union perf_mem_data_src`: the kind of access, in its lowest 5 bits.
const OP_LOAD: u64 = PERF_MEM_OP_LOAD as u64;
const OP_STORE: u64 = PERF_MEM_OP_STORE as u64;

fn is_access(data_src: u64) -> bool {
    data_src & (OP_LOAD | OP_STORE) != 0
}

/// The level as a number (since Linux 4.14) in bits 33 to 36; 0 where a PMU driver does not use it.
fn level(data_src: u64) -> Level {
    match data_src >> 33 & 0xf {
        // L1 to L4, the L2's miss handling buffer, a memory-side cache, any cache.
        1..=6 | 0xb => Level::Cache,
        // CXL, I/O, RAM, persistent memory. A line fill buffer (0xc) waits for memory already.
        9 | 0xa | 0xc..=0xe => Level::Memory,
        _ => level_by_bits(data_src >> 5 & 0x3fff),
    }
}

/// The same as bits, of which several may be set, in bits 5 to 18.
fn level_by_bits(bits: u64) -> Level {
    const L1_L2_L3: u64 = 0x8 | 0x20 | 0x40;
    const OTHER_CACHES: u64 = 0x400 | 0x800;
    const LINE_FILL_BUFFER: u64 = 0x10;
    const RAM: u64 = 0x80 | 0x100 | 0x200;
    const MISS: u64 = 0x4;
    if bits & (RAM | LINE_FILL_BUFFER) != 0 {
        Level::Memory
    } else if bits & (L1_L2_L3 | OTHER_CACHES) != 0 {
        // "L3, miss" is how some drivers say that memory served it.
        if bits & MISS != 0 {
            Level::Memory
        } else {
            Level::Cache
        }
    } else {
        Level::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HIT: u64 = 0x2 << 5;
    const LEVEL_NA: u64 = 0x1 << 5;

    fn sample(data_src: u64, physical: u64) -> Seen {
        let words = [data_src, physical];
        decode(&Record { kind: 9, words })
    }

    #[test]
    fn the_page_is_the_address_without_its_offset() {
        assert_eq!(sample(0, 0x1_2345_6789), Seen::Access(0x12_3456));
    }

    #[test]
    fn a_software_event_knows_no_level() {
        // As both kernels write it: everything is "not available".
        let (data_src, physical) = (0x1e_0508_0021, 0x1000_0000);
        assert_eq!(sample(data_src, physical), Seen::Access(0x1_0000));
        assert_eq!(sample(data_src, 0), Seen::NoAccess);
    }

    #[test]
    fn levels_by_number() {
        let of = |number: u64| sample(OP_LOAD | HIT | number << 33, 0x1000);
        for cache in [1, 2, 3, 4, 5, 6, 0xb] {
            assert_eq!(of(cache), Seen::CacheHit, "{cache:#x}");
        }
        for memory in [9, 0xa, 0xc, 0xd, 0xe] {
            assert_eq!(of(memory), Seen::Access(1), "{memory:#x}");
        }
        assert_eq!(of(0xf), Seen::Access(1), "not available");
    }

    #[test]
    fn levels_by_bits() {
        let of = |bits: u64| sample(OP_LOAD | bits << 5, 0x1000);
        for cache in [0x2 | 0x8, 0x2 | 0x20, 0x2 | 0x40, 0x2 | 0x400, 0x2 | 0x800] {
            assert_eq!(of(cache), Seen::CacheHit, "{cache:#x}");
        }
        for memory in [0x2 | 0x80, 0x2 | 0x100, 0x2 | 0x200, 0x2 | 0x10, 0x4 | 0x40] {
            assert_eq!(of(memory), Seen::Access(1), "{memory:#x}");
        }
        assert_eq!(sample(OP_LOAD | LEVEL_NA, 0x1000), Seen::Access(1));
    }

    #[test]
    fn amd_and_intel_samples() {
        // Zen 4: extended (CXL) memory; local DRAM. Zen 3: an L1 hit; an op that is no access.
        assert_eq!(sample(OP_LOAD | HIT | 9 << 33, 0x2000), Seen::Access(2));
        assert_eq!(sample(OP_LOAD | HIT | 0x80 << 5, 0x2000), Seen::Access(2));
        assert_eq!(sample(OP_STORE | HIT | 0x8 << 5, 0x2000), Seen::CacheHit);
        assert_eq!(sample(0x1, 0), Seen::NoAccess);
        assert_eq!(sample(OP_LOAD | HIT, 0), Seen::Unreadable);
        // Ice Lake: L3 hit; local DRAM, both encodings at once, as its driver writes them.
        assert_eq!(
            sample(OP_LOAD | HIT | 0x40 << 5 | 3 << 33, 0x3000),
            Seen::CacheHit
        );
        assert_eq!(
            sample(OP_LOAD | HIT | 0x80 << 5 | 0xd << 33, 0x3000),
            Seen::Access(3)
        );
    }

    #[test]
    fn other_records() {
        let of = |kind, words| decode(&Record { kind, words });
        assert_eq!(of(2, [77, 5]), Seen::Lost(5));
        assert_eq!(of(13, [6, 0]), Seen::Lost(6));
        assert_eq!(of(5, [0, 0]), Seen::Throttled);
        for kind in [0, 1, 3, 6, 14, u32::MAX] {
            assert_eq!(of(kind, [1, 1]), Seen::Other);
        }
    }
}
