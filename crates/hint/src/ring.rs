//! Hints through shared memory, without a system call on either side. `include/pghot_hint_ring.h`
//! says the same in C.
//!
//! The ring is a memory file of [`RING_BYTES`]. The daemon makes and seals it and hands it to
//! whoever asks; it takes no descriptor itself, since a stranger's need not be closable. The first
//! word counts the slots that were taken for writing; from the second page on there are [`SLOTS`]
//! slots of four words: turn, address, length, nothing. A slot may be written as number `n` when
//! its turn is `n`, and has the turn `n + 1` then; the daemon reads it and gives it the turn `n +
//! SLOTS`. (D. Vyukov's bounded queue.) So any number of threads may write, nobody waits, and what
//! finds the ring full is lost.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::wire::refusal_sentence;
use crate::{Hints, Range};

/// Hints that a ring holds: a few rounds of the daemon's work.
pub const SLOTS: u64 = 2048;

/// Bytes of the memory file.
pub const RING_BYTES: usize = PAGE_BYTES + SLOTS as usize * size_of::<Slot>();

/// Bytes before the slots.
const PAGE_BYTES: usize = 4096;

/// A place for a hint in the memory file.
#[repr(C)]
#[derive(Debug)]
pub struct Slot {
    /// Who may write or read it now.
    pub turn: AtomicU64,
    /// See [`Range::address`].
    pub address: AtomicU64,
    /// See [`Range::length`].
    pub length: AtomicU64,
    /// Nothing.
    pub unused: AtomicU64,
}

/// The ring was full: the daemon is behind, or gone. The hint is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// A ring that the daemon reads.
#[derive(Debug)]
pub struct Ring {
    writer: Writer,
    /// While it is open, the daemon reads the ring.
    connection: Hints,
}

impl Ring {
    /// Connects to the daemon's hint socket and asks for a ring. An error of the kind `Unsupported`
    /// means that the daemon gives none; [`Hints`] may work.
    pub fn connect(path: &Path) -> io::Result<Ring> {
        let connection = Hints::connect(path)?;
        let refusal = match connection.ask_for_ring() {
            Ok((_, Some(file))) => {
                let writer = Writer::open(file)?;
                return Ok(Ring { writer, connection });
            }
            Ok((answer, None)) => refusal_sentence(answer.refusal),
            // An older daemon understands nothing, and hangs up.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => "it gives no rings",
            Err(error) => return Err(error),
        };
        Err(io::Error::new(io::ErrorKind::Unsupported, refusal))
    }

    /// Hints memory of this process.
    pub fn push(&self, range: Range) -> Result<(), Full> {
        self.writer.push(range)
    }

    /// Whether the daemon still reads. Costs a system call: ask when the ring is full.
    pub fn is_connected(&self) -> bool {
        self.connection.is_connected()
    }
}

/// The application's end.
#[derive(Debug)]
pub struct Writer(Memory);

impl Writer {
    /// Takes over what the daemon sent: `InvalidData` if it has not the size of a ring.
    pub fn open(file: OwnedFd) -> io::Result<Writer> {
        let file = File::from(file);
        if file.metadata()?.len() != RING_BYTES as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Writer(Memory::map(file.as_fd())?))
    }

    /// Writes one hint.
    pub fn push(&self, range: Range) -> Result<(), Full> {
        let head = self.0.head();
        let mut number = head.load(Ordering::Relaxed);
        loop {
            let Slot {
                turn,
                address,
                length,
                ..
            } = self.0.slot(number);
            let ahead = turn.load(Ordering::Acquire).wrapping_sub(number) as i64;
            if ahead < 0 {
                return Err(Full);
            }
            let next = number.wrapping_add(1);
            // Ahead: another thread took this number.
            let taken = if ahead > 0 {
                Err(head.load(Ordering::Relaxed))
            } else {
                head.compare_exchange_weak(number, next, Ordering::Relaxed, Ordering::Relaxed)
            };
            match taken {
                Ok(_) => {
                    address.store(range.address, Ordering::Relaxed);
                    length.store(range.length, Ordering::Relaxed);
                    turn.store(next, Ordering::Release);
                    return Ok(());
                }
                Err(seen) => number = seen,
            }
        }
    }
}

/// The daemon's end.
#[derive(Debug)]
pub struct Reader {
    memory: Memory,
    next: u64,
}

