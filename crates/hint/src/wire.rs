//! What is said on the hint socket, in the byte order of the machine. `include/pghot_hint.h` says
//! the same in C; a test of pghot-sources compares.
//!
//! A message is a header, `magic pid flags nr` of 32 bits each, and `nr` ranges, `address length`
//! of 64 bits each. It arrives whole or not at all (`SOCK_SEQPACKET`).

use std::mem::offset_of;

/// `PGH1` as bytes in memory: protocol and version.
pub const MAGIC: u32 = u32::from_le_bytes(*b"PGH1");

/// The sender waits for an [`Answer`].
pub const FLAG_ANSWER: u32 = 1;

/// The sender asks for a ring, whose descriptor comes with the answer. See [`crate::ring`].
pub const FLAG_RING: u32 = 2;

/// The most ranges in one message.
pub const RANGES_MAX: usize = 256;

/// The longest range: 1 GiB. Longer ones are no hint any more.
pub const LENGTH_MAX: u64 = 1 << 30;

const HEADER_BYTES: usize = offset_of!(RawMessage, ranges);
const RANGE_BYTES: usize = size_of::<Range>();

/// The longest message.
pub const MESSAGE_BYTES_MAX: usize = size_of::<RawMessage>();

/// Bytes of an answer.
pub const ANSWER_BYTES: usize = size_of::<RawAnswer>();

/// Memory of a process: all pages that it touches.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Its first byte.
    pub address: u64,
    /// Its bytes.
    pub length: u64,
}

/// A [`Message`] as it is sent, as far as there are ranges.
#[repr(C)]
pub struct RawMessage {
    /// [`MAGIC`].
    pub magic: u32,
    /// See [`Message::pid`].
    pub pid: u32,
    /// See [`Message::flags`].
    pub flags: u32,
    /// Ranges that follow.
    pub nr: u32,
    /// See [`Message::ranges`].
    pub ranges: [Range; RANGES_MAX],
}

/// An [`Answer`] as it is sent.
#[repr(C)]
pub struct RawAnswer {
    /// [`MAGIC`].
    pub magic: u32,
    /// See [`Answer::refusal`].
    pub refusal: u32,
    /// See [`Answer::pages`].
    pub pages: u64,
    /// See [`Answer::refused`].
    pub refused: u64,
}

impl Range {
    /// The memory of a slice.
    pub fn of<T>(slice: &[T]) -> Range {
        Range {
            address: slice.as_ptr() as u64,
            length: size_of_val(slice) as u64,
        }
    }
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Whose memory; 0 means the sender's.
    pub pid: u32,
    /// [`FLAG_ANSWER`] and [`FLAG_RING`], if they apply.
    pub flags: u32,
    /// The memory.
    pub ranges: Vec<Range>,
}

/// What became of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answer {
    /// Why the first refused range was refused; 0 if none was. See [`refusal_sentence`].
    pub refusal: u32,
    /// Pages of the lower tier in the ranges: reported.
    pub pages: u64,
    /// Ranges that were refused.
    pub refused: u64,
}

/// Why a hint is refused, by its number in an [`Answer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The message is none.
    Malformed = 1,
    /// Another process's memory, and the sender is not root.
    Foreign,
    /// A range without bytes.
    Empty,
    /// A range beyond [`LENGTH_MAX`].
    TooLong,
    /// An address that no process has.
    BadAddress,
    /// There is no such process.
    NoProcess,
    /// There is no memory for a ring.
    NoRing,
}

impl Refusal {
    /// All of them by their numbers, with their names in `status`, and what they mean.
    pub const ALL: [(Refusal, &str, &str); 7] = [
        (
            Refusal::Malformed,
            "malformed",
            "the message is not understood",
        ),
        (
            Refusal::Foreign,
            "foreign",
            "only root may hint the memory of other processes",
        ),
        (Refusal::Empty, "empty", "a range is empty"),
        (Refusal::TooLong, "too_long", "a range is longer than 1 GiB"),
        (
            Refusal::BadAddress,
            "bad_address",
            "an address is none of user space",
        ),
        (Refusal::NoProcess, "no_process", "there is no such process"),
        (
            Refusal::NoRing,
            "no_ring",
            "the daemon has no memory for a ring",
        ),
    ];
}

/// What a refusal means, by its number.
pub fn refusal_sentence(refusal: u32) -> &'static str {
    let mut known = Refusal::ALL.iter();
    match known.find(|(it, ..)| *it as u32 == refusal) {
        _ if refusal == 0 => "nothing was refused",
        Some((_, _, sentence)) => sentence,
        None => "the daemon is a newer version of pghot",
    }
}

