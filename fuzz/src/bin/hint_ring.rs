//! A ring of hints into which its owner writes anything, at any time.
#![no_main]

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;

use libfuzzer_sys::fuzz_target;
use pghot_hint::ring::{RING_BYTES, Reader, SLOTS};

thread_local! {
    /// One ring for all runs: each finds it as the last one left it.
    static RING: RefCell<(Reader, File)> = RefCell::new({
        let (reader, file) = Reader::create().expect("a memory file");
        (reader, file.into())
    });
}

// Pieces of eight bytes: where to write, and what.
fuzz_target!(|bytes: &[u8]| {
    RING.with_borrow_mut(|(reader, file)| {
        for piece in bytes.chunks_exact(16) {
            let (place, word) = piece.split_at(8);
            let place = u64::from_le_bytes(place.try_into().expect("8 bytes"));
            let place = place % (RING_BYTES as u64 / 8) * 8;
            file.write_all_at(word, place).expect("it has a fixed size");
        }
        for max in [0, 1, 256] {
            assert!(reader.take(max).len() <= max);
        }
        assert!(reader.take(usize::MAX).len() as u64 <= SLOTS);
    });
});
