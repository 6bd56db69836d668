//! The memory that the kernel and this process share for one CPU's samples, and reading the records
//! in it.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_sys::perf_event_mmap_page;
use memmap2::{MmapOptions, MmapRaw};

/// Bytes for records per CPU. By default the kernel lets a CPU take 100,000 samples a second; of
/// 24 bytes each, those of one [`crate::hw_sample::DRAIN_EVERY`] fit, which are 120,000 bytes.
const DATA_BYTES: usize = 128 << 10;
const PAGE_BYTES: usize = 4096;

/// Words of `struct perf_event_mmap_page`, the first page, which the two sides move on.
const HEAD_WORD: usize = offset_of!(perf_event_mmap_page, data_head) / 8;
const TAIL_WORD: usize = offset_of!(perf_event_mmap_page, data_tail) / 8;

/// Words of a record behind its header that are of interest.
pub const PAYLOAD_WORDS: usize = 2;

/// One record: what it is, and the first words behind its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// `PERF_RECORD_*`.
    pub kind: u32,
    /// The words behind the header; zero where the record ends before.
    pub words: [u64; PAYLOAD_WORDS],
}

/// The mapped ring of one event.
pub struct Ring {
    memory: MmapRaw,
}

impl Ring {
    /// Maps the ring of an event; from now on its samples are kept.
    pub fn map(event: BorrowedFd<'_>) -> io::Result<Ring> {
        let memory = MmapOptions::new()
            .len(PAGE_BYTES + DATA_BYTES)
            .map_raw(event.as_raw_fd())?;
        Ok(Ring { memory })
    }

    /// Hands over what the kernel has written since the last call, and gives the room back.
    pub fn drain(&self, sink: &mut dyn FnMut(Record)) {
        // SAFETY: the mapping is page-aligned, as long as it says and lives as long as `self`. The
        // kernel writes it meanwhile, hence atomics.
        let words = unsafe {
            std::slice::from_raw_parts(
                self.memory.as_ptr().cast::<AtomicU64>(),
                self.memory.len() / 8,
            )
        };
        let (control, data) = words.split_at(PAGE_BYTES / 8);
        // Pairs with the kernel's barrier: records up to the head are written.
        let head = control[HEAD_WORD].load(Ordering::Acquire);
        let tail = control[TAIL_WORD].load(Ordering::Relaxed);
        if head != tail {
            read(data, tail, head, sink);
            // Records are read before the kernel may overwrite them.
            control[TAIL_WORD].store(head, Ordering::Release);
        }
    }
}

/// Reads the records from byte `tail` to byte `head` of a ring; its length is a power of two, and
/// records are aligned to words, so that only whole words wrap around.
fn read(data: &[AtomicU64], tail: u64, head: u64, sink: &mut dyn FnMut(Record)) {
    let word = |at: u64| data[(at as usize / 8) & (data.len() - 1)].load(Ordering::Relaxed);
    let mut at = tail;
    while at < head {
        // Type in the low 32 bits, size in the high 16.
        let header = word(at);
        let size = header >> 48;
        if size < 8 || size % 8 != 0 || size > head - at {
            // Only a kernel bug can do this; what follows makes no sense.
            return;
        }
        let mut words = [0; PAYLOAD_WORDS];
        for (i, place) in words.iter_mut().enumerate() {
            let offset = 8 * (i as u64 + 1);
            if offset + 8 <= size {
                *place = word(at + offset);
            }
        }
        sink(Record {
            kind: header as u32,
            words,
        });
        at += size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RING_WORDS: usize = 16;

    /// Writes records as the kernel does, and reads them back from byte `start`.
    fn round_trip(start: u64, records: &[(u32, &[u64])]) -> Vec<Record> {
        let data: Vec<AtomicU64> = (0..RING_WORDS).map(|_| AtomicU64::new(!0)).collect();
        let mut head = start;
        for (kind, payload) in records {
            let size = 8 + 8 * payload.len() as u64;
            let header = size << 48 | u64::from(*kind);
            for word in [header].iter().chain(*payload) {
                data[head as usize / 8 % RING_WORDS].store(*word, Ordering::Relaxed);
                head += 8;
            }
        }
        let mut seen = Vec::new();
        read(&data, start, head, &mut |record| seen.push(record));
        seen
    }

    #[test]
    fn records_are_read_wherever_the_ring_wraps() {
        let written: [(u32, &[u64]); 4] =
            [(9, &[1, 2]), (2, &[3, 4]), (5, &[7, 8, 9]), (9, &[10, 11])];
        for start_word in 0..2 * RING_WORDS as u64 {
            let seen = round_trip(start_word * 8, &written);
            let kinds: Vec<u32> = seen.iter().map(|record| record.kind).collect();
            assert_eq!(kinds, [9, 2, 5, 9], "from word {start_word}");
            let words: Vec<_> = seen.iter().map(|record| record.words).collect();
            assert_eq!(words, [[1, 2], [3, 4], [7, 8], [10, 11]]);
        }
    }

    #[test]
    fn short_records_have_zeros() {
        let seen = round_trip(8, &[(14, &[]), (13, &[5])]);
        assert_eq!(seen[0].words, [0, 0]);
        assert_eq!(seen[1].words, [5, 0]);
    }

    #[test]
    fn offsets_grow_beyond_the_ring_for_ever() {
        let seen = round_trip(u64::MAX / 2 / 8 * 8, &[(9, &[1, 2])]);
        assert_eq!(seen.len(), 1);
    }

    #[test]
    fn nonsense_ends_the_reading() {
        for header in [0, 9, 4 << 48 | 9, 12 << 48 | 9, 1000 << 48 | 9, u64::MAX] {
            let data: Vec<AtomicU64> = (0..RING_WORDS).map(|_| AtomicU64::new(header)).collect();
            let mut seen = 0;
            read(&data, 0, 64, &mut |_| seen += 1);
            assert_eq!(seen, 0, "{header:#x}");
        }
    }
}