impl Message {
    /// The message as bytes. Ranges beyond [`RANGES_MAX`] are left out.
    pub fn encode(&self) -> Vec<u8> {
        let ranges = &self.ranges[..self.ranges.len().min(RANGES_MAX)];
        let mut bytes = Vec::with_capacity(HEADER_BYTES + ranges.len() * RANGE_BYTES);
        for word in [MAGIC, self.pid, self.flags, ranges.len() as u32] {
            bytes.extend(word.to_ne_bytes());
        }
        for range in ranges {
            bytes.extend(range.address.to_ne_bytes());
            bytes.extend(range.length.to_ne_bytes());
        }
        bytes
    }

    /// The message in these bytes, if they are one, whole and nothing more.
    pub fn decode(bytes: &[u8]) -> Option<Message> {
        let magic = u32_at(bytes, offset_of!(RawMessage, magic))?;
        let pid = u32_at(bytes, offset_of!(RawMessage, pid))?;
        let flags = u32_at(bytes, offset_of!(RawMessage, flags))?;
        let nr = u32_at(bytes, offset_of!(RawMessage, nr))? as usize;
        let is_whole = nr <= RANGES_MAX && bytes.len() == HEADER_BYTES + nr * RANGE_BYTES;
        if magic != MAGIC || flags & !(FLAG_ANSWER | FLAG_RING) != 0 || !is_whole {
            return None;
        }
        let range = |bytes: &[u8]| {
            Some(Range {
                address: u64_at(bytes, offset_of!(Range, address))?,
                length: u64_at(bytes, offset_of!(Range, length))?,
            })
        };
        let ranges = bytes[HEADER_BYTES..].chunks_exact(RANGE_BYTES).map(range);
        Some(Message {
            pid,
            flags,
            ranges: ranges.collect::<Option<_>>()?,
        })
    }
}

impl Answer {
    /// The answer as bytes.
    pub fn encode(&self) -> [u8; ANSWER_BYTES] {
        let mut bytes = [0; ANSWER_BYTES];
        let mut put = |at: usize, number: &[u8]| {
            bytes[at..at + number.len()].copy_from_slice(number);
        };
        put(offset_of!(RawAnswer, magic), &MAGIC.to_ne_bytes());
        put(offset_of!(RawAnswer, refusal), &self.refusal.to_ne_bytes());
        put(offset_of!(RawAnswer, pages), &self.pages.to_ne_bytes());
        put(offset_of!(RawAnswer, refused), &self.refused.to_ne_bytes());
        bytes
    }

    /// The answer in these bytes, if they are one.
    pub fn decode(bytes: &[u8]) -> Option<Answer> {
        let magic = u32_at(bytes, offset_of!(RawAnswer, magic))?;
        if magic != MAGIC || bytes.len() != ANSWER_BYTES {
            return None;
        }
        Some(Answer {
            refusal: u32_at(bytes, offset_of!(RawAnswer, refusal))?,
            pages: u64_at(bytes, offset_of!(RawAnswer, pages))?,
            refused: u64_at(bytes, offset_of!(RawAnswer, refused))?,
        })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_way() {
        let range = |n: u64| Range {
            address: n << 12,
            length: u64::MAX - n,
        };
        for nr in [0, 1, RANGES_MAX] {
            let message = Message {
                pid: 7,
                flags: FLAG_ANSWER,
                ranges: (0..nr as u64).map(range).collect(),
            };
            let bytes = message.encode();
            assert!(bytes.len() <= MESSAGE_BYTES_MAX);
            assert_eq!(Message::decode(&bytes), Some(message));
            assert_eq!(Message::decode(&bytes[..bytes.len() - 1]), None);
            assert_eq!(Message::decode(&[&bytes[..], &[0]].concat()), None);
        }
        let answer = Answer {
            refusal: 4,
            pages: 5,
            refused: 6,
        };
        assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        assert_eq!(Answer::decode(&[0; ANSWER_BYTES]), None);
    }

    #[test]
    fn rubbish_is_no_message() {
        let good = Message {
            pid: 0,
            flags: 0,
            ranges: vec![Range::of(&[0u8; 3])],
        };
        // Any change of magic, flags or count spoils it; no bytes at all make it panic.
        let bytes = good.encode();
        for at in (0..4).chain(8..16) {
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[at] ^= 1 << bit;
                let is_flag = at == 8 && bit < 2;
                assert_eq!(Message::decode(&bad).is_some(), is_flag, "{at} {bit}");
            }
        }
        let mut random = 1u64;
        for length in 0..600 {
            let mut noise: Vec<u8> = (0..length)
                .map(|_| {
                    random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
                    (random >> 56) as u8
                })
                .collect();
            assert_eq!(Message::decode(&noise), None);
            if length >= 4 {
                noise[..4].copy_from_slice(&MAGIC.to_ne_bytes());
                assert_eq!(Message::decode(&noise), None);
            }
        }
    }
}
