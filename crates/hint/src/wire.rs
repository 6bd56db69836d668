//! What is said on the hint socket, in the byte order of the machine. `include/pghot_hint.h` says
//! the same in C.
//!
//! A message is a header, `magic pid flags nr` of 32 bits each, and `nr` ranges, `address length`
//! of 64 bits each. It arrives whole or not at all (`SOCK_SEQPACKET`).

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

const HEADER_BYTES: usize = 16;
const RANGE_BYTES: usize = 16;

/// The longest message.
pub const MESSAGE_BYTES_MAX: usize = HEADER_BYTES + RANGES_MAX * RANGE_BYTES;

/// Bytes of an answer.
pub const ANSWER_BYTES: usize = 24;

/// Memory of a process: all pages that it touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Its first byte.
    pub address: u64,
    /// Its bytes.
    pub length: u64,
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

/// What a refusal means, by its number.
pub fn refusal_sentence(refusal: u32) -> &'static str {
    match refusal {
        0 => "nothing was refused",
        1 => "the message is not understood",
        2 => "only root may hint the memory of other processes",
        3 => "a range is empty",
        4 => "a range is longer than 1 GiB",
        5 => "an address is none of user space",
        6 => "there is no such process",
        7 => "the daemon has no memory for a ring",
        _ => "the daemon is a newer version of pghot",
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
        let (magic, pid) = (u32_at(bytes, 0)?, u32_at(bytes, 4)?);
        let (flags, nr) = (u32_at(bytes, 8)?, u32_at(bytes, 12)? as usize);
        let is_whole = nr <= RANGES_MAX && bytes.len() == HEADER_BYTES + nr * RANGE_BYTES;
        if magic != MAGIC || flags & !(FLAG_ANSWER | FLAG_RING) != 0 || !is_whole {
            return None;
        }
        let range = |bytes: &[u8]| {
            Some(Range {
                address: u64_at(bytes, 0)?,
                length: u64_at(bytes, 8)?,
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
        bytes[..4].copy_from_slice(&MAGIC.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.refusal.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.pages.to_ne_bytes());
        bytes[16..].copy_from_slice(&self.refused.to_ne_bytes());
        bytes
    }

    /// The answer in these bytes, if they are one.
    pub fn decode(bytes: &[u8]) -> Option<Answer> {
        if u32_at(bytes, 0)? != MAGIC || bytes.len() != ANSWER_BYTES {
            return None;
        }
        Some(Answer {
            refusal: u32_at(bytes, 4)?,
            pages: u64_at(bytes, 8)?,
            refused: u64_at(bytes, 16)?,
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