impl Reader {
    /// A new ring and its memory file, for an application. It can become neither shorter, which
    /// would make reading fatal, nor longer. Who has it can write anything into it at any time, and
    /// nothing else.
    pub fn create() -> io::Result<(Reader, OwnedFd)> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name ends with a zero.
        let fd = unsafe { libc::memfd_create(c"pghot-hints".as_ptr(), flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor, and nobody else knows it.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(RING_BYTES as u64)?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: fcntl() takes an open descriptor and a number.
        if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let memory = Memory::map(file.as_fd())?;
        for number in 0..SLOTS {
            memory.turn(number).store(number, Ordering::Relaxed);
        }
        Ok((Reader { memory, next: 0 }, file.into()))
    }

    /// Whether there is nothing to take.
    pub fn is_empty(&self) -> bool {
        self.memory.turn(self.next).load(Ordering::Acquire) != self.next.wrapping_add(1)
    }

    /// Takes up to `max` hints, the oldest first. Each is read once.
    pub fn take(&mut self, max: usize) -> Vec<Range> {
        let mut ranges = Vec::new();
        while ranges.len() < max && !self.is_empty() {
            let Slot {
                turn,
                address,
                length,
                ..
            } = self.memory.slot(self.next);
            ranges.push(Range {
                address: address.load(Ordering::Relaxed),
                length: length.load(Ordering::Relaxed),
            });
            turn.store(self.next.wrapping_add(SLOTS), Ordering::Release);
            self.next = self.next.wrapping_add(1);
        }
        ranges
    }
}

/// A mapped ring, unmapped when dropped.
#[derive(Debug)]
struct Memory(NonNull<AtomicU64>);

// SAFETY: it is a plain shared mapping, and all accesses to it are atomic.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn map(file: BorrowedFd<'_>) -> io::Result<Memory> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of an open file, where the kernel likes.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                RING_BYTES,
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast());
        memory.map(Memory).ok_or_else(io::Error::last_os_error)
    }

    /// How many slots were taken for writing.
    fn head(&self) -> &AtomicU64 {
        // SAFETY: it is mapped at a page's begin until `self` is dropped.
        unsafe { self.0.as_ref() }
    }

    fn slots(&self) -> &[Slot] {
        // SAFETY: so many are mapped from the second page on until `self` is dropped.
        unsafe {
            let first = self.0.as_ptr().byte_add(PAGE_BYTES);
            std::slice::from_raw_parts(first.cast(), SLOTS as usize)
        }
    }

    /// The slot for this number.
    fn slot(&self, number: u64) -> &Slot {
        &self.slots()[(number % SLOTS) as usize]
    }

    fn turn(&self, number: u64) -> &AtomicU64 {
        &self.slot(number).turn
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nobody has a reference into it any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), RING_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn range(address: u64) -> Range {
        let length = address ^ 0xffff;
        Range { address, length }
    }

    fn pair() -> (Writer, Reader) {
        let (reader, file) = Reader::create().unwrap();
        (Writer::open(file).unwrap(), reader)
    }

    #[test]
    fn what_goes_in_comes_out_once_and_in_order() {
        let (writer, mut reader) = pair();
        assert!(reader.is_empty() && reader.take(9).is_empty());
        // Thrice around.
        for first in (0..3 * SLOTS).step_by(512) {
            for n in first..first + 512 {
                writer.push(range(n)).unwrap();
            }
            assert!(!reader.is_empty());
            let mut got = reader.take(100);
            assert_eq!(got.len(), 100);
            got.extend(reader.take(1000));
            let expected: Vec<Range> = (first..first + 512).map(range).collect();
            assert_eq!(got, expected);
        }
    }

    #[test]
    fn a_full_ring_loses_the_newest() {
        let (writer, mut reader) = pair();
        for n in 0..SLOTS {
            writer.push(range(n)).unwrap();
        }
        assert_eq!(writer.push(range(SLOTS)), Err(Full));
        assert_eq!(reader.take(1), [range(0)]);
        writer.push(range(7)).unwrap();
        assert_eq!(writer.push(range(8)), Err(Full));
        let rest = reader.take(usize::MAX);
        assert_eq!(rest.len() as u64, SLOTS);
        assert_eq!(rest.last(), Some(&range(7)));
    }

    #[test]
    fn many_threads_may_write() {
        const WRITERS: u64 = 4;
        const EACH: u64 = 20_000;
        let (writer, mut reader) = pair();
        let mut got: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        std::thread::scope(|scope| {
            for thread in 0..WRITERS {
                let writer = &writer;
                scope.spawn(move || {
                    for n in 0..EACH {
                        while writer.push(range(thread << 32 | n)).is_err() {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let mut left = WRITERS * EACH;
            while left > 0 {
                for Range { address, length } in reader.take(256) {
                    assert_eq!(length, address ^ 0xffff, "torn");
                    got.entry(address >> 32)
                        .or_default()
                        .push(address & 0xffff_ffff);
                    left -= 1;
                }
            }
        });
        assert!(reader.is_empty());
        for numbers in got.into_values() {
            assert!(numbers.into_iter().eq(0..EACH), "in each thread's order");
        }
    }

    #[test]
    fn its_size_is_fixed() {
        let (_reader, file) = Reader::create().unwrap();
        let file = File::from(file);
        for bytes in [0, RING_BYTES - 1, RING_BYTES + 1] {
            assert!(file.set_len(bytes as u64).is_err());
        }
        // SAFETY: an open descriptor and a number.
        let sealed =
            unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_WRITE) };
        assert_eq!(sealed, -1, "nobody can keep the other from writing");
        let other = tempfile::tempfile().unwrap();
        let error = Writer::open(other.into()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn rubbish_in_it_is_read_as_hints_and_no_more_than_asked_for() {
        let (writer, mut reader) = pair();
        let mut random = 1u64;
        for slot in writer.0.slots() {
            for word in [&slot.turn, &slot.address, &slot.length] {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
                word.store(random, Ordering::Relaxed);
            }
        }
        assert!(reader.take(100).len() <= 100);
        // Every slot claims to be the next, whenever it is looked at.
        for number in 0..SLOTS {
            writer.0.turn(number).store(number + 1, Ordering::Relaxed);
        }
        let mut reader = Reader { next: 0, ..reader };
        assert_eq!(reader.take(3000).len() as u64, SLOTS);
    }
}
